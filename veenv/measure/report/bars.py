"""Seconds of an order's Jacobian next to those of JAX's modes, as XLA and as one kernel."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from veenv.engine.api import jacve
from veenv.kernel.fusing import fuse
from veenv.kernel.program import CannotFuseError
from veenv.measure.timing import interleaved, near
from veenv.tasks import Task

WAYS = ("this order", "jacfwd", "jacrev")


@dataclass(frozen=True)
class Bar:
    """The time of one way to the Jacobian.

    Attributes:
      way: ``"this order"``, ``"jacfwd"`` or ``"jacrev"``.
      kernel: whether it is one kernel, instead of what XLA makes of it.
      median: seconds of a call.
      low: its 10 % quantile.
      high: its 90 % quantile.
    """

    way: str
    kernel: bool
    median: float
    low: float
    high: float


def times(
    task: Task, ids: Sequence[int], batch: int, rounds: int, seed: int = 0
) -> tuple[tuple[Bar, ...], tuple[str, ...]]:
    """Times all ways interleaved, over a vmapped batch of points in the default precision.

    Args:
      task: the function and its point.
      ids: vertex ids in elimination order.
      batch: number of points.
      rounds: timed calls of each way.
      seed: seed of the points.

    Returns:
      The bars, and a sentence on each way that is missing.
    """
    argnums = (task.argnums,) if isinstance(task.argnums, int) else task.argnums
    points = jax.tree.map(jnp.asarray, near(task.example_args(), [seed], batch))
    compiled: dict[tuple[str, bool], Any] = {}
    missing = []
    for way, jacobian in zip(WAYS, _jacobians(task, ids), strict=True):
        for kernel in (False, True):
            method = fuse(jacobian, lambda args: argnums) if kernel else jacobian
            try:
                compiled[way, kernel] = jax.jit(jax.vmap(method)).lower(*points).compile()
            except CannotFuseError as error:
                missing.append(f"{way} as one kernel: {error}")
            except TypeError as error:
                if way != "jacfwd":  # a function with a reverse rule has no forward mode
                    raise
                missing.append(f"{way}: {error}")
    seconds = interleaved(compiled, points, rounds, longest=4.0)
    bars = []
    for (way, kernel), found in seconds.items():
        low, median, high = (float(q) for q in np.quantile(found, [0.1, 0.5, 0.9]))
        bars.append(Bar(way, kernel, median, low, high))
    return tuple(bars), tuple(dict.fromkeys(missing))


def _jacobians(task: Task, ids: Sequence[int]) -> tuple[Callable[..., Any], ...]:
    """The ways, in the order of `WAYS`."""
    return (
        jacve(task.fun, tuple(ids), task.argnums, kernel="xla"),
        jax.jacfwd(task.fun, task.argnums),
        jax.jacrev(task.fun, task.argnums),
    )


def machine() -> str:
    """The machine and the versions, as one line."""
    kinds = ", ".join(sorted({d.device_kind for d in jax.devices()}))
    return (
        f"{os.cpu_count()} CPU cores ({platform.machine()}), JAX on {kinds}, "
        f"Python {platform.python_version()}, jax {jax.__version__}"
    )
