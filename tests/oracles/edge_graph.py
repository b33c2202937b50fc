"""A scalar graph given by its edges, and an eliminator that shares no code with the library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.oracles.scalar_graph import Elimination
from veenv.graph.graph import Graph
from veenv.structure.structure import make

VALUED = make((), ())
UNIT = make((), (), unit=True)


@dataclass(frozen=True)
class EdgeGraph:
    """Scalar graph: nodes 0..num_inputs-1 are inputs; edge (u, v) with u < v, valued or unit."""

    num_inputs: int
    edges: frozenset[tuple[int, int]]
    outputs: tuple[int | None, ...]
    units: frozenset[tuple[int, int]] = frozenset()
    eliminable: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Prunes what lies on no path from an input to an output."""
        below = set(range(self.num_inputs))
        for u, v in sorted(self.edges, key=lambda e: e[1]):
            if u in below:
                below.add(v)
        above = {v for v in self.outputs if v is not None}
        for u, v in sorted(self.edges, key=lambda e: -e[0]):
            if v in above:
                above.add(u)
        edges = {(u, v) for u, v in self.edges if u in below and v in above}
        object.__setattr__(self, "edges", frozenset(edges))
        sources = {u for u, _ in edges if u >= self.num_inputs}
        ids = tuple(sorted(u - self.num_inputs + 1 for u in sources))
        object.__setattr__(self, "eliminable", ids)

    def graph(self) -> Graph:
        """The library's graph of these edges."""
        structures = {e: UNIT if e in self.units else VALUED for e in self.edges}
        nodes = max((v for e in self.edges for v in e), default=self.num_inputs - 1) + 1
        nodes = max(nodes, *(v + 1 for v in self.outputs if v is not None), self.num_inputs)
        return Graph(
            self.num_inputs,
            [()] * nodes,
            self.outputs,
            ["mul"] * (nodes - self.num_inputs),
            {"multiplications": structures, "executed": structures},
        )

    def cost(self, order: Sequence[int], cost: str = "executed") -> int:
        return sum(self.costs(order, cost))

    def costs(self, order: Sequence[int], cost: str = "executed") -> list[int]:
        """By the oracle; both labellings are the same."""
        first = self.num_inputs - 1
        left = [first + vertex for vertex in self.eliminable]
        game = Elimination(self.edges, left, self.outputs, self.units, cost == "operations")
        return [game.eliminate(first + vertex) for vertex in order]


def from_reference(data: dict[str, Any]) -> EdgeGraph:
    """The published graph of a scalar task."""
    edges: Iterable[Sequence[int]] = data["edges"]
    return EdgeGraph(
        data["num_inputs"], frozenset((u, v) for u, v in edges), tuple(data["outputs"])
    )


def random_graph(
    rng: np.random.Generator, size: int, *, unit: float = 0.0, kept: float = 0.0, reach: int = 8
) -> EdgeGraph:
    """A random graph of `size` intermediates, some edges unit, some intermediates outputs too."""
    inputs, outs = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    first_out = inputs + size
    edges: set[tuple[int, int]] = set()
    for v in range(inputs, first_out):
        for u in rng.integers(max(0, v - reach), v, int(rng.integers(1, 4))):
            edges.add((int(u), v))
    for v in range(first_out, first_out + outs):
        for u in rng.integers(inputs, first_out, int(rng.integers(1, 4))):
            edges.add((int(u), v))
    middle = [v for v in range(inputs, first_out) if rng.random() < kept]
    units = frozenset(e for e in sorted(edges) if rng.random() < unit)
    return EdgeGraph(
        inputs, frozenset(edges), (*middle, *range(first_out, first_out + outs)), units
    )


def cheapest(graph: EdgeGraph, cost: str = "executed") -> int:
    """Least cost of any order: every set of vertices once, each replayed by the oracle."""
    best = {frozenset[int](): 0}
    for _ in graph.eliminable:
        layer: dict[frozenset[int], int] = {}
        for done, come in best.items():
            for v in graph.eliminable:
                if v not in done:
                    after = done | {v}
                    total = come + graph.costs([*sorted(done), v], cost)[-1]
                    layer[after] = min(total, layer.get(after, total))
        best = layer
    return min(best.values())
