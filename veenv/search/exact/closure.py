"""Enumerates every structure that an edge of a graph of arrays may have in any order.

**The edge u → w after a set S is eliminated** stands for the paths from u to w through S.  Let M be
the vertices on these paths.  Its structure depends on the order of M only: another vertex of S
never has edges from u and to w when it is eliminated.  Let x be the last of M.  Before it, the
edges u → x, x → w and u → w stood for the paths through M − {x}; then the third became its sum with
the product of the other two.  So, by induction, the possible structures after M are found from
those after smaller sets, every x in M being tried as the last one.  (Combinations that no single
order brings about may be among them: a bound taken from them may be loose, but not wrong.)

**The sets M** that can arise, some vertices being eliminated for certain and some not at all, are
the unions of paths.  Where there are too many of them nothing is said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache

from veenv.graph.precedence import adjacent
from veenv.structure.product import multiply
from veenv.structure.structure import Structure, add

Edges = Mapping[tuple[int, int], Structure]

_MOST_PATHS = 16
_MOST_SETS = 16


class Closure:
    """The structures that the edges of a graph may come to have.

    Nodes are numbered so that every edge ascends; sets of nodes are bits of an int.
    """

    def __init__(self, edges: Edges):
        """Prepares the edges; structures are computed on demand."""
        self._edges = edges
        self._preds, self._succs = adjacent(edges, 1), adjacent(edges)
        self._below, self._above = _spans(self._preds), _spans(self._succs)
        self._known: dict[tuple[int, int, int], frozenset[Structure]] = {}
        self._options: dict[tuple[int, int, int, int], frozenset[Structure] | None] = {}

    def possible(self, u: int, w: int, gone: int, present: int) -> frozenset[Structure] | None:
        """Returns the structures that the edge u → w may have; None if they are too many to list.

        The vertices `gone` have been eliminated, those `present` not, the others may have been or
        not.
        """
        between = self.between(u, w)
        key = (u, w, gone & between, present & between)
        if key not in self._options:
            sets = self._sets(*key)
            self._options[key] = (
                None
                if sets is None
                else frozenset(s for through in sets for s in self.after(u, w, through))
            )
        return self._options[key]

    def after(self, u: int, w: int, eliminated: int) -> frozenset[Structure]:
        """Returns the structures of the edge u → w after exactly these vertices are eliminated.

        There are none if no path leads from u to w through the set.
        """
        through = self._on_paths(u, w, eliminated)
        if not through:
            return frozenset({self._edges[u, w]} if (u, w) in self._edges else ())
        structures = self._known.get((u, w, through))
        if structures is None:
            structures = frozenset()
            for x in members(through):
                before = through & ~(1 << x)
                added = _products(self.after(x, w, before), self.after(u, x, before))
                structures |= _sums(self.after(u, w, before), added)
            self._known[u, w, through] = structures
        return structures

    def _sets(self, u: int, w: int, gone: int, present: int) -> set[int] | None:
        """Returns sets of vertices that may be eliminated on paths from u to w."""
        allowed = self.between(u, w) & ~present
        sets: set[int] = {0}
        for count, path in enumerate(self._paths(u, w, allowed)):
            sets |= {path & ~gone | chosen for chosen in sets}
            if count >= _MOST_PATHS or len(sets) > _MOST_SETS:
                return None
        return {free | gone for free in sets}

    def _paths(self, u: int, w: int, allowed: int) -> Iterator[int]:
        """Yields the inner vertices of each path from u to w through `allowed`; no direct edge."""
        stack = [(w, 0)]
        while stack:
            x, path = stack.pop()
            for y in self._preds.get(x, ()):
                if y == u and path:
                    yield path
                elif allowed >> y & 1:
                    stack.append((y, path | 1 << y))

    def between(self, u: int, w: int) -> int:
        """Returns the vertices on paths from u to w."""
        return self._above.get(u, 0) & self._below.get(w, 0)

    def _on_paths(self, u: int, w: int, allowed: int) -> int:
        """Returns the vertices on paths from u to w through `allowed`."""
        allowed &= self.between(u, w)
        return allowed and _reached(self._succs, u, allowed) & _reached(self._preds, w, allowed)


def members(bits: int) -> Iterator[int]:
    """Yields the members of a set given as bits, ascending."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _reached(neighbours: Mapping[int, Collection[int]], start: int, allowed: int) -> int:
    """Returns the nodes reachable from `start` through `allowed`, as bits."""
    reached, stack = 0, [start]
    while stack:
        for x in neighbours.get(stack.pop(), ()):
            if allowed >> x & 1 and not reached >> x & 1:
                reached |= 1 << x
                stack.append(x)
    return reached


@lru_cache(maxsize=1 << 14)
def _products(posts: frozenset[Structure], pres: frozenset[Structure]) -> frozenset[Structure]:
    return frozenset(multiply(post, pre).structure for post in posts for pre in pres)


@lru_cache(maxsize=1 << 14)
def _sums(old: frozenset[Structure], added: frozenset[Structure]) -> frozenset[Structure]:
    """Adds each pair of two sets' members; the second set if the first is empty (no edge)."""
    return frozenset(add(a, b) for a in old for b in added) if old else added


def _spans(neighbours: Mapping[int, Collection[int]]) -> dict[int, int]:
    """Returns for each node, as bits, its neighbours and everything reachable from them."""
    spans: dict[int, int] = {}
    descending = any(x > node for node, row in neighbours.items() for x in row)
    for node in sorted(neighbours, reverse=descending):
        reached = 0
        for x in neighbours[node]:
            reached |= 1 << x | spans.get(x, 0)
        spans[node] = reached
    return spans
