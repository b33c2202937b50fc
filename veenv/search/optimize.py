"""`optimize`: a search for the order of one function, as one call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import numpy as np

from veenv.engine.api import jacve
from veenv.graph.graph import CostModel
from veenv.graph.linearise import make_graph
from veenv.orders.order import Order


def optimize(
    fun: Callable[..., Any],
    *args: Any,
    argnums: int | Sequence[int] = 0,
    budget: str | int = "10s",
    method: str = "auto",
    cost: Literal["multiplications", "executed", "runtime"] = "multiplications",
    seed: int = 0,
    name: str = "",
) -> Order:
    """Searches for a cheap elimination order of a function.

    Args:
      fun: a JAX-traceable function.
      *args: arguments to trace it at: arrays; for ``cost="runtime"`` with values to run it on.
      argnums: which of them to differentiate by.
      budget: seconds (``"10s"``, ``"2m"``) or a number of evaluations.
      method: a method of `veenv.search.search`.
      cost: the count to minimise, or ``"runtime"``: of the orders that are cheap under either
        count and the classical ones, the one whose compiled Jacobian runs fastest.
      seed: seed of the search.
      name: name to give the order; the function's own by default.

    Returns:
      The order, with its counts.

    Raises:
      ValueError: if the method, budget, cost or seed is not valid.

    Example:
      >>> import jax.numpy as jnp
      >>> order = optimize(lambda x: jnp.sin(x) * jnp.cos(x) * x, 1.0, budget=100)
      >>> order.counts["multiplications"]
      3
    """
    from veenv.search import search

    graph = make_graph(fun, argnums)(*args)
    name = name or getattr(fun, "__name__", "")
    models: tuple[CostModel, ...] = ("multiplications", "executed")
    if cost in models:
        found = search(graph, method, cost=cost, budget=budget, seed=seed)
        return Order.from_graph(graph, found.order, name, f"{method}, budget {budget}, seed {seed}")
    if cost != "runtime":
        raise ValueError(f"cost must be multiplications, executed or runtime, got {cost!r}")
    cheap = {search(graph, method, cost=m, budget=budget, seed=seed).order for m in models}
    classical = [graph.forward(), graph.reverse(), graph.markowitz()]
    orders = [*sorted(cheap), *map(graph.legal, classical)]
    ids = fastest(fun, args, argnums, list(dict.fromkeys(orders)))
    return Order.from_graph(graph, ids, name, f"runtime, {method}, budget {budget}, seed {seed}")


def fastest(
    fun: Callable[..., Any],
    args: Sequence[Any],
    argnums: int | Sequence[int],
    orders: Sequence[tuple[int, ...]],
    repeats: int = 20,
) -> tuple[int, ...]:
    """The order whose compiled Jacobian runs fastest at `args` (median of interleaved runs).

    Args:
      fun: a JAX-traceable function.
      args: its arguments, arrays with values.
      argnums: which of them to differentiate by.
      orders: the candidates, vertex ids each; at least one.
      repeats: timed runs of each.

    Returns:
      One of `orders`.

    Example:
      >>> import jax.numpy as jnp
      >>> f = lambda x: jnp.sin(jnp.exp(x)) * x
      >>> fastest(f, (1.0,), 0, [(1, 2), (2, 1)], repeats=3) in [(1, 2), (2, 1)]
      True
    """
    programs = [jax.jit(jacve(fun, ids, argnums)).lower(*args).compile() for ids in orders]
    times: list[list[float]] = [[] for _ in orders]
    for _ in range(repeats):
        for program, seconds in zip(programs, times, strict=True):
            start = time.perf_counter()
            jax.block_until_ready(program(*args))
            seconds.append(time.perf_counter() - start)
    return orders[int(np.argmin([np.median(t) for t in times]))]
