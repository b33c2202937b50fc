"""The cheapest known order of every built-in task, shipped with the package.

The files lie in ``veenv/orders/data``; ``scripts/data/refresh_orders.py`` writes them.  They are
found by the fingerprint of the graph, so that any function with a task's graph gets its order.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

from veenv.graph.graph import CostModel, Graph, check_cost_model
from veenv.orders import files as order_files
from veenv.orders.order import Order, fingerprint


@lru_cache(maxsize=1)
def shipped_orders() -> tuple[Order, ...]:
    """Returns the shipped orders, sorted by file name; they are read at the first call.

    A task has one for each cost model (one file where the same order is best under both) and
    graph (two JAX versions may trace a function differently).

    Examples:
      >>> sorted({order.name for order in shipped_orders()})[:3]
      ['ALIF', 'BlackScholes', 'BlackScholes_Jacobian']
    """
    folder = resources.files("veenv.orders") / "data"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".json")), key=lambda f: f.name)
    return tuple(Order.from_record(order_files.parse_record(file.read_bytes())) for file in files)


def best_for(graph: Graph, cost: CostModel = "multiplications") -> Order:
    """Returns the cheapest shipped order of a graph.

    Args:
      graph: the graph.
      cost: the cost model under which it is to be cheap.

    Returns:
      The order.

    Raises:
      ValueError: no shipped order is for this graph, or `cost` is not a cost model.

    Examples:
      >>> from veenv import tasks
      >>> from veenv.graph.linearisation import make_graph
      >>> task = tasks.get("RobotArm_6DOF")
      >>> graph = make_graph(task.fun, task.argnums)(*task.example_args())
      >>> best_for(graph, "multiplications").counts["multiplications"]
      221
    """
    check_cost_model(cost)
    key = fingerprint(graph)
    fitting = [order for order in shipped_orders() if order.fingerprint == key]
    if not fitting:
        raise ValueError(
            f"no order is shipped for this graph ({len(graph.eliminable)} eliminable vertices, "
            f"{len(graph.edges)} edges); {_nearest(graph)}search one, for example with "
            "veenv-search; see errors.html#no-order-is-shipped"
        )
    return min((order.counted(graph, cost) for order in fitting), key=lambda o: o.counts[cost])


def proved_bound(graph: Graph, cost: CostModel = "multiplications") -> int:
    """Returns a proved lower bound on the cost of any order of a graph.

    Orders of others state bounds of their own (`Order.lower_bounds`), which nothing has checked.

    Args:
      graph: the graph.
      cost: the cost model.

    Returns:
      The bound; 0 where none is known.

    Examples:
      >>> from veenv import make_graph, tasks
      >>> task = tasks.get("HumanHeartDipole")
      >>> proved_bound(make_graph(task.fun, task.argnums)(*task.example_args()))
      148
    """
    key = fingerprint(graph)
    fitting = (order for order in shipped_orders() if order.fingerprint == key)
    return max((order.lower_bounds.get(cost, 0) for order in fitting), default=0)


def _nearest(graph: Graph) -> str:
    """Describes shipped orders for graphs of nearly this size, perhaps traced by another JAX."""
    near = {
        f"{order.name} under jax {order.jax_version}: {len(order.ids)} and {order.num_edges}"
        for order in shipped_orders()
        if abs(len(order.ids) - len(graph.eliminable)) <= 0.05 * len(order.ids)
        and abs(order.num_edges - len(graph.edges)) <= 0.05 * order.num_edges
    }
    return f"of about that size are {'; '.join(sorted(near)[:3])}; " if near else ""
