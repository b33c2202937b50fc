"""The best order ever seen, checked against the graph's own count before it is believed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Int

from agents.games import Game


@dataclasses.dataclass(frozen=True)
class BestOrder:
    """The cheapest order of one graph so far.

    Attributes:
      ids: vertex ids in elimination order.
      cost: what it costs.
      steps: environment steps that had been played when it was found.
    """

    ids: tuple[int, ...]
    cost: int
    steps: int


class BestOrders:
    """The cheapest order of every graph over all episodes.

    Attributes:
      agent: name of the agent that finds them.
    """

    def __init__(self, game: Game, agent: str = "PPO"):
        """Starts without any order.

        Args:
          game: the graphs.
          agent: name of the agent that will find them.
        """
        self.agent = agent
        self._game = game
        self._orders: dict[str, BestOrder] = {}

    def __getitem__(self, name: str) -> BestOrder:
        """The record of a graph; KeyError if no episode was played yet."""
        return self._orders[name]

    def get(self, name: str) -> BestOrder | None:
        """The record of a graph, None if no episode was played yet."""
        return self._orders.get(name)

    def offer(
        self, costs: Int[np.ndarray, " K"], orders: Int[np.ndarray, "K A"], steps: int
    ) -> tuple[str, ...]:
        """Takes over what is cheaper than before.

        Args:
          costs: for each graph the cost the environment gave, int32 [K].
          orders: the order as slots, -1 padded, int32 [K, A].
          steps: environment steps so far.

        Returns:
          The names of the graphs whose best order was replaced.

        Raises:
          RuntimeError: an order does not cost what the environment said, or is not one.
        """
        improved = []
        for index, name in enumerate(self._game.names):
            record, cost = self._orders.get(name), int(costs[index])
            if record is None or cost < record.cost:
                ids = self._game.vertex_ids(index, orders[index])
                self._orders[name] = BestOrder(ids, self._checked(index, ids, cost), steps)
                improved.append(name)
        return tuple(improved)

    def record(self) -> dict[str, Any]:
        """The orders as JSON, for `merge`."""
        return {name: dataclasses.asdict(order) for name, order in self._orders.items()}

    def merge(self, record: Mapping[str, Any]) -> tuple[str, ...]:
        """Takes over what another record has that is cheaper.

        Args:
          record: as `record` gives it; graphs that are not in the game are passed over.

        Returns:
          The names of the graphs whose best order was replaced.

        Raises:
          RuntimeError: an order does not cost what the record says, or is not one.
        """
        improved = []
        for index, name in enumerate(self._game.names):
            theirs, ours = record.get(name), self._orders.get(name)
            if theirs is not None and (ours is None or theirs["cost"] < ours.cost):
                ids = tuple(theirs["ids"])
                cost = self._checked(index, ids, theirs["cost"])
                self._orders[name] = BestOrder(ids, cost, theirs["steps"])
                improved.append(name)
        return tuple(improved)

    def _checked(self, index: int, ids: tuple[int, ...], claimed: int) -> int:
        try:
            cost = self._game.graphs[index].cost(ids, self._game.cost)
        except ValueError as error:
            name = self._game.names[index]
            raise RuntimeError(f"{name}: an episode is no order: {error}") from error
        if cost != claimed:
            raise RuntimeError(
                f"{self._game.names[index]}: the environment counted a cost of {claimed} "
                f"for an order that the graph counts at {cost}"
            )
        return cost
