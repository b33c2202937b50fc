"""The cheapest shipped order of a built-in task, as an `Order`, under a cost model."""

from __future__ import annotations

from veenv import tasks
from veenv.graph.graph import CostModel
from veenv.graph.linearisation import make_graph
from veenv.orders.order import Order
from veenv.orders.shipped import best_for


def best_order(name: str, cost: CostModel = "multiplications") -> Order:
    """Returns the cheapest shipped `Order` of a built-in task: its ids, counts and finder.

    Args:
      name: name of the task, as `veenv.tasks.get` takes it.
      cost: the cost model under which it is to be cheap.

    Returns:
      The order.

    Raises:
      ValueError: there is no such task, or no order of it is shipped.

    Examples:
      >>> best_order("RoeFlux_1d").counts["multiplications"] <= 320
      True
    """
    task = tasks.get(name)
    graph = make_graph(task.fun, task.argnums)(*task.example_args())
    try:
        return best_for(graph, cost)
    except ValueError as error:
        raise ValueError(f"task {task.name!r}: {error}") from None
