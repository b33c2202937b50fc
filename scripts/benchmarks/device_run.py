"""A prepared run on a real accelerator: values, times of kernels, rollouts, training.

    python scripts/benchmark.py device-run --out device.json    # at most eight minutes
    python scripts/benchmark.py device-run --quick              # all of it small, on any machine

Each part is a process of its own with a limit of time, and a row is written as soon as it is known:
a machine that is lent for a short time leaves what was measured.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import tyro

from scripts.benchmarks.result_file import Table, write_result

Rows = Iterator[tuple[str, ...]]
KERNELS = "RoeFlux_1d", "RobotArm_6DOF", "DoublePendulum_RK4", "RoeFlux_3d"
PROGRAM = str(Path(__file__).parents[1] / "benchmark.py")
GOAL = 300
"""Multiplications on RoeFlux_1d; the best published order takes 320."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Measures kernels, rollouts and training on the device that JAX finds."""

    parts: tuple[str, ...] = ()
    """`kernels`, `rollouts`, `training`; all by default."""
    seconds: float = 150.0
    """Time limit of each part."""
    quick: bool = False
    """Small batches and one task: whether it runs, not how fast."""
    out: str | None = None
    """File to write the results to, as JSON."""
    rows: str | None = None
    """File for the rows of one part, a line each; what the run uses for its own processes."""


def kernels(config: Config) -> Rows:
    """Jacobians of a batch: one kernel, XLA's elimination, JAX's modes; against float64."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import veenv
    from veenv.kernel.program import CannotFuseError
    from veenv.measure.timing import SHORTEST, interleaved, near

    for name in KERNELS[:1] if config.quick else KERNELS:
        task = veenv.tasks.get(name)
        few = jax.tree.map(np.float32, near(task.example_args(), [0], 64))
        with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
            wide = jax.tree.map(np.float64, few)
            exact = jax.tree.map(
                np.asarray, jax.jit(jax.vmap(jax.jacrev(task.fun, task.argnums)))(*wide)
            )
        for batch in (256,) if config.quick else (65_536, 1_048_576):
            points = jax.tree.map(jnp.asarray, near(task.example_args(), [0], batch))
            forms = {
                "one kernel": veenv.jacve(task.fun, "reverse", task.argnums, kernel="fused"),
                "jacve by XLA": veenv.jacve(task.fun, "reverse", task.argnums, kernel="xla"),
                "jacfwd": jax.jacfwd(task.fun, task.argnums),
                "jacrev": jax.jacrev(task.fun, task.argnums),
            }
            ready, took = {}, {}
            for form, jacobian in forms.items():
                began = time.perf_counter()
                try:
                    ready[form] = jax.jit(jax.vmap(jacobian)).lower(*points).compile()
                except (CannotFuseError, jax.errors.JaxRuntimeError) as error:
                    yield name, f"{batch:,}", form, type(error).__name__, "", "", ""
                    continue
                took[form] = time.perf_counter() - began
            times = interleaved(ready, tuple(points), 20, shortest=SHORTEST, seconds=5.0)
            faster = min(float(np.median(times[m])) for m in ("jacfwd", "jacrev"))
            for form in ready:
                values = jax.jit(jax.vmap(forms[form]))(*few)
                off = max(
                    float(np.abs(np.asarray(a) - b).max() / max(np.abs(b).max(), 1e-30))
                    for a, b in zip(*map(jax.tree.leaves, (values, exact)), strict=True)
                )
                median = float(np.median(times[form]))
                yield (
                    name,
                    f"{batch:,}",
                    form,
                    f"{median / faster:.3g}",
                    f"{median * 1e3:.4g}",
                    f"{took[form]:.1f}",
                    f"{off:.1e}",
                )


def rollouts(config: Config) -> Rows:
    """Whole random games a second."""
    import jax

    import veenv
    from veenv.env.random_play import random_episodes

    for name in ("RoeFlux_1d",) if config.quick else ("RoeFlux_1d", "Encoder"):
        env = veenv.make(name)
        for games in (64,) if config.quick else (1_024, 16_384):
            play = jax.jit(lambda key, env=env, games=games: random_episodes(env, key, games).cost)
            jax.block_until_ready(play(jax.random.key(0)))
            began, rounds = time.perf_counter(), 0
            while time.perf_counter() - began < (0.5 if config.quick else 5.0):
                jax.block_until_ready(play(jax.random.key(rounds)))
                rounds += 1
            steps = rounds * games * env.max_steps / (time.perf_counter() - began)
            yield name, f"{games:,}", f"{steps:,.0f}", "", "", "", ""


def training(config: Config) -> Rows:
    """PPO with the device's preset on RoeFlux_1d: steps a second, and the time to the goal."""
    import jax

    from agents.config.ppo import PPOConfig
    from agents.config.settings import PRESETS
    from agents.ppo.trainer import Trainer
    from agents.training.curriculum import FixedTasks
    from agents.training.loop import train
    from agents.training.played import Played

    played = Played.named("RoeFlux_1d").tasks
    preset = PRESETS.get(jax.default_backend(), {})
    limit = 5.0 if config.quick else config.seconds / 3
    sizes: dict[str, Any] = {"num_envs": 2, "steps": 2 * 98} if config.quick else preset
    began = time.perf_counter()
    trainer = Trainer(PPOConfig(**sizes), played)
    jax.block_until_ready(trainer.step(trainer.init(), 0.0))
    compiled = time.perf_counter() - began
    curriculum, reached, steps = FixedTasks(trainer), "", 0
    began = time.perf_counter()
    for progress in train(curriculum, state=trainer.init(), time_limit=limit):
        steps = progress.steps
        if not reached and curriculum.best.cost("RoeFlux_1d") <= GOAL:
            reached = f"{time.perf_counter() - began:.1f}"
    rate = steps / (time.perf_counter() - began)
    best = curriculum.best.cost("RoeFlux_1d")
    envs = str(trainer.config.num_envs)
    yield "RoeFlux_1d", envs, f"{rate:,.0f}", f"{best}", reached, f"{compiled:.1f}", ""


