"""The best order ever seen of every task, counted by its graph before it is believed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Int

from veenv.env import TaskDistribution
from veenv.env.rewards import cheaper_classical
from veenv.orders.fields import read_field
from veenv.orders.order import Order


@dataclasses.dataclass(frozen=True)
class _Recorded:
    """An order of a task in a record."""

    ids: tuple[int, ...]
    cost: int
    steps: int | None


class BestOrders:
    """The cheapest order of every task over all episodes, as it is written to files.

    Attributes:
      tasks: the tasks.
    """

    def __init__(self, tasks: TaskDistribution, agent: str = "PPO"):
        """Starts without any order; the agent will find them."""
        self.tasks, self._agent = tasks, agent
        self._orders: dict[str, Order] = {}
        self._played: dict[str, tuple[int, tuple[int, ...]]] = {}

    def __getitem__(self, name: str) -> Order:
        """The best order of a task; KeyError if no episode was played yet."""
        return self._orders[name]

    def get(self, name: str) -> Order | None:
        """The best order of a task, None if no episode was played yet."""
        return self._orders.get(name)

    def cost(self, name: str) -> int:
        """Returns what the best order of a task costs; KeyError if no episode was played yet."""
        return self._orders[name].counts[self.tasks.env.cost]

    def offer(
        self, costs: Int[np.ndarray, " K"], orders: Int[np.ndarray, "K A"], steps: int
    ) -> tuple[str, ...]:
        """Keeps what is cheaper than before.

        Args:
          costs: for each task the cost the environment gave, int32 [K].
          orders: the order as slots, -1 padded, int32 [K, A].
          steps: environment steps so far.

        Returns:
          The names of the tasks whose best order was replaced.

        Raises:
          RuntimeError: an order does not cost what the environment said, or is not one.
        """
        improved = []
        for index, name in enumerate(self.tasks.names):
            self._note(name, index, int(costs[index]), orders[index])
            if self._would_improve(name, int(costs[index])):
                ids = self.tasks.vertex_ids(index, orders[index])
                self._orders[name] = self._counted(name, ids, int(costs[index]), steps)
                improved.append(name)
        return tuple(improved)

    def _note(self, name: str, index: int, cost: int, slots: Int[np.ndarray, " A"]) -> None:
        """Remembers the cheapest order that was played, whatever is known besides."""
        if name not in self._played or cost < self._played[name][0]:
            ids = self.tasks.vertex_ids(index, slots)
            if len(ids) == len(self.tasks.graphs[index].eliminable):
                self._played[name] = cost, ids

    def played(self, name: str) -> tuple[int, ...] | None:
        """Returns the cheapest order that train steps of this process ended with, if any did."""
        return self._played[name][1] if name in self._played else None

    def keep(self, name: str, order: Order) -> None:
        """Keeps an order of a task unless the one there is cheaper."""
        if name not in self._orders or order.counts[self.tasks.env.cost] <= self.cost(name):
            self._orders[name] = order

    def classical(self, name: str) -> tuple[str, Order] | None:
        """The cheapest classical order of a task and its name, where it costs less than the best.

        None where it does not, or no episode was played.
        """
        if name not in self._orders:
            return None
        index = self.tasks.names.index(name)
        graph, cost = self.tasks.graphs[index], self.tasks.env.cost
        if min(self.tasks.classical[index].values()) >= self.cost(name):
            return None
        return cheaper_classical(graph, cost, self.cost(name), name)

    def record(self) -> dict[str, Any]:
        """The orders as JSON, for `merge`."""
        return {
            name: {"ids": list(order.ids), "cost": self.cost(name), "steps": order.steps}
            for name, order in self._orders.items()
        }

    def merge(self, record: Mapping[str, Any]) -> None:
        """Keeps what another `record` has that is cheaper; other tasks are skipped.

        Raises:
          ValueError: the record is none, or an order does not cost what it says, or is not one.
        """
        known = read_field("best", Mapping[str, _Recorded], record)
        for name in self.tasks.names:
            if name in known and self._would_improve(name, known[name].cost):
                try:
                    self._orders[name] = self._counted(name, **dataclasses.asdict(known[name]))
                except RuntimeError as error:
                    raise ValueError(str(error)) from None

    def _would_improve(self, name: str, cost: int) -> bool:
        return name not in self._orders or cost < self.cost(name)

    def _counted(self, name: str, ids: Iterable[int], cost: int, steps: int | None) -> Order:
        """The order, if it costs what is said."""
        graph = self.tasks.graphs[self.tasks.names.index(name)]
        found_by = f"{self._agent}, after {steps or 0} environment steps"
        try:
            order = Order.from_graph(graph, ids, name, found_by, steps=steps)
        except ValueError as error:
            raise RuntimeError(f"{name}: an episode is no order: {error}") from error
        counted = order.counts[self.tasks.env.cost]
        if counted != cost:
            raise RuntimeError(
                f"{name}: the environment counted a cost of {cost} for an order that the graph "
                f"counts at {counted}"
            )
        return order
