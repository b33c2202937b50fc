"""The result of a search."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from veenv.graph.graph import CostModel, Graph
from veenv.search.race import Race

if TYPE_CHECKING:
    from veenv.orders.order import Order


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Attributes:
      order: vertex ids in elimination order.
      cost: multiplications of that order under the cost model.
      cost_model: one of `veenv.graph.COST_MODELS`.
      lower_bound: proven by this search: no order costs less. A task may have a higher one:
        `veenv.best_order(name).lower_bounds`.
      optimal: the cost equals this lower bound.
      evaluations: orders evaluated (annealing), or states expanded (exact search).
      seconds: wall-clock time, that of compiling kernels included.
      trace: (seconds, evaluations, cost) of every improvement, the first order's included.
      method: the method asked for.
      seed: the seed.
      ready: False where the method was not ready in time (its kernels or its policy were still
        being compiled), so that the order is that of hill climbing in Python or a classical one.
      graph: what was searched.

    Examples:
      >>> import veenv
      >>> found = veenv.search.search(veenv.make_graph(lambda x: x * x * x)(1.0), "reverse")
      >>> found.order, found.cost, found.optimal, found.ready
      ((1,), 1, True, True)
    """

    order: tuple[int, ...]
    cost: int
    cost_model: CostModel
    lower_bound: int
    optimal: bool
    evaluations: int
    seconds: float
    trace: tuple[tuple[float, int, int], ...]
    method: str
    seed: int
    ready: bool
    graph: Graph = field(repr=False, compare=False)

    @property
    def classical(self) -> tuple[str, Order] | None:
        """The cheapest classical order and its name, if it costs less than the result.

        That can be of greedy methods, and of searches from a start; None where it does not.
        """
        from veenv.env.rewards import cheaper_classical  # imported late: searches do not need it

        return cheaper_classical(self.graph, self.cost_model, self.cost)

    @classmethod
    def of(cls, race: Race, method: str) -> SearchResult:
        """Builds the result of a race that is over.

        Args:
          race: the race.
          method: the method asked for.

        Raises:
          RuntimeError: if the search and the graph count the order found differently (a bug).
        """
        graph, cost_model, tracker = race.problem.graph, race.problem.cost_model, race.tracker
        order, cost = race.best() or (graph.reverse(), graph.cost(graph.reverse(), cost_model))
        bound, evaluations = race.bound, 0 if race.outcome else race.evaluations
        trace = [(race.seconds(), evaluations, cost)]
        if race.outcome is None and tracker is not None:
            bound, evaluations = tracker.lower_bound, tracker.evaluations
            trace = tracker.trace + (trace if cost < tracker.cost else [])
            if (actual := graph.cost(order, cost_model)) != cost:
                raise RuntimeError(f"the search counts {cost}, the graph {actual}: {order}")
        return cls(
            order=order,
            cost=cost,
            cost_model=cost_model,
            lower_bound=bound,
            optimal=cost == bound,
            evaluations=evaluations,
            seconds=race.seconds(),
            trace=tuple(trace),
            method=method,
            seed=race.seed,
            ready=race.ready,
            graph=graph,
        )
