"""Verifies an order of any function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from veenv.graph.linearisation import make_graph
from veenv.measure.validation import validate
from veenv.orders.order import Order
from veenv.tasks import Task
from veenv.testing.promises import require


def check_order(
    order: Order | Iterable[int],
    fun: Callable[..., Any] | Task,
    *args: Any,
    argnums: int | tuple[int, ...] = 0,
    points: int = 3,
) -> None:
    """Raises AssertionError unless an order's Jacobian is JAX's and its four counts agree.

    Args:
      order: the order, or vertex ids.
      fun: the function, or a task, which needs no arguments.
      *args: the point at which it is differentiated.
      argnums: arguments to differentiate by; a task has its own.
      points: number of points, the given one and random ones near it.

    Raises:
      AssertionError: saying what is wrong: values that differ from `jax.jacrev` or `jax.jacfwd` in
        float64, or counts of record, environment, engine and emitted program that do not agree.
      ValueError: it is no order of the function's graph.

    Examples:
      >>> import jax.numpy as jnp
      >>> check_order((2, 1), lambda x: jnp.sin(jnp.exp(x)) * x, 0.5, points=1)  # no complaint
    """
    task = fun if isinstance(fun, Task) else Task("f", fun, lambda: args, argnums, "", "")
    if not isinstance(order, Order):
        graph = make_graph(task.fun, task.argnums)(*task.example_args())
        order = Order.from_graph(graph, order, task.name)
    report = validate(order, task, points=points, rounds=0)
    require(report.passed, "; ".join(report.problems))
