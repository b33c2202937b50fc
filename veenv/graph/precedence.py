"""Which orders a graph allows that has rules that are not linear in their cotangents."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from veenv.graph.graph import Graph, ReverseOnly


def prerequisites(graph: Graph) -> dict[int, dict[int, ReverseOnly]]:
    """For each vertex those that must be eliminated before it, with the rule that asks for it.

    Args:
      graph: the graph.

    Returns:
      Vertex ids by vertex id; vertices that may go first are left out.
    """
    successors: dict[int, list[int]] = {}
    for u, v in graph.edges:
        successors.setdefault(u, []).append(v)
    moves = {graph.node(v): v for v in graph.eliminable}
    before: dict[int, dict[int, ReverseOnly]] = {}
    for rule in graph.reverse_only:
        behind = _behind(successors, rule.results)
        first = [moves[n] for n in sorted(behind) if n in moves]
        results = [moves[n] for n in rule.results if n in moves]
        operands = [moves[n] for n in rule.operands if n in moves]
        for vertex in results:
            before.setdefault(vertex, {}).update(dict.fromkeys(first, rule))
        for vertex in operands:
            before.setdefault(vertex, {}).update(dict.fromkeys([*first, *results], rule))
    return before


def _behind(successors: dict[int, list[int]], nodes: Sequence[int]) -> set[int]:
    """The nodes that depend on some nodes."""
    reached: set[int] = set()
    front = list(nodes)
    while front:
        for w in successors.get(front.pop(), ()):
            if w not in reached:
                reached.add(w)
                front.append(w)
    return reached


def unreached(graph: Graph, rule: ReverseOnly) -> int | None:
    """The first output leaf that does not depend on a rule's results; None if all do."""
    successors: dict[int, list[int]] = {}
    for u, v in graph.edges:
        successors.setdefault(u, []).append(v)
    behind = {*rule.results, *_behind(successors, rule.results)}
    return next((k for k, n in enumerate(graph.outputs) if n not in behind), None)


def check_precedence(graph: Graph, order: Sequence[int]) -> None:
    """Refuses an order that eliminates a vertex before one that must come first.

    Raises:
      ValueError: naming the rule, its line and the two vertices.
    """
    gone: set[int] = set()
    for vertex in order:
        for other, rule in graph.prerequisites.get(vertex, {}).items():
            if other not in gone:
                raise ValueError(
                    f"the order eliminates vertex {vertex} before vertex {other}, but the "
                    f"derivative rule of {rule.name} ({rule.source}) is not provably linear in "
                    "its cotangent: it can only be applied to the cotangents of outputs, after "
                    'all that depends on it and before all that it depends on, as order="reverse" '
                    "does"
                )
        gone.add(vertex)


def legal_order(graph: Graph, order: Sequence[int]) -> tuple[int, ...]:
    """The nearest allowed order: always the first vertex of `order` that may go.

    Args:
      graph: the graph.
      order: all eliminable vertices.
    """
    if not graph.reverse_only:
        return tuple(order)
    rank = {v: n for n, v in enumerate(order)}
    waiting = {v: len(graph.prerequisites.get(v, ())) for v in order}
    followers: dict[int, list[int]] = {}
    for vertex, before in graph.prerequisites.items():
        for other in before:
            followers.setdefault(other, []).append(vertex)
    ready = [rank[v] for v in order if not waiting[v]]
    heapq.heapify(ready)
    found = []
    while ready:
        vertex = order[heapq.heappop(ready)]
        found.append(vertex)
        for follower in followers.get(vertex, ()):
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, rank[follower])
    return tuple(found)
