"""Pattern databases: lower bounds on the joint cost of clusters of vertices, for A*.

What one vertex costs at least says little where edges carry no values: a sum costs nothing before
its terms are eliminated, and its terms cost nothing after it, but not both.  So neighbours form
*clusters*, and for each cluster P a table T bounds what those of P that are left cost together:

    T[P] = 0,   T[X] = min over v in P − X of c(v, X) + T[X ∪ {v}],

where X ⊆ P are the eliminated ones and c(v, X) bounds the cost of v while the others of P are
there, whichever vertices outside P are eliminated, in any order.  Then Σ T[P ∩ S] over disjoint
clusters bounds the cost to go from every state whose eliminated set is S, and it is consistent: an
elimination of v in P changes only P's term, and T[X] ≤ c(v, X) + T[X ∪ {v}].  (An additive pattern
database: Felner, Korf & Hanan, 2004.)

**The bound c(v, X).** Let S be the set eliminated before v: X, and vertices outside P.  Look at the
graph after X, whose edges are the paths through X.

*Cuts.* Walk from v back along a path that begins in an input or in another vertex of P that is
left: the first vertex that is not in S has an edge to v after S.  So the predecessors that v then
has meet every such path.  In the same way its successors meet every path from v to an output or to
a vertex of P that is left (an eliminated output keeps its in-edges).

*Values.* Call an edge of the graph after X valued if it stands for two paths or for a path with a
valued edge.  Products with a valued factor carry values, and so do all sums, so that an edge
that stands for such paths, among others, does.  Hence, if the last edge of the path above is valued
after X, then so is the edge to v that was found, and its structure is among the valued ones that
`Closure.possible` names.  The same holds for successors.

*Cost.* v costs the sum, over predecessors u and successors w, of the multiplications m(t, s) of
their edges' structures s and t.  For a given s the sum over w is at least the weight C(s) of the
lightest set that meets all paths from v whose first edge is valued, each w weighing the least
m(t, s) of its possible t.  So the whole is at least the weight of the lightest set that meets all
paths to v whose last edge is valued, each u weighing its least C(s).  The sides may be exchanged,
and `bounds.vertex_bounds` holds too: c(v, X) is the largest of the three.  Of scalars, and where
the structures are not known, m ≥ 1 is used: then C and the whole count disjoint paths.  ∎

*Operations.* Where additions are counted too, every vertex costs at least its multiplications, so
that all of this holds as it is; the additions of products and sums only make the bound looser.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from veenv.graph.tableau import Tableau
from veenv.search.budget import Tracker
from veenv.search.exact.closure import Closure, Edges, members
from veenv.search.exact.cuts import lightest_cut
from veenv.search.kernels.compilation import ONE, compiled
from veenv.search.problem import Problem
from veenv.structure.product import multiply
from veenv.structure.structure import Structure

_LARGEST = 8
_MOST_VERTICES = 110

_Possible = Callable[[int, int], Iterable[Structure | None]]


class Patterns(NamedTuple):
    """Bounds for C clusters of n vertices."""

    # int64 [n]; least cost of each vertex, whatever is eliminated before it
    alone: np.ndarray
    cluster: np.ndarray  # int64 [n]; number of each vertex's cluster
    members: np.ndarray  # int64 [n]; the vertices, those of one cluster together
    start: np.ndarray  # int64 [C + 1]; where each cluster's members begin
    offset: np.ndarray  # int64 [C]; where each cluster's table begins
    # int64 [L]; least cost to go for each set of eliminated members, the first member being the
    # lowest bit
    table: np.ndarray

    @property
    def total(self) -> int:
        """Returns the bound on the cost of a whole order."""
        return int(self.table[self.offset].sum())


@compiled
def least_change(patterns, eliminated, v):
    """Returns by how much eliminating v changes the bound on the rest, at least minus v's cost.

    `eliminated` is the set without v, uint64 [Ws].
    """
    c = patterns.cluster[v]
    mask, mine = 0, 0
    for k in range(patterns.start[c], patterns.start[c + 1]):
        u, bit = patterns.members[k], 1 << (k - patterns.start[c])
        if u == v:
            mine = bit
        elif eliminated[u >> 6] >> np.uint64(u & 63) & ONE:
            mask |= bit
    first = patterns.offset[c]
    return patterns.table[first + (mask | mine)] - patterns.table[first + mask]


def single_patterns(bounds: np.ndarray) -> Patterns:
    """Makes patterns in which each vertex is its own cluster, of bounds int64 [n]."""
    return _assemble(bounds, [[v] for v in range(len(bounds))], [[int(b), 0] for b in bounds])


def make_patterns(problem: Problem, tracker: Tracker, bounds: np.ndarray) -> Patterns:
    """Makes patterns of vertices whose prices depend on each other, from `vertex_bounds`.

    An evaluation is counted for each entry of a table; when the budget is spent the vertices left
    stand alone.  Every vertex does in graphs of more than 110 vertices, or with an empty array.
    """
    sizes = [prod(shape) for shape in problem.graph.shapes]
    if problem.n > _MOST_VERTICES or 0 in sizes:
        return single_patterns(bounds)
    edges = problem.graph.structures(problem.cost_model)
    closure = Closure(edges)
    clusters = _clusters(problem, closure, edges)
    if problem.tables is None and all(len(cluster) == 1 for cluster in clusters):
        return single_patterns(bounds)  # for scalars the closure gives no better bounds
    nodes = [problem.graph.node(int(v)) for v in problem.vertex_ids]
    done, tables = [], []
    for cluster in clusters:
        if tracker.spent():
            done += [[v] for v in cluster]
            tables += [[int(bounds[v]), 0] for v in cluster]
            continue
        alone = {nodes[v]: int(bounds[v]) for v in cluster}
        done.append(cluster)
        tables.append(_table(problem, closure, edges, alone))
        tracker.add(len(tables[-1]))
    return _assemble(bounds, done, tables)


def _clusters(problem: Problem, closure: Closure, edges: Edges) -> list[tuple[int, ...]]:
    """Clusters vertices whose prices depend on each other, at most `_LARGEST` in each.

    Joined are the ends of an edge without values, and an edge's target with what lies on other
    ways to it (which turn its structure into a sum); the smallest groups first.
    """
    local = {problem.graph.node(int(x)): v for v, x in enumerate(problem.vertex_ids)}
    groups = []
    for (a, b), structure in edges.items():
        inside = [local[x] for x in members(closure.between(a, b)) if x in local]
        if structure.unit and a in local and b in local:
            groups.append([local[a], local[b]])
        if inside and b in local and len(inside) < _LARGEST:
            groups.append([*inside, local[b]])
    cluster: list[set[int]] = [{v} for v in range(problem.n)]
    for group in sorted(groups, key=len):
        joined = {u for v in group for u in cluster[v]}
        if len(joined) <= _LARGEST:
            for v in joined:
                cluster[v] = joined
    return sorted({tuple(sorted(c)) for c in cluster})


def _table(problem: Problem, closure: Closure, edges: Edges, alone: Mapping[int, int]) -> list[int]:
    """Computes T[X] for every set X of a cluster's members, given each node's own bound."""
    cluster = list(alone)
    k = len(cluster)
    table = [0] * (1 << k)
    for eliminated in range((1 << k) - 2, -1, -1):
        gone = [cluster[i] for i in range(k) if eliminated >> i & 1]
        left = [i for i in range(k) if not eliminated >> i & 1]
        view = _view(problem, edges, gone)
        costs = []
        for i in left:
            present = [cluster[j] for j in left if j != i]
            possible = _possible(problem, closure, gone, present)
            cost = _least_cost(problem, view, present, possible, cluster[i])
            costs.append(max(cost, alone[cluster[i]]) + table[eliminated | 1 << i])
        table[eliminated] = min(costs)
    return table


def _possible(
    problem: Problem, closure: Closure, gone: Sequence[int], present: Sequence[int]
) -> _Possible:
    """Returns a function of an edge's possible valued structures; None stands for unknown."""
    if problem.tables is None:
        return lambda u, w: (None,)
    gone_bits, present_bits = (sum(1 << x for x in nodes) for nodes in (gone, present))

    def possible(u: int, w: int) -> Iterable[Structure | None]:
        structures = closure.possible(u, w, gone_bits, present_bits)
        return (None,) if structures is None else [s for s in structures if not s.unit]

    return possible


