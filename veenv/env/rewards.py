"""Rewards from multiplications: shaping by a reference order, and one scale for all tasks.

Both are data in the params, so that each task of a distribution has its own, and neither changes
which orders are best.  With c_t multiplications in step t, the reward of a legal step is

    r_t = (ref(v_t) - c_t) / scale,

where ref(v) is what eliminating v costs in the reference order (0 without shaping).  That is
potential-based shaping (Ng, Harada and Russell, 1999, undiscounted) with the potential

    Φ(s) = -Σ ref(v) over the vertices v that s has left,   Φ = 0 after the end,

so that every episode returns (C_ref - C) / scale: the unshaped return plus the constant C_ref, the
cost of the reference order, over the scale.  An illegal action ends the episode, so its shaped
reward takes the whole remaining potential, (Σ ref(v) over what is left - worst_total) / scale, and
the episode's return is again the unshaped one plus C_ref, over the scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from veenv.env.counts import Count
from veenv.env.encode import EnvParams
from veenv.graph.graph import CostModel, Graph
from veenv.orders.order import Order
from veenv.orders.resolve import resolve_order

Shaping: TypeAlias = str | Order | Sequence[int] | None
"""The reference order: a name in `REFERENCES`, an `Order`, vertex ids, or None: no shaping."""

REFERENCES = ("forward", "reverse", "markowitz", "classical")
"""Names of reference orders; "classical" is the cheapest of the other three."""


def check_shaping(shaping: Shaping) -> Shaping:
    """Checks and returns the shaping.

    Raises:
      ValueError: if no reference order has the name.
    """
    if isinstance(shaping, str) and shaping not in REFERENCES:
        raise ValueError(
            f"shaping must be one of {', '.join(REFERENCES)}, an Order, a sequence of vertex ids "
            f"or None, got {shaping!r}"
        )
    return shaping


def reference_costs(
    graph: Graph, cost: CostModel, shaping: str | Order | Sequence[int]
) -> Int[np.ndarray, " V"]:
    """Returns each eliminable vertex's cost in the reference order, by ascending id: int64 [V].

    Raises:
      ValueError: if the ids or the record are no order of the graph.
    """
    if shaping == "classical":
        order = min(classical_orders(graph).values(), key=lambda order: graph.cost(order, cost))
    elif isinstance(shaping, str):
        order = graph.legal(getattr(graph, shaping)())
    else:
        order = resolve_order(shaping, graph)
    costs = dict(zip(order, graph.costs(order, cost), strict=True))
    return np.array([costs[v] for v in graph.eliminable], np.int64)


def classical_costs(graph: Graph, cost: CostModel) -> dict[str, int]:
    """Returns the costs of the orders forward, reverse and Markowitz, by name."""
    return {name: graph.cost(order, cost) for name, order in classical_orders(graph).items()}


def classical_cost(graph: Graph, cost: CostModel) -> int:
    """Returns the cost of the cheapest of the orders forward, reverse and Markowitz."""
    return min(classical_costs(graph, cost).values())


def classical_orders(graph: Graph) -> dict[str, tuple[int, ...]]:
    """Returns the orders forward, reverse and Markowitz by name, the nearest that rules allow."""
    return {
        "forward": graph.legal(graph.forward()),
        "reverse": graph.reverse(),
        "Markowitz": graph.legal(graph.markowitz()),
    }


def cheaper_classical(
    graph: Graph, cost: CostModel, most: int, name: str = ""
) -> tuple[str, Order] | None:
    """Returns the cheapest of forward, reverse and Markowitz, if it costs less than `most`.

    Returns:
      Which one it is, and itself, named after a task; None where none of them costs less.
    """
    orders = classical_orders(graph)
    costs = {by: graph.cost(ids, cost) for by, ids in orders.items()}
    by = min(costs, key=costs.__getitem__)
    if costs[by] >= most:
        return None
    return by, Order.from_graph(graph, orders[by], name, f"the order {by}")


def reward_of(
    params: EnvParams,
    left: Bool[Array, " A"],
    slot: Int[Array, ""],
    legal: Bool[Array, ""],
    illegal: Bool[Array, ""],
    cost: Count,
) -> Float[Array, ""]:
    """Computes the reward of a step.

    Args:
      params: the graph.
      left: bool [A], the vertices left before the step.
      slot: int32 [], in [0, A).
      legal: bool [], the slot's vertex was eliminated.
      illegal: bool [], the action ended the episode; neither is true after the end.
      cost: count [], multiplications of the step, 0 unless it was legal.

    Returns:
      float32 [].
    """
    gain, penalty = -cost, -params.worst_total
    if params.reference is not None:
        gain += params.reference[slot] * legal.astype(jnp.int32)
        potential = params.reference * left.astype(jnp.int32)
        penalty += potential.sum().astype(jnp.float32)
    reward = jnp.where(illegal, penalty, gain.astype(jnp.float32))
    return reward if params.scale is None else reward / params.scale
