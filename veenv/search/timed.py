"""The fastest of some orders, by the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

import jax
import numpy as np

from veenv.engine.api import jacve
from veenv.measure.timing import rounds_interleaved
from veenv.search.background import Background

_COMPILING = 0.7
"""Share of the time for the candidates after which no more of them are compiled."""


def fastest(
    fun: Callable[..., Any],
    args: Sequence[Any],
    argnums: int | Sequence[int],
    orders: Sequence[tuple[int, ...]],
    repeats: int = 20,
    seconds: float | None = None,
) -> tuple[int, ...]:
    """The order whose compiled Jacobian runs fastest at `args` (median of interleaved runs).

    Args:
      fun: a JAX-traceable function.
      args: its arguments, arrays with values.
      argnums: which of them to differentiate by.
      orders: the candidates, vertex ids each, best guess first; at least one.
      repeats: timed runs of each.
      seconds: when to return: of the candidates that are compiled and timed by then the fastest,
        the best guess if there is none.

    Returns:
      One of `orders`.

    Example:
      >>> import jax.numpy as jnp
      >>> f = lambda x: jnp.sin(jnp.exp(x)) * x
      >>> fastest(f, (1.0,), 0, [(1, 2), (2, 1)], repeats=3) in [(1, 2), (2, 1)]
      True
    """
    began, left = time.perf_counter(), Event()
    timed: dict[tuple[int, ...], list[float]] = {}

    def is_late(share: float) -> bool:
        spent = time.perf_counter() - began
        return left.is_set() or (seconds is not None and spent > share * seconds)

    def contest() -> None:
        programs = {}
        for ids in orders:
            if is_late(_COMPILING):
                break
            programs[ids] = jax.jit(jacve(fun, ids, argnums)).lower(*args).compile()
        for found in rounds_interleaved(programs, args, repeats):
            if is_late(1.0):
                return
            timed.update({ids: list(times) for ids, times in found.items() if times})

    work = Background(contest)
    try:
        while not work.wait(0.1 if seconds is None else min(0.1, seconds)) and not is_late(1.0):
            pass
    finally:
        left.set()
    if work.wait(0.0):
        work.result()
    medians = {ids: float(np.median(times)) for ids, times in list(timed.items())}
    return min(medians, key=medians.__getitem__) if medians else orders[0]
