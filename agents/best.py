"""The best order ever seen, checked against the graph's own count before it is believed."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Int

from agents.games import Game


@dataclasses.dataclass(frozen=True)
class BestOrder:
    """The cheapest order of one graph so far.

    Attributes:
      ids: vertex ids in elimination order.
      cost: its multiplications.
      steps: environment steps that had been played when it was found.
    """

    ids: tuple[int, ...]
    cost: int
    steps: int


class BestOrders:
    """The cheapest order of every graph over all episodes."""

    def __init__(self, game: Game):
        """Starts without any order.

        Args:
          game: the graphs.
        """
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

    def _checked(self, index: int, ids: tuple[int, ...], claimed: int) -> int:
        try:
            cost = self._game.graphs[index].cost(ids, self._game.cost)
        except ValueError as error:
            name = self._game.names[index]
            raise RuntimeError(f"{name}: an episode is no order: {error}") from error
        if cost != claimed:
            raise RuntimeError(
                f"{self._game.names[index]}: the environment counted {claimed} multiplications "
                f"for an order that the graph counts at {cost}"
            )
        return cost
