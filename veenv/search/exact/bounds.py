"""Lower bounds on the multiplications of any elimination order, and so on its operations.

**Bound.** Let κ_in(v) be the largest number of paths from inputs to v that share no vertex but v
and whose last edge is valued, and κ_out(v) the same from v to outputs, first edge valued.  Every
order costs at least Σ κ_in(v) · κ_out(v) over the eliminable v.

**Proof.** Let S be the set eliminated before v.  Each of the κ_in(v) disjoint paths, walked back
from v, meets a first vertex outside S (the input at the latest); these are different, and each is
then a predecessor of v.  Its edge to v is a sum with a product that ends in a valued edge; sums,
and products with a valued factor, are valued.  So v has at least κ_in(v) valued in-edges.  Walking
forward to the first vertex that is outside S or is an output (an eliminated output keeps its
in-edges) gives κ_out(v) valued out-edges in the same way.  A product of two valued edges takes at
least one multiplication, and v is eliminated exactly once.  ∎

**Arrays.** Call an edge *full* at v if its values vary along every axis of v.  Without links, sums
and products keep an edge full at its end (`product.contract`, `structure.add`), so with the
paths restricted to full edges at v, and no link among v's ancestors' and descendants' edges, each
of those products carries all labels of v and takes at least size(v) multiplications: κ_in · κ_out
· size(v) is a bound for v too, and the larger of the two is taken.

By Menger's theorem κ is a maximum flow with vertex capacities one, found by augmenting paths.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from veenv.graph.precedence import adjacent
from veenv.search.exact.cuts import lightest_cut
from veenv.search.problem import Problem
from veenv.structure.structure import FREE, Link, Structure

_MAX_WORK = 20_000_000
_Edges = Mapping[tuple[int, int], Structure]


def vertex_bounds(problem: Problem) -> np.ndarray:
    """Returns the least multiplications of eliminating each vertex in any order, int64 [n].

    Zero for graphs so large that the flows would take more than seconds, and for graphs that
    hold an empty array.
    """
    graph = problem.graph
    edges = graph.structures(problem.cost_model)
    bounds = np.zeros(problem.n, np.int64)
    sizes = [prod(shape) for shape in graph.shapes]
    if problem.n * len(edges) > _MAX_WORK or any(sizes[x] == 0 for e in edges for x in e):
        return bounds
    inputs = frozenset(range(graph.num_inputs))
    backward, forward = adjacent(edges, 1), adjacent(edges)
    ones = dict.fromkeys((x for edge in edges for x in edge), 1)
    linked_below = _tainted(edges, backwards=False)
    linked_above = _tainted(edges, backwards=True)
    for i, vertex in enumerate(graph.eliminable):
        v = graph.node(vertex)

        def kappa(keep: Callable[[Structure, bool], bool], v: int = v) -> int:
            ins = [u for u in backward.get(v, ()) if keep(edges[u, v], True)]
            outs = [w for w in forward.get(v, ()) if keep(edges[v, w], False)]
            paths = lightest_cut(ones, backward, ins, inputs)  # as many, by Menger's theorem
            return paths * lightest_cut(ones, forward, outs, graph.output_nodes)

        bounds[i] = kappa(lambda s, _: not s.unit)
        if sizes[v] > 1 and v not in linked_below and v not in linked_above:
            bounds[i] = max(bounds[i], kappa(_is_full) * sizes[v])
    return bounds


def _is_full(s: Structure, at_out: bool) -> bool:
    """Returns whether values vary along every axis of the target (`at_out`) or of the source."""
    if s.unit:
        return False
    if at_out:
        return all(s.out_values)
    paired = {j: s.out_values[k] for k, j in enumerate(s.pairs) if j != FREE}
    return all(paired.get(j, valued) for j, valued in enumerate(s.in_values))


def _tainted(edges: _Edges, *, backwards: bool) -> set[int]:
    """Returns nodes that a path with a linked edge leads to (or, backwards, from)."""
    tainted: set[int] = set()
    ordered = sorted(edges, key=lambda e: -e[0] if backwards else e[1])
    for edge in ordered:
        near, far = edge if not backwards else edge[::-1]
        if near in tainted or edges[edge].link is not Link.NONE:
            tainted.add(far)
    return tainted
