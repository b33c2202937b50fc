"""The functions that the engine is timed on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import veenv
from veenv import make_graph
from veenv.graph.graph import CostModel
from veenv.measure.timing import near
from veenv.orders.shipped import best_for

_COST_OF: dict[str, CostModel] = {"best-executed": "executed", "best-operations": "operations"}


@dataclass(frozen=True)
class Case:
    """A function to differentiate.

    Attributes:
      name: its name.
      fun: the function of one point.
      args: a point.
      argnums: the arguments to differentiate by.
    """

    name: str
    fun: Callable[..., Any]
    args: tuple[Any, ...]
    argnums: Any


def lorenz_rollout(x: jax.Array) -> jax.Array:
    """State after 50 Runge-Kutta steps of the Lorenz system; x: [3]."""

    def slope(x: jax.Array) -> jax.Array:
        a, b, c = x
        return jnp.stack([10.0 * (b - a), a * (28.0 - c) - b, a * b - 8.0 / 3.0 * c])

    def step(x: jax.Array, _: None) -> tuple[jax.Array, None]:
        k1 = slope(x)
        k2 = slope(x + 0.005 * k1)
        k3 = slope(x + 0.005 * k2)
        k4 = slope(x + 0.01 * k3)
        return x + 0.01 / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    return jax.lax.scan(step, x, None, length=50)[0]


def banded_residual(x: jax.Array) -> jax.Array:
    """A residual in which each entry depends on three neighbours; x: [n]."""
    left, middle, right = x[:-2], x[1:-1], x[2:]
    inner = jnp.sin(left) * middle + middle * middle * right - jnp.exp(-right * right) * left
    return jnp.concatenate([x[:1] ** 2, inner, x[-1:] * x[-2:-1]])


DEFAULT = (
    "RoeFlux_1d",
    "RoeFlux_3d",
    "RobotArm_6DOF",
    "HumanHeartDipole",
    "PropaneCombustion",
    "mlp",
    "Encoder",
    "lorenz_rollout",
    "banded_residual",
)


def find(name: str) -> Case:
    """A task, `lorenz_rollout` or `banded_residual`."""
    if name == "lorenz_rollout":
        return Case(name, lorenz_rollout, (np.array([1.0, 2.0, 20.0]),), (0,))
    if name == "banded_residual":
        return Case(name, banded_residual, (np.linspace(0.1, 1.0, 1000),), (0,))
    task = veenv.tasks.get(name)
    return Case(task.name, task.fun, tuple(task.example_args()), task.argnums)


def orders_of(case: Case, wanted: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Vertex ids of the wanted orders, the names of equal ones joined.

    Where no order is shipped, `best`, `best-executed` and `best-operations` are the classical order
    with the lowest count, and are named so.
    """
    graph = make_graph(case.fun, case.argnums)(*case.args)
    classical = {
        "forward": graph.forward(),
        "reverse": graph.reverse(),
        "markowitz": graph.markowitz(),
    }
    found: dict[tuple[int, ...], list[str]] = {}
    for name in wanted:
        cost: CostModel = _COST_OF.get(name, "multiplications")
        if name in classical:
            ids = classical[name]
        else:
            try:
                ids = best_for(graph, cost).ids_for(graph)
            except ValueError:
                name = min(classical, key=lambda n: graph.cost(classical[n], cost))
                ids = classical[name]
        names = found.setdefault(ids, [])
        if name not in names:
            names.append(name)
    return {" = ".join(names): ids for ids, names in found.items()}


def points(case: Case, batch: int) -> tuple[Any, ...]:
    """Float32 arguments: `batch` random points near the case's own."""
    args = jax.tree.map(lambda x: np.asarray(x, np.float32), case.args)
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), near(args, [0], batch))
