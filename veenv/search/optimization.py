"""`optimize`: searches for the order of one function, as one call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from veenv.search.budget import Budget

if TYPE_CHECKING:
    from veenv.graph.graph import CostModel, Graph
    from veenv.orders.order import Order
    from veenv.search.result import SearchResult

_LEAST = 0.01  # seconds of a search whose time is over before it begins


def optimize(
    fun: Callable[..., Any] | str,
    *args: Any,
    argnums: int | Sequence[int] = 0,
    budget: str | int = "10s",
    method: str = "auto",
    cost: CostModel = "multiplications",
    seed: int = 0,
    name: str = "",
) -> Order:
    """Searches for a cheap elimination order of a function.

    Args:
      fun: a JAX-traceable function, or the name of a task, which has arguments of its own.
      *args: arguments to trace it at.
      argnums: which of them to differentiate by.
      budget: seconds (``"10s"``, ``"2m"``) from call to return, or a number of evaluations.
      method: a method of `veenv.search.search`.
      cost: the count to minimise; what runs fastest is found by `veenv.tune`.
      seed: seed of the search.
      name: name to give the order; the function's own by default.

    Returns:
      The order, with its counts.

    Raises:
      ValueError: if the method, budget, cost or seed is not valid.

    Examples:
      >>> import jax.numpy as jnp
      >>> order = optimize(lambda x: jnp.sin(x) * jnp.cos(x) * x, 1.0, budget=100)
      >>> order.counts["multiplications"]
      3
    """
    began = time.perf_counter()
    from veenv.graph.graph import check_cost_model

    check_cost_model(cost)
    limit = Budget.parse(budget)
    # What these import (the engine, numba) takes a second the first time, which the budget pays.
    from veenv import tasks
    from veenv.graph.linearisation import make_graph
    from veenv.orders.order import Order
    from veenv.search.api import search

    if isinstance(fun, str):
        if args or argnums != 0:
            raise ValueError(f"{fun!r} takes neither arguments nor argnums of its own")
        task = tasks.get(fun)
        fun, args, argnums, name = task.fun, task.example_args(), task.argnums, name or task.name
    graph = make_graph(fun, argnums)(*args)
    name = name or getattr(fun, "__name__", "")
    if limit.seconds is not None:
        left = began + limit.seconds - _seconds_to_finish(graph) - time.perf_counter()
        limit = Budget(max(left, _LEAST))
    result = search(graph, method, cost=cost, budget=limit, seed=seed)
    return Order.from_graph(graph, result.order, name, _found_by(result, budget))


def _seconds_to_finish(graph: Graph) -> float:
    """Estimates the seconds of making an `Order` of a graph, from a part of it."""
    began = time.perf_counter()
    graph.cost(graph.reverse())
    return 5.0 * (time.perf_counter() - began)


def _found_by(result: SearchResult, budget: str | int) -> str:
    """Returns the text of an order's record on how it was found."""
    if result.ready:
        return f"{result.method}, budget {budget}, seed {result.seed}"
    return f"hill climbing, as {result.method} was not ready within {budget}, seed {result.seed}"
