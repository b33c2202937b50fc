"""Seconds of an order's Jacobian next to those of JAX's modes, as XLA and as one kernel."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from typing import Any

import jax

from veenv.engine.api import jacve
from veenv.kernel.fusing import fuse
from veenv.measure.timing import Timing, timed
from veenv.tasks import Task

OURS = "this order"
KERNEL = "one kernel"


def times(
    task: Task, ids: Sequence[int], batch: int, rounds: int, seed: int = 0
) -> tuple[tuple[Timing, ...], tuple[str, ...]]:
    """Times all ways interleaved, over a vmapped batch of points in the default precision.

    The methods are named ``"jacfwd"`` or ``"jacfwd, one kernel"``; a sentence says why one is
    missing.
    """
    methods: dict[str, Callable[..., Any]] = {}
    for way, jacobian in {
        OURS: jacve(task.fun, tuple(ids), task.argnums, kernel="xla"),
        "jacfwd": jax.jacfwd(task.fun, task.argnums),
        "jacrev": jax.jacrev(task.fun, task.argnums),
    }.items():
        methods |= {way: jacobian, f"{way}, {KERNEL}": fuse(jacobian)}
    bars, missing = timed(methods, task.example_args(), batch, rounds, seed, longest=4.0)
    return bars, tuple(f"{way}: not timed, {reason}" for way, reason in missing.items())


def machine() -> str:
    """The machine and the versions, as one line."""
    kinds = ", ".join(sorted({d.device_kind for d in jax.devices()}))
    return (
        f"{os.cpu_count()} CPU cores ({platform.machine()}), JAX on {kinds}, "
        f"Python {platform.python_version()}, jax {jax.__version__}"
    )
