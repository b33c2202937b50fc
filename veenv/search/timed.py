"""The fastest of some orders, by the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

import jax
import numpy as np

from veenv.engine.api import jacve
from veenv.measure.timing import Rounds
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
    began, left, timed = time.perf_counter(), Event(), Rounds[tuple[int, ...]]()

    def is_late(share: float = 1.0) -> bool:
        spent = time.perf_counter() - began
        return left.is_set() or (seconds is not None and spent > share * seconds)

    def contest() -> None:
        for ids in orders:
            if is_late(_COMPILING):
                break
            run = jax.jit(jacve(fun, ids, argnums)).lower(*args).compile()
            timed.enter(ids, lambda run=run: jax.block_until_ready(run(*args)))
        for _ in range(repeats):
            if not timed.run(list(timed.seconds), is_late):
                return

    work = Background(contest)
    try:
        while not work.wait(0.1 if seconds is None else min(0.1, seconds)) and not is_late():
            pass
    finally:
        left.set()
    if work.wait(0.0):
        work.result()
    found = {ids: [*times.copy().values()] for ids, times in timed.seconds.copy().items()}
    medians = {ids: float(np.median(times)) for ids, times in found.items() if times}
    return min(medians, key=medians.__getitem__) if medians else orders[0]
