"""Local search from an agent's order, reported apart from what the agent found."""

from __future__ import annotations

from collections.abc import Sequence

from veenv.graph.graph import CostModel, Graph


def polish(
    graph: Graph,
    order: Sequence[int],
    budget: str | int,
    cost: CostModel = "multiplications",
    seed: int = 0,
) -> tuple[int, ...]:
    """Anneals from an order, which is the only one that the search begins with.

    Args:
      graph: the graph.
      order: vertex ids.
      budget: seconds (``"10s"``) or a number of evaluations.
      cost: the cost model.
      seed: of the search.

    Returns:
      The cheapest order seen, the given one included.

    Raises:
      ValueError: the budget is not valid, or the order not one of the graph.

    Example:
      >>> import jax.numpy as jnp
      >>> from veenv import make_graph
      >>> graph = make_graph(lambda x: (jnp.sin(x), jnp.cos(x) * jnp.sin(x)))(1.0)
      >>> polished = polish(graph, graph.forward(), 100)
      >>> graph.cost(polished) <= graph.cost(graph.forward())
      True
    """
    from veenv.search import search  # numba takes a second to import

    return search(graph, "anneal", cost=cost, budget=budget, seed=seed, start=order).order
