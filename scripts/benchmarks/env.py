"""Speed of the environment, and how it grows with environments and with the size of a graph."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from scripts.benchmarks.machine import machine
from veenv.env import VertexEnv
from veenv.env.factory import make
from veenv.env.random_play import random_episodes
from veenv.graph.graph import CostModel
from veenv.graph.linearisation import make_graph
from veenv.tasks import random_function

Run = Callable[[jax.Array, int], Any]
Clock = Literal["wall", "cpu"]
CLOCKS: dict[Clock, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
SHAPES = {"scalars": False, "arrays": True}
"""Kinds of random functions: whether they have arrays."""


def env(
    task: tuple[str, ...] = ("RoeFlux_1d", "Encoder"),
    num_envs: tuple[int, ...] = (1, 16, 256, 4096),
    cost: CostModel = "multiplications",
    seconds: float = 2.0,
    repeats: int = 3,
    clock: Clock = "wall",
) -> None:
    """Steps per second under uniformly random legal actions, as a table in Markdown.

    Whole episodes run as one compiled program, the random numbers included; observations are not
    built. The best of several repeats counts. The last column is the growth of the time of a step
    over the growth of the number of environments since the row above: at most 1 is at most linear.

    Args:
        task: tasks to play.
        num_envs: numbers of environments that run side by side.
        cost: the cost model.
        seconds: length of a measurement, about.
        repeats: measurements, of which the fastest counts.
        clock: wall, or CPU time of all threads together, for a machine that is busy.
    """
    print(machine() + "\n")
    print("| task | environments | steps/s | µs a step of all | growth / linear |")
    print("| --- | --- | --- | --- | --- |")
    for name in task:
        environment = make(name, cost=cost)
        before = None
        for n in num_envs:
            step = step_seconds(environment, n, seconds, repeats, clock)
            growth = "" if before is None else f"{step / before[1] * before[0] / n:.2f}"
            before = n, step
            print(
                f"| {name} | {n:,} | {n / step:,.0f} | {1e6 * step:,.1f} | {growth} |", flush=True
            )


def env_scaling(
    sizes: tuple[int, ...] = (50, 100, 200, 500, 1000, 2000),
    num_envs: int = 16,
    seconds: float = 1.0,
    repeats: int = 2,
    clock: Clock = "wall",
    out: Path = Path("docs/env_scaling.svg"),
) -> None:
    """Time of a step on random functions of growing size, as a table and a plot.

    Args:
        sizes: numbers of equations of the random functions, of scalars and of arrays.
        num_envs: environments that run side by side.
        seconds: length of a measurement, about.
        repeats: measurements, of which the fastest counts.
        clock: wall, or CPU time of all threads together, for a machine that is busy.
        out: file of the plot.
    """
    print(machine() + "\n")
    columns = [f"{kind}: vertices | µs a step of one" for kind in SHAPES]
    print(f"| equations | {' | '.join(columns)} |")
    print("| --- | --- | --- | --- | --- |")
    found: dict[str, list[tuple[int, float]]] = {kind: [] for kind in SHAPES}
    for size in sizes:
        for kind, arrays in SHAPES.items():
            fun, point = random_function(0, 8, size, 8, arrays=arrays)
            graph = make_graph(fun, tuple(range(len(point))))(*point)
            step = step_seconds(VertexEnv(graph), num_envs, seconds, repeats, clock)
            found[kind].append((len(graph.eliminable), 1e6 * step / num_envs))
        cells = " | ".join(f"{found[k][-1][0]:,} | {found[k][-1][1]:,.2f}" for k in SHAPES)
        print(f"| {size:,} | {cells} |", flush=True)
    _plot(found, num_envs, clock, out)
    print(f"\nplot: {out}")


def step_seconds(
    environment: VertexEnv, num_envs: int, seconds: float, repeats: int, clock: Clock
) -> float:
    """Seconds of one step of all environments: the fastest of several measurements."""
    run = _episodes(environment, num_envs)
    _timed(run, 0, 1, clock)  # compiles
    once = _timed(run, 0, 1, clock)
    episodes = max(1, round(seconds / max(once, 1e-6)))
    fastest = min(_timed(run, seed, episodes, clock) for seed in range(1, repeats + 1))
    return fastest / (episodes * environment.max_steps)


def _episodes(environment: VertexEnv, num_envs: int) -> Run:
    """So many batches of random episodes, as one program; the sum of their mean costs."""

    def one(i: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        key, total = carry
        states = random_episodes(environment, jax.random.fold_in(key, i), num_envs)
        return key, total + states.cost.astype(jnp.float32).mean()

    def run(key: jax.Array, episodes: int) -> jax.Array:
        return jax.lax.fori_loop(0, episodes, one, (key, jnp.zeros(())))[1]

    return jax.jit(run)


def _timed(run: Run, seed: int, episodes: int, clock: Clock) -> float:
    start = CLOCKS[clock]()
    jax.block_until_ready(run(jax.random.key(seed), episodes))
    return CLOCKS[clock]() - start


def _plot(
    found: dict[str, list[tuple[int, float]]], num_envs: int, clock: Clock, out: Path
) -> None:
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    for kind, marker in zip(SHAPES, "os", strict=True):
        vertices, micros = zip(*found[kind], strict=True)
        axes.loglog(vertices, micros, marker=marker, label=f"random functions of {kind}")
    ends = np.array([found["scalars"][0][0], found["scalars"][-1][0]])
    start = found["scalars"][0][1]
    axes.loglog(ends, start * ends / ends[0], color="0.6", ls="--", lw=1, label="linear")
    axes.set_xlabel("vertices to eliminate")
    axes.set_ylabel("µs a step of one environment")
    axes.set_title(f"Random play, {num_envs} environments side by side ({clock} time)")
    axes.grid(which="both", lw=0.3)
    axes.legend()
    figure.savefig(out, metadata={"Date": None})