def _view(problem: Problem, edges: Edges, eliminated: Iterable[int]) -> Tableau[bool]:
    """Builds the graph after eliminations; True marks edges valued in whichever order."""
    graph = problem.graph
    view = Tableau(graph.num_nodes, ((u, v, not s.unit) for (u, v), s in edges.items()))
    for x in eliminated:
        view.eliminate(
            x, lambda post, pre: post or pre, lambda a, b: True, keep=x in graph.output_nodes
        )
    return view


def _least_cost(
    problem: Problem, view: Tableau[bool], present: Sequence[int], possible: _Possible, v: int
) -> int:
    """Computes c(v, X): the least cost of eliminating v in the graph after X."""
    preds, succs = dict(enumerate(view.preds)), dict(enumerate(view.succs))
    sources = {*range(problem.graph.num_inputs), *present}
    sinks = {*problem.graph.output_nodes, *present}
    into = [u for u, valued in preds[v].items() if valued]
    out = [w for w in succs[v] if preds[w][v]]
    ins = {u: possible(u, v) for u in _cone(preds, into, sources)}
    outs = {w: possible(v, w) for w in _cone(succs, out, sinks)}

    def cut_in(weights: Mapping[Structure | None, int]) -> int:
        least = {u: min(weights[s] for s in ss) for u, ss in ins.items()}
        return lightest_cut(least, preds, into, sources)

    def cut_out(weights: Mapping[Structure | None, int]) -> int:
        least = {w: min(weights[t] for t in ts) for w, ts in outs.items()}
        return lightest_cut(least, succs, out, sinks)

    pres = {s for ss in ins.values() for s in ss}
    posts = {t for ts in outs.values() for t in ts}
    cost = {(t, s): _multiplications(t, s) for t in posts for s in pres}
    return max(
        cut_in({s: cut_out({t: cost[t, s] for t in posts}) for s in pres}),
        cut_out({t: cut_in({s: cost[t, s] for s in pres}) for t in posts}),
    )


