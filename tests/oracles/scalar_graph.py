"""An independent reading of scalar jaxprs and an independent scalar vertex elimination.

Shares no code with veenv: the oracle for the published graphs and counts.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
from jax.extend.core import Literal

CALLS = ("jit", "pjit", "closed_call")

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
    """Vertex elimination on a scalar graph, counting a multiplication for each product."""

    def __init__(self, edges: Iterable[tuple[int, int]], intermediates: Iterable[int]):
        self.before: dict[int, set[int]] = {}
        self.after: dict[int, set[int]] = {}
        self.left = sorted(intermediates)
        for source, target in edges:
            self.before.setdefault(target, set()).add(source)
            self.after.setdefault(source, set()).add(target)

    def degree(self, vertex: int) -> int:
        return len(self.before[vertex]) * len(self.after[vertex])

    def eliminate(self, vertex: int) -> int:
        cost = self.degree(vertex)
        for source in self.before[vertex]:
            self.after[source].remove(vertex)
            self.after[source] |= self.after[vertex]
        for target in self.after[vertex]:
            self.before[target].remove(vertex)
            self.before[target] |= self.before[vertex]
        del self.before[vertex], self.after[vertex]
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
            total += self.eliminate(min(order, key=self.degree))
        return total
