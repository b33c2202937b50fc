"""The fastest of some orders, by the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf
from threading import Event
from typing import Any

import jax

from veenv.graph.program import plain_argnums
from veenv.search.background import Background
from veenv.search.tuning.contest import Contest, Entry
from veenv.search.tuning.forms import Form


def fastest(
    fun: Callable[..., Any],
    args: Sequence[Any],
    argnums: int | Sequence[int],
    orders: Sequence[tuple[int, ...]],
    seconds: float | None = None,
) -> tuple[int, ...]:
    """The order whose compiled Jacobian runs fastest at `args`, of several timed in turn.

    Args:
      fun: a JAX-traceable function.
      args: its arguments, arrays with values.
      argnums: which of them to differentiate by.
      orders: the candidates, vertex ids each, best guess first; at least one.
      seconds: when to return: of the candidates that are compiled and timed by then the fastest,
        the best guess if there is none; None to time all.

    Returns:
      One of `orders`.

    Example:
      >>> import jax.numpy as jnp
      >>> f = lambda x: jnp.sin(jnp.exp(x)) * x
      >>> fastest(f, (1.0,), 0, [(1, 2), (2, 1)]) in [(1, 2), (2, 1)]
      True
    """
    end = inf if seconds is None else time.perf_counter() + seconds
    left, wanted = Event(), plain_argnums(argnums)

    def prepare(form: Form) -> Entry:
        run = jax.jit(form.jacobian(fun, wanted, has_aux=False)).lower(*args).compile()
        return Entry(lambda: jax.block_until_ready(run(*args)))

    contest = Contest(prepare, end, left.is_set)
    forms = [Form("jacve", ids=ids, kernel="auto") for ids in orders]
    work = Background(lambda: contest.run(forms))
    try:
        while not work.wait(min(0.1, end - time.perf_counter())) and time.perf_counter() < end:
            pass
    finally:
        left.set()
    winner = contest.verdict()
    if winner is None and len(contest.errors) == len(orders):
        raise next(iter(contest.errors.values()))
    return orders[0] if winner is None else winner.form.ids