def _multiplications(post: Structure | None, pre: Structure | None) -> int:
    """Returns the multiplications of a valued product; at least one if structures are unknown."""
    return 1 if post is None or pre is None else multiply(post, pre).multiplications


def _cone(
    neighbours: Mapping[int, Collection[int]], first: Iterable[int], ends: Collection[int]
) -> set[int]:
    """Returns the nodes on walks that begin in `first` and stop at `ends`."""
    cone: set[int] = set()
    stack = list(first)
    while stack:
        x = stack.pop()
        if x not in cone:
            cone.add(x)
            if x not in ends:
                stack += neighbours.get(x, ())
    return cone


def _assemble(
    alone: np.ndarray, clusters: Sequence[Sequence[int]], tables: Sequence[Sequence[int]]
) -> Patterns:
    cluster = np.zeros(len(alone), np.int64)
    for c, vertices in enumerate(clusters):
        cluster[list(vertices)] = c
    return Patterns(
        np.asarray(alone, np.int64),
        cluster,
        np.array([v for vertices in clusters for v in vertices], np.int64),
        np.cumsum([0, *map(len, clusters)], dtype=np.int64),
        np.cumsum([0, *map(len, tables)], dtype=np.int64)[:-1],
        np.array([bound for table in tables for bound in table], np.int64),
    )
