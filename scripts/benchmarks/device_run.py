"""A prepared run on a real accelerator: values, times of kernels, rollouts, training.

Each part is a process of its own with a limit of time, and a row is written as soon as it is known:
a machine that is lent for a short time leaves what was measured.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

import veenv
from scripts.benchmarks.cases import find
from scripts.benchmarks.learning import course_of
from scripts.benchmarks.play import How, episodes, rates
from scripts.benchmarks.programs import MODES, Timings, compiled, difference
from scripts.benchmarks.tables import Table
from veenv.agents.config.ppo import PPOConfig
from veenv.agents.config.settings import PRESETS
from veenv.agents.ppo.trainer import Trainer
from veenv.agents.training.inputs import Played
from veenv.kernel.scalar_program import CannotFuseError

KERNELS = "RoeFlux_1d", "RobotArm_6DOF", "DoublePendulum_RK4", "RoeFlux_3d"
PROGRAM = str(Path(__file__).parents[1] / "benchmark.py")
GOAL = 300
"""Multiplications on RoeFlux_1d; the best published order takes 320."""


def device_run(
    parts: tuple[str, ...] = (),
    seconds: float = 150.0,
    small: bool = False,
    here: bool = False,
    folder: Path = Path("benchmark-results"),
) -> Iterator[Table]:
    """Measures kernels, rollouts and training on the device that JAX finds.

    Args:
        parts: `kernels`, `rollouts`, `training`; all by default.
        seconds: time limit of each part.
        small: small batches and one task: whether it runs, not how fast.
        here: in this process, without a limit; what the run uses for its own processes.
        folder: where each part has a file of its rows.

    Raises:
        ValueError: there is no such part, or one of them left nothing.
    """
    unknown = set(parts) - set(PARTS)
    if unknown:
        raise ValueError(f"unknown parts {sorted(unknown)}; there are {', '.join(PARTS)}")
    if here:
        for part in parts:
            yield (table := Table(*PARTS[part][1]))
            for row in PARTS[part][0](seconds, small):
                table.add(*row)
        return
    found = {}
    for part in parts or PARTS:  # before this process takes the device
        file = folder / f"device-run-{part}.json"
        file.unlink(missing_ok=True)
        command = [sys.executable, PROGRAM, "device-run", f"--parts={part}", f"--out={file}"]
        command += ["--here", f"--seconds={seconds}", *["--small"] * small]
        try:
            ended = subprocess.run(command, timeout=seconds, check=False).returncode
            why = f"exit code {ended}" if ended else ""
        except subprocess.TimeoutExpired:
            why = f"stopped after {seconds:g} s"
        known = json.loads(file.read_text(encoding="utf-8"))["tables"] if file.exists() else []
        found[part] = known[0]["rows"] if known else []
        if why:
            print(f"{part}: {why}; {len(found[part])} rows were measured")
    for part, rows in found.items():
        if not rows:
            raise ValueError(f"{part}: nothing was measured")
        yield (table := Table(*PARTS[part][1]))
        for row in rows:
            table.add(*row)


def kernels(seconds: float, small: bool) -> Iterator[tuple[Any, ...]]:
    """Jacobians of a batch: one kernel, XLA's elimination, JAX's modes; against float64."""
    del seconds
    for name in KERNELS[:1] if small else KERNELS:
        case = find(name)
        fun, argnums = case.fun, case.argnums
        few = jax.tree.map(np.float32, case.points(64))
        with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
            wide = jax.tree.map(np.float64, few)
            exact = jax.tree.map(np.asarray, jax.jit(jax.vmap(jax.jacrev(fun, argnums)))(*wide))
        for batch in (256,) if small else (65_536, 1_048_576):
            points = case.points(batch)
            forms = {
                "one kernel": veenv.jacve(fun, "reverse", argnums, kernel="fused"),
                "jacve by XLA": veenv.jacve(fun, "reverse", argnums, kernel="xla"),
            } | {mode: make(fun, argnums) for mode, make in MODES.items()}
            forms = {form: jax.vmap(jacobian) for form, jacobian in forms.items()}
            ready = {}
            for form, jacobian in forms.items():
                try:
                    ready |= compiled({form: jacobian}, points)
                except (CannotFuseError, jax.errors.JaxRuntimeError) as error:
                    yield name, batch, form, type(error).__name__, "", "", ""
            timed = Timings(ready, points, 5.0, 20)
            faster = timed.seconds(timed.mode)
            for form, program in ready.items():
                off = difference(jax.jit(forms[form])(*few), exact)
                took, ms = f"{program.compile:.1f}", f"{timed.ms(form):.4g}"
                yield name, batch, form, timed.seconds(form) / faster, ms, took, f"{off:.1e}"


def rollouts(seconds: float, small: bool) -> Iterator[tuple[Any, ...]]:
    """Whole random games a second."""
    del seconds
    for name in ("RoeFlux_1d",) if small else ("RoeFlux_1d", "Encoder"):
        for games in (64,) if small else (1_024, 16_384):
            turns = {"": episodes(veenv.make(name), games)}
            yield name, games, rates(turns, How(0.5 if small else 5.0, 1))[""]


def training(seconds: float, small: bool) -> Iterator[tuple[Any, ...]]:
    """PPO with the device's preset on RoeFlux_1d: steps a second, and the time to the goal."""
    preset = PRESETS.get(jax.default_backend(), {})
    sizes: dict[str, Any] = {"num_envs": 2, "steps": 2 * 98} if small else preset
    began = time.perf_counter()
    trainer = Trainer(PPOConfig(**sizes), Played.named("RoeFlux_1d").tasks)
    jax.block_until_ready(trainer.step(trainer.init(), 0.0))
    took = f"{time.perf_counter() - began:.1f}"
    course = course_of(trainer, 0, 5.0 if small else seconds / 3)
    reached = next((f"{p.seconds:.1f}" for p in course if p.best <= GOAL), "")
    rate = course[-1].steps / course[-1].seconds
    yield "RoeFlux_1d", trainer.config.num_envs, rate, course[-1].best, reached, took


Part = Callable[[float, bool], Iterator[tuple[Any, ...]]]
PARTS: dict[str, tuple[Part, tuple[str, ...]]] = {
    "kernels": (kernels, ("task", "points", "form", "to the faster mode", "ms", "compiled in, s",
                          "off by")),
    "rollouts": (rollouts, ("task", "games", "steps/s")),
    "training": (training, ("task", "environments", "steps/s", "best", f"seconds to {GOAL}",
                            "compiled in, s")),
}  # fmt: skip
