"""What a Jacobian cost: multiplications, additions and operations, each per elimination."""

from __future__ import annotations

from dataclasses import dataclass

from veenv.engine.elimination import Elimination
from veenv.graph.graph import Graph


@dataclass(frozen=True)
class Counts:
    """Operations of an elimination order, as the engine ran it.

    Attributes:
      order: the eliminated vertex ids.
      multiplications_per_vertex: the literature's count of each elimination.
      executed_per_vertex: multiplications really executed in each elimination.
      additions_per_vertex: additions of each elimination with every sum formed at once; where
        selections meet (`veenv.engine.sums`) the engine executes others.

    Example:
      >>> import jax.numpy as jnp, veenv
      >>> f = lambda x: jnp.sum(jnp.sin(x) * x)
      >>> _, counts = veenv.jacve(f, "reverse", count_ops=True)(jnp.ones(3))
      >>> counts.order, counts.multiplications_per_vertex, counts.multiplications
      ((2, 1), (6, 3), 9)
      >>> counts.executed, counts.additions, counts.operations
      (3, 3, 6)
    """

    order: tuple[int, ...]
    multiplications_per_vertex: tuple[int, ...]
    executed_per_vertex: tuple[int, ...]
    additions_per_vertex: tuple[int, ...]

    @property
    def multiplications(self) -> int:
        """Total under the literature's count."""
        return sum(self.multiplications_per_vertex)

    @property
    def executed(self) -> int:
        """Total of the executed multiplications."""
        return sum(self.executed_per_vertex)

    @property
    def additions(self) -> int:
        """Total of the additions."""
        return sum(self.additions_per_vertex)

    @property
    def operations_per_vertex(self) -> tuple[int, ...]:
        """Executed multiplications and additions of each elimination."""
        pairs = zip(self.executed_per_vertex, self.additions_per_vertex, strict=True)
        return tuple(m + a for m, a in pairs)

    @property
    def operations(self) -> int:
        """Total of the executed multiplications and the additions."""
        return self.executed + self.additions


def counts_of(graph: Graph, ids: tuple[int, ...], done: Elimination | None) -> Counts:
    """What an elimination counted; by the graph where it could not (`done` is None).

    Args:
      graph: the graph.
      ids: the order.
      done: what was left of the graph.
    """
    literature = graph.costs(ids)
    if done is None:
        return Counts(ids, literature, graph.costs(ids, "executed"), graph.additions(ids))
    return Counts(ids, literature, done.executed, done.additions)
