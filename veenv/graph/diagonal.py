"""Axes along which an operator is diagonal: batch axes, mostly.

A primitive without a rule is one operator over all axes.  Along some of them it may still be a
separate map for every index: a decomposition of a batch of matrices, a loop over a batch of states.
Of most primitives the axes are known (`veenv.rules.axes`).  Loops, branches and solves have them
if their bodies do: an axis is followed from an operand through the
partials of the body, around the loop, to a result, and must stay one axis on every way.

Axes are numbered as in a structure, those of size one left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from veenv.rules import walk
from veenv.rules.axes import axis_mappings, has_axis_mappings
from veenv.rules.base import Pairs, Site, find, is_complex
from veenv.rules.table import facts
from veenv.structure.structure import FREE

Move = tuple[int, int, Mapping[int, int]]
"""(source, target, axes): a partial between nodes; its in axes map to their paired out axes."""


Forwards = Mapping[int, Sequence[tuple[int, Mapping[int, int]]]]
"""For each node, the targets of its moves and the axes that they pair."""


@dataclass
class Flow:
    """Dataflow of derivatives through an equation with a body: a loop, branches or a solve."""

    moves: list[Move] = field(default_factory=list)  # the partials between nodes, which are numbers
    # for each active operand its entry node, and the number of its extra leading axes
    operands: dict[int, tuple[int, int]] = field(default_factory=dict)
    # for each active result its exit node, and the number of its extra leading axes
    results: dict[int, tuple[int, int]] = field(default_factory=dict)
    carried: frozenset[int] = frozenset()  # nodes carried from one step of a loop to the next


@dataclass(frozen=True)
class Body:
    """The partials inside a closed jaxpr."""

    moves: Sequence[Move]  # the elemental partials; operand i is node i
    # the node of each result, None for one that depends on no operand
    outputs: Sequence[int | None]
    num_nodes: int  # number of nodes


BodyOf = Callable[..., Body]
"""(closed jaxpr, derivative=True) → its partials; without `derivative` as a linear function."""

_SAME = {k: k for k in range(64)}  # every axis is paired with itself; arrays have no more than 64


def forwards(moves: Iterable[Move]) -> Forwards:
    """Groups moves by source: for each node its targets and the axes paired."""
    ways: dict[int, list[tuple[int, Mapping[int, int]]]] = {}
    for v, w, pairs in moves:
        ways.setdefault(v, []).append((w, pairs))
    return ways


def reachable(ways: Forwards, start: Iterable[int]) -> set[int]:
    """Returns the nodes reachable from `start`, itself included."""
    front = [*start]
    reached = {*front}
    while front:
        for w, _ in ways.get(front.pop(), ()):
            if w not in reached:
                reached.add(w)
                front.append(w)
    return reached


def _joined(flow: Flow, body: Body, names: Mapping[int, int], first: int) -> list[int | None]:
    """Adds a body's moves, operands by name, other nodes from `first` on; returns its results."""

    def node(n: int) -> int:
        return names[n] if n in names else first + n

    flow.moves += [(node(v), node(w), pairs) for v, w, pairs in body.moves]
    return [None if n is None else node(n) for n in body.outputs]


def _loop(site: Site, loop: walk.LoopParts, body: BodyOf) -> Flow:
    """Builds the flow of a loop: a carried value is one node; the test moves nothing."""
    more, (skipped, start, end) = int(loop.length != 1), loop.ends
    flow = Flow(carried=frozenset(range(start - skipped, end - skipped)))
    every = range(len(site.in_avals) - skipped)
    outputs = _joined(flow, body(loop.body), dict(zip(every, every, strict=True)), 0)
    flow.operands = {skipped + i: (i, more * (skipped + i >= end)) for i in every}
    for k, node in enumerate(outputs):
        if k < end - start:
            flow.results[k] = start - skipped + k, 0
        if k < end - start and node is not None:
            flow.moves.append((node, start - skipped + k, _SAME))
        elif node is not None:
            flow.results[k] = node, more
    return flow


def _cond(site: Site, body: BodyOf) -> Flow:
    """Builds the flow of a cond, in which any branch may be taken."""
    num_operands, num_results = len(site.in_avals) - 1, len(site.out_avals)
    flow = Flow(
        operands={1 + i: (i, 0) for i in range(num_operands)},
        results={k: (num_operands + k, 0) for k in range(num_results)},
    )
    first = num_operands + num_results
    for branch in walk.branches_of(site):
        inside = body(branch)
        outputs = _joined(flow, inside, {i: i for i in range(num_operands)}, first)
        for k, node in enumerate(outputs):
            if node is not None:
                flow.moves.append((node, num_operands + k, _SAME))
        first += inside.num_nodes
    return flow


