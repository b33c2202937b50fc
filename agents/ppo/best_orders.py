"""Holds the best orders played so far, from which episodes on large graphs start."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from veenv.env import Spec, TaskDistribution
from veenv.env.counts import Count, largest_like, less, select
from veenv.orders.order import Order


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BestSoFar:
    """The best order of every graph so far.

    Attributes:
      cost: counts [K], the largest there are if there is none yet.
      order: slots, -1 padded, int32 [K, A].
    """

    cost: Count
    order: Int[Array, "K A"]

    @classmethod
    def nothing(cls, num_graphs: int, spec: Spec) -> BestSoFar:
        """Returns a record without orders."""
        none = largest_like(spec.counted(jnp.zeros(num_graphs, jnp.int32)))
        return cls(none, jnp.full((num_graphs, spec.num_actions), -1, jnp.int32))

    @classmethod
    def of(cls, known: Sequence[Order], tasks: TaskDistribution) -> BestSoFar:
        """Returns orders that are known, one for each task."""
        env = tasks.env
        slots = np.full((len(tasks), env.num_actions), -1, np.int32)
        for row, order, graph in zip(slots, known, tasks.graphs, strict=True):
            row[: len(order.ids)] = np.searchsorted(graph.eliminable, order.ids)
        costs = env.spec.counts(np.array([order.counts[env.cost] for order in known]))
        return cls(costs, jax.device_put(slots))

    def updated(self, cost: Count, order: Int[Array, "K A"]) -> BestSoFar:
        """Returns a record with other orders taken over where they cost no more.

        An order as good as the best so far is another place to start from.
        """
        better = less(cost, largest_like(cost)) & ~less(self.cost, cost)
        return BestSoFar(
            select(better, cost, self.cost), jnp.where(better[:, None], order, self.order)
        )