PARTS: dict[str, tuple[Callable[[Config], Rows], tuple[str, ...]]] = {
    "kernels": (
        kernels,
        ("task", "points", "form", "to the faster mode", "ms", "compiled in, s", "off by"),
    ),
    "rollouts": (rollouts, ("task", "games", "steps/s", "-", "-", "-", "-")),
    "training": (
        training,
        ("task", "environments", "steps/s", "best", f"seconds to {GOAL}", "compiled in, s", "-"),
    ),
}


def measured(part: str, config: Config) -> Table:
    """The rows of a part, measured in a process that is stopped at the limit of time."""
    columns = PARTS[part][1]
    table = Table(tuple(c for c in columns if c != "-"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        path.touch()
        command = [sys.executable, "-m", "--parts", part, "--rows", str(path)]
        command += ["--seconds", str(config.seconds), *(["--quick"] if config.quick else [])]
        print(f"\n{part}:", flush=True)
        try:
            ended = subprocess.run(command, timeout=config.seconds, check=False).returncode
            why = f"exit code {ended}" if ended else ""
        except subprocess.TimeoutExpired:
            why = f"stopped after {config.seconds:g} s"
        for line in path.read_text(encoding="utf-8").splitlines():
            table.rows.append(tuple(json.loads(line))[: len(table.columns)])
    table.show()
    if why:
        print(f"{part}: {why}; {len(table.rows)} rows were measured")
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures the parts one after another; 1 if one of them left nothing."""
    config = tyro.cli(Config, description=__doc__, args=arguments)
    unknown = set(config.parts) - set(PARTS)
    if unknown:
        sys.exit(f"unknown parts {sorted(unknown)}; there are {', '.join(PARTS)}")
    if config.rows is not None:
        with open(config.rows, "a", encoding="utf-8") as file:
            for row in PARTS[config.parts[0]][0](config):
                file.write(json.dumps(row) + "\n")
                file.flush()
        return 0
    tables = [measured(part, config) for part in config.parts or PARTS]
    if config.out is not None:
        write_result(config.out, *tables)
    return int(not all(table.rows for table in tables))