def _solve(site: Site, body: BodyOf) -> Flow:
    """Builds the flow of a linear solve: diagonal where both its matrix and its solver are.

    The unknowns go through the product with the matrix, which adds to the right side, and from
    there through the solver.  JAX applies the solver to tangents and does not differentiate it, so
    here it is a linear function, gradients that it stops flow on, and no unknown is free of any
    right side.  What only the solver uses moves nothing, nor does anything move what it returns
    apart from the unknowns.
    """
    lengths, jaxprs = site.params["const_lengths"], site.params["jaxprs"]
    num_consts, first = lengths.matvec, sum(lengths)
    count = len(site.in_avals) - first
    product, solver = body(jaxprs.matvec), body(jaxprs.solve, derivative=False)
    flow = Flow()
    outputs = _joined(flow, product, {}, 0)
    sides = [product.num_nodes + k for k in range(count)]
    flow.moves += [(v, w, _SAME) for v, w in zip(outputs, sides, strict=True) if v is not None]
    names = {lengths.solve + k: node for k, node in enumerate(sides)}
    solutions = _joined(flow, solver, names, product.num_nodes + count)[:count]
    unknowns = [num_consts + k for k in range(count)]
    flow.moves += [(v, w, _SAME) for v, w in zip(solutions, unknowns, strict=True) if v is not None]
    ways = forwards(flow.moves)
    for side in sides:
        missed = {*unknowns} - reachable(ways, [side])
        flow.moves += [(side, unknown, {}) for unknown in sorted(missed)]
    flow.operands = {i: (i, 0) for i in range(num_consts)}
    flow.operands |= {first + k: (node, 0) for k, node in enumerate(sides)}
    flow.results = {k: (node, 0) for k, node in enumerate(unknowns)}
    return flow


def _flow(site: Site, body: BodyOf) -> Flow | None:
    """Builds the flow through a body; None if a primitive in it has no derivative.

    A body does not say which of its operands are constant, so all count as variables here, and a
    primitive may have no derivative by those that nobody differentiates by.
    """
    loop = walk.loop_of(site)
    try:
        if loop is not None:
            return _loop(site, loop, body)
        return _cond(site, body) if walk.branches_of(site) else _solve(site, body)
    except NotImplementedError:
        return None


@dataclass(frozen=True)
class Ways:
    """Nodes and axes that the axes of one operand reach."""

    reached: set[int]  # the nodes that depend on the operand
    mixed: set[int]  # nodes that depend on it through an earlier step of a loop
    # for each axis of the operand, by node: the only axis it is paired with, or None
    labels: Sequence[Mapping[int, int | None]]


def diagonal_axes(site: Site, body: BodyOf) -> Callable[[int, int], Pairs | None]:
    """Finds the axes along which the partials of an equation, left as operators, are diagonal.

    Of a result and an operand these are (out axis, in axis) pairs: the partial is zero wherever the
    indices of a pair differ; None if it is zero everywhere.
    """
    name = site.primitive.name
    if facts(name).form in ("loop", "solve"):
        flow = cache(lambda: _flow(site, body))
        ways = cache(lambda operand: _ways(flow(), operand, _rank(site, operand)))
        return lambda result, operand: _followed(flow(), operand, result, ways)
    rule = find(name)
    if rule is None or has_axis_mappings(name):
        return lambda result, operand: _apart(site, result, operand)
    rows = cache(lambda: rule(replace(site, diagonal=None)))

    def of_rule(result: int, operand: int) -> Pairs:
        """Returns the δs of real arrays: complex ones have one axis more, behind all others."""
        p = rows()[result][operand]
        pairs = () if p is None else enumerate(p.executed.pairs)
        return tuple((k, j) for k, j in pairs if j != FREE)

    return of_rule


def _apart(site: Site, result: int, operand: int) -> Pairs | None:
    """Returns the axes along which a primitive acts per index; None if an operand only selects."""
    known = facts(site.primitive.name)
    if known.form == "window" and known.linear is not None and operand:
        return None  # it only selects elements of the first operand
    out, shape = site.out_avals[result].shape, site.in_avals[operand].shape
    pairs = ((t.out, t.ins[operand]) for t in axis_mappings(site))
    axis_pairs = ((k, j) for k, j in pairs if k is not None and j is not None)
    return tuple(
        (_squeezed(out, k), _squeezed(shape, j)) for k, j in axis_pairs if out[k] == shape[j] != 1
    )


def _squeezed(shape: Sequence[int], axis: int) -> int:
    """Returns the number of an axis when those of size one are left out."""
    return sum(n != 1 for n in shape[:axis])


def _rank(site: Site, operand: int) -> int:
    """Counts an operand's axes that are not of size one, the parts of complex ones included."""
    aval = site.in_avals[operand]
    return sum(n != 1 for n in aval.shape) + (site.realify and is_complex(aval))


def _ways(flow: Flow | None, operand: int, rank: int) -> Ways:
    """Follows each axis of an operand."""
    if flow is None or operand not in flow.operands:
        return Ways(set(), set(), [])
    source, more = flow.operands[operand]
    ways = forwards(flow.moves)
    reached = reachable(ways, [source])
    mixed = reachable(ways, reached & flow.carried)
    labels: list[dict[int, int | None]] = [{}] * more
    for axis in range(rank - more):
        at: dict[int, int | None] = {source: axis}
        front = [source]
        while front:
            here = front.pop()
            for w, pairs in ways.get(here, ()):
                label = at[here]
                paired = None if label is None else pairs.get(label)
                if w not in at or (at[w] is not None and at[w] != paired):
                    at[w] = None if w in at else paired
                    front.append(w)
        labels.append(at)
    return Ways(reached, mixed, labels)


def _followed(
    flow: Flow | None, operand: int, result: int, ways_of: Callable[[int], Ways]
) -> Pairs | None:
    """Returns paired axes of a result and an operand; None if the result does not depend on it."""
    if flow is None:
        return ()
    ways = ways_of(operand)
    target, more = flow.results.get(result, (None, 0))
    if target is None or target not in ways.reached:
        return None
    labels = ((axis, at.get(target)) for axis, at in enumerate(ways.labels))
    axis_pairs = [(label + more, axis) for axis, label in labels if label is not None]
    if more and flow.operands[operand][1] and target not in ways.mixed:
        axis_pairs.insert(0, (0, 0))  # each step has its own entry of both
    return tuple(axis_pairs)
