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

    After so many seconds it is the fastest of those that are compiled and timed by then, the first
    one if there is none.
    """
    end = inf if seconds is None else time.perf_counter() + seconds
    left, wanted = Event(), plain_argnums(argnums)

    def prepare(form: Form) -> Entry:
        run = jax.jit(form.jacobian(fun, wanted, has_aux=False)).lower(*args).compile()
        return Entry(lambda: run(*args))

    contest = Contest(prepare, end, left.is_set)
    forms = [Form("jacve", ids=ids, kernel="auto") for ids in orders]
    work = Background(lambda: contest.run(forms))
    try:
        work.wait(end - time.perf_counter())
    finally:
        left.set()
    winner = contest.verdict()
    if winner is None and len(contest.errors) == len(orders):
        raise next(iter(contest.errors.values()))
    return orders[0] if winner is None else winner.form.ids
