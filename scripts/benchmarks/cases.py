"""The functions that engine and kernel are timed on, and their orders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import veenv
from scripts.benchmarks.functions.case import Case, Cases, points, runge_kutta
from veenv import make_graph
from veenv.env.rewards import classical_orders
from veenv.graph.graph import CostModel
from veenv.orders.shipped import best_for

_COST_OF: dict[str, CostModel] = {"best-executed": "executed", "best-operations": "operations"}
PUBLISHED = {
    "RoeFlux_1d": 320, "RobotArm_6DOF": 231, "HumanHeartDipole": 148, "PropaneCombustion": 88,
}  # fmt: skip
"""The better of AlphaZero and PPO in Lohoff and Neftci (2024), where the graphs are theirs."""
OWN = Cases()


@OWN.add(np.array([1.0, 2.0, 20.0]), argnums=(0,))
def lorenz_rollout(x: jax.Array) -> jax.Array:
    """State after 50 Runge-Kutta steps of the Lorenz system; x: [3]."""

    def slope(x: jax.Array) -> jax.Array:
        a, b, c = x
        return jnp.stack([10.0 * (b - a), a * (28.0 - c) - b, a * b - 8.0 / 3.0 * c])

    return jax.lax.scan(lambda x, _: (runge_kutta(slope, x, 0.01), None), x, None, length=50)[0]


@OWN.add(np.linspace(0.1, 1.0, 1000), argnums=(0,))
def banded_residual(x: jax.Array) -> jax.Array:
    """A residual in which each entry depends on three neighbours; x: [n]."""
    left, middle, right = x[:-2], x[1:-1], x[2:]
    inner = jnp.sin(left) * middle + middle * middle * right - jnp.exp(-right * right) * left
    return jnp.concatenate([x[:1] ** 2, inner, x[-1:] * x[-2:-1]])


def find(name: str) -> Case:
    """A task, `lorenz_rollout` or `banded_residual`."""
    if name in OWN:
        return OWN[name]
    task = veenv.tasks.get(name)
    return Case(task.name, task.fun, tuple(task.example_args()), task.argnums)


def orders_of(case: Case, wanted: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Vertex ids of the wanted orders, the names of equal ones joined.

    Where no order is shipped, `best`, `best-executed` and `best-operations` are the classical order
    with the lowest count, and are named so.
    """
    graph = make_graph(case.fun, case.argnums)(*case.args)
    classical = {name.lower(): ids for name, ids in classical_orders(graph).items()}
    names_by_order: dict[tuple[int, ...], list[str]] = {}
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
        names = names_by_order.setdefault(ids, [])
        if name not in names:
            names.append(name)
    return {" = ".join(names): ids for ids, names in names_by_order.items()}


def singles(case: Case, batch: int) -> Any:
    """Float32 arguments: `batch` random points near the case's own."""
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), points(case.single().args, batch))
