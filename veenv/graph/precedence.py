"""Precedence of vertices, in graphs with derivative rules not linear in their cotangents."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ReverseOnly:
    """A derivative rule that can only be applied to the cotangents of outputs.

    With `forward`, to the tangents of inputs: then inputs and what is before the operands take the
    place of outputs and what is behind the results.
    """

    name: str  # name of the function
    source: str  # the line that calls it
    results: tuple[int, ...]  # the nodes of its results
    operands: tuple[int, ...]  # the nodes of its operands
    # it provably maps zero cotangents to zero, as for outputs that it does not reach
    zero: bool = True
    forward: bool = False  # it is a tangent rule


Edges = Iterable[tuple[int, int]]
Prerequisites = dict[int, dict[int, ReverseOnly]]
"""Vertices that must go before each vertex, each with the rule that demands so."""


def prerequisites(
    rules: Sequence[ReverseOnly], edges: Edges, moves: Mapping[int, int]
) -> Prerequisites:
    """Finds for each vertex those eliminated before it, with the rule that demands so."""
    edges = [*edges]
    ways = {False: adjacent(edges), True: adjacent(edges, 1)}
    before: Prerequisites = {}
    for rule in rules:
        sides = (rule.operands, rule.results) if rule.forward else (rule.results, rule.operands)
        behind = _behind(ways[rule.forward], sides[0])
        first = [moves[n] for n in sorted(behind) if n in moves]
        results, operands = ([moves[n] for n in side if n in moves] for side in sides)
        for vertex in results:
            before.setdefault(vertex, {}).update(dict.fromkeys(first, rule))
        for vertex in operands:
            before.setdefault(vertex, {}).update(dict.fromkeys([*first, *results], rule))
    if len({rule.forward for rule in rules}) > 1:
        order = [*moves.values()]
        stuck = {*order} - {*legal_order(before, order)}
        if stuck:
            names = sorted({f"{r.name} ({r.source})" for v in stuck for r in before[v].values()})
            raise ValueError(
                f"no order can apply the derivative rules of {' and '.join(names)}: one needs the "
                "cotangents of outputs, another the tangents of inputs, and neither is linear"
            )
    return before


def adjacent(edges: Edges, end: int = 0) -> dict[int, list[int]]:
    """Returns neighbours of each node: targets by source (end 0) or sources by target (end 1)."""
    neighbours: dict[int, list[int]] = {}
    for edge in edges:
        neighbours.setdefault(edge[end], []).append(edge[1 - end])
    return neighbours


def _behind(successors: dict[int, list[int]], nodes: Sequence[int]) -> set[int]:
    """Returns the nodes that depend on any of `nodes`."""
    reached: set[int] = set()
    front = list(nodes)
    while front:
        for w in successors.get(front.pop(), ()):
            if w not in reached:
                reached.add(w)
                front.append(w)
    return reached


def unreached(rule: ReverseOnly, edges: Edges, outputs: Sequence[int | None]) -> int | None:
    """Returns the first output leaf that does not depend on a rule's results; None if all do."""
    behind = {*rule.results, *_behind(adjacent(edges), rule.results)}
    return next((k for k, n in enumerate(outputs) if n not in behind), None)


def check_precedence(before: Prerequisites, order: Sequence[int]) -> None:
    """Refuses an order that eliminates a vertex before one that must come first."""
    gone: set[int] = set()
    for vertex in order:
        for other, rule in before.get(vertex, {}).items():
            if other not in gone:
                why = (
                    "cannot be transposed: it can only be applied to the tangents of inputs, after "
                    'all that it depends on and before all that depends on it, as order="forward" '
                    "does"
                    if rule.forward
                    else "is not provably linear in its cotangent, or does more than compute: it "
                    "can only be applied to the cotangents of outputs, after all that depends on "
                    'it and before all that it depends on, as order="reverse" does'
                )
                raise ValueError(
                    f"the order eliminates vertex {vertex} before vertex {other}, but the "
                    f"derivative rule of {rule.name} ({rule.source}) {why}; see "
                    "errors.html#orders-that-a-derivative-rule-forbids"
                )
        gone.add(vertex)


def legal_order(before: Prerequisites, order: Sequence[int]) -> tuple[int, ...]:
    """Returns the nearest allowed order: always the first vertex of `order` that may go."""
    if not before:
        return tuple(order)
    rank = {v: n for n, v in enumerate(order)}
    waiting = {v: len(before.get(v, ())) for v in order}
    followers = adjacent((other, vertex) for vertex, row in before.items() for other in row)
    ready = [rank[v] for v in order if not waiting[v]]  # ascending, which is a heap
    allowed = []
    while ready:
        vertex = order[heapq.heappop(ready)]
        allowed.append(vertex)
        for follower in followers.get(vertex, ()):
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, rank[follower])
    return tuple(allowed)
