"""An independent reading of scalar jaxprs and an independent scalar vertex elimination.

Shares no code with veenv: the oracle for the published graphs and counts.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import jax
from jax.extend.core import Literal

CALLS = ("jit", "closed_call")

Edges = set[tuple[int, int]]


def scalar_graph(fun: Callable[..., Any], args: Sequence[Any]) -> tuple[Edges, list[int], int]:
    """Traces a function of scalars: its edges, output vertices and number of equations.

    Inputs are 0, 1, …; then each equation is one vertex, in order, nested calls inlined.
    """
    edges: Edges = set()
    fresh = itertools.count(len(args))

    def walk(jaxpr: Any, inputs: Sequence[int]) -> list[int]:
        nodes = dict(zip(jaxpr.invars, inputs, strict=True))

        def read(atoms: Iterable[Any]) -> list[int]:
            return [-1 if isinstance(a, Literal) else nodes[a] for a in atoms]

        for eqn in jaxpr.eqns:
            sources = read(eqn.invars)
            if eqn.primitive.name in CALLS:
                inner = getattr(eqn.params["jaxpr"], "jaxpr", eqn.params["jaxpr"])
                nodes.update(zip(eqn.outvars, walk(inner, sources), strict=True))
            else:
                (out,) = eqn.outvars
                assert out.aval.shape == ()
                nodes[out] = next(fresh)
                edges.update((source, nodes[out]) for source in sources if source >= 0)
        return read(jaxpr.outvars)

    outputs = walk(jax.make_jaxpr(fun)(*args).jaxpr, range(len(args)))
    return edges, outputs, next(fresh) - len(args)


class Elimination:
    """Vertex elimination on a scalar graph: an edge is a pair, and carries a value or is a unit.

    A multiplication is counted for each product of two values, and an addition, where they are
    counted, for each product that meets an edge.
    """

    def __init__(
        self,
        edges: Iterable[tuple[int, int]],
        intermediates: Iterable[int],
        outputs: Collection[int | None] = (),
        units: Collection[tuple[int, int]] = (),
        additions: bool = False,
    ):
        self.before: dict[int, dict[int, bool]] = defaultdict(dict)
        self.after: dict[int, dict[int, bool]] = defaultdict(dict)
        self.left, self.outputs, self.additions = sorted(intermediates), outputs, additions
        for u, v in edges:
            self.before[v][u] = self.after[u][v] = (u, v) not in units

    @property
    def edges(self) -> Edges:
        """The pairs that are left."""
        return {(u, v) for u, targets in self.after.items() for v in targets}

    def price(self, vertex: int) -> int:
        """What the elimination of a vertex costs now."""
        sources, targets = self.before[vertex], self.after[vertex]
        pairs = itertools.product(sources.items(), targets.items())
        return sum((x and y) + (self.additions and w in self.after[u]) for (u, x), (w, y) in pairs)

    def eliminate(self, vertex: int) -> int:
        """Joins the edges into a vertex with those out of it; outputs keep the former."""
        cost, sources = self.price(vertex), self.before[vertex]
        targets = self.after.pop(vertex, {})
        for (u, x), (w, y) in itertools.product(sources.items(), targets.items()):
            self.before[w][u] = self.after[u][w] = w in self.after[u] or x or y
        for w in targets:
            del self.before[w][vertex]
        if vertex not in self.outputs:
            for u in self.before.pop(vertex, {}):
                del self.after[u][vertex]
        self.left.remove(vertex)
        return cost

    def forward(self) -> int:
        return sum(self.eliminate(vertex) for vertex in list(self.left))

    def reverse(self) -> int:
        return sum(self.eliminate(vertex) for vertex in reversed(list(self.left)))

    def markowitz(self, *, last: bool = False) -> int:
        """Greedy on the degree; of equal ones the first vertex, or the last."""
        total = 0
        while self.left:
            order = self.left[::-1] if last else self.left
            total += self.eliminate(min(order, key=self.price))
        return total
