"""How derivatives flow through an equation with a body: a loop, branches, a linear solve."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from veenv.rules import walk
from veenv.rules.base import Site

Move = tuple[int, int, Mapping[int, int]]
"""From one node to another: a partial, as the out axis that each of its in axes is paired with."""


Forwards = Mapping[int, Sequence[tuple[int, Mapping[int, int]]]]
"""For each node, where the moves from it go, and the axes that they pair."""


@dataclass
class Flow:
    """How derivatives flow through an equation with a body.

    Attributes:
      moves: the partials between nodes, which are numbers.
      operands: for each operand that moves something, the node it enters at, and how many axes it
        has more in front.
      results: for each result that is moved, the node it leaves from, and how many axes it has
        more in front.
      carried: the nodes that go from one step of a loop to the next.
    """

    moves: list[Move] = field(default_factory=list)
    operands: dict[int, tuple[int, int]] = field(default_factory=dict)
    results: dict[int, tuple[int, int]] = field(default_factory=dict)
    carried: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Body:
    """The partials inside a closed jaxpr.

    Attributes:
      moves: the elemental partials; operand i is node i.
      outputs: the node of each result, None for one that depends on no operand.
      num_nodes: number of nodes.
    """

    moves: Sequence[Move]
    outputs: Sequence[int | None]
    num_nodes: int


BodyOf = Callable[..., Body]
"""(closed jaxpr, derivative=True) → its partials; without `derivative` as a linear function."""

_SAME = {k: k for k in range(64)}  # every axis is paired with itself; arrays have no more than 64


def forwards(moves: Iterable[Move]) -> Forwards:
    """For each node where the moves from it go, and how."""
    ways: dict[int, list[tuple[int, Mapping[int, int]]]] = {}
    for v, w, pairs in moves:
        ways.setdefault(v, []).append((w, pairs))
    return ways


def reachable(ways: Forwards, start: Iterable[int]) -> set[int]:
    """The nodes at the ends of all ways from some nodes, themselves included."""
    front = [*start]
    reached = {*front}
    while front:
        for w, _ in ways.get(front.pop(), ()):
            if w not in reached:
                reached.add(w)
                front.append(w)
    return reached


def _joined(flow: Flow, body: Body, names: Mapping[int, int], first: int) -> list[int | None]:
    """Adds a body's moves; its operands have the given nodes, its other nodes start at `first`.

    Returns:
      The node of each of its results.
    """

    def node(n: int) -> int:
        return names[n] if n in names else first + n

    flow.moves += [(node(v), node(w), pairs) for v, w, pairs in body.moves]
    return [None if n is None else node(n) for n in body.outputs]


def _loop(
    flow: Flow, body: Body, num_operands: int, carried: Mapping[int, int]
) -> list[int | None]:
    """Adds the body of a loop, whose result k comes back in as operand carried[k]."""
    outputs = _joined(flow, body, {i: i for i in range(num_operands)}, 0)
    for k, i in carried.items():
        node = outputs[k]
        if node is not None:
            flow.moves.append((node, i, _SAME))
    return outputs


def _scan(site: Site, body: BodyOf) -> Flow:
    """A loop: what is carried is one node, before and after."""
    closed, more = site.params["jaxpr"], int(site.params["length"] != 1)
    start, first_x = walk.carried(site)
    num_carry = first_x - start
    carried = {k: start + k for k in range(num_carry)}
    flow = Flow(carried=frozenset(carried.values()))
    outputs = _loop(flow, body(closed), len(site.in_avals), carried)
    for i in range(len(site.in_avals)):
        flow.operands[i] = i, more * (i >= first_x)
    for k, node in enumerate(outputs):
        if k < num_carry:
            flow.results[k] = carried[k], 0
        elif node is not None:
            flow.results[k] = node, more
    return flow


def _while(site: Site, body: BodyOf) -> Flow:
    """A loop of unknown length; the test moves nothing."""
    p = site.params
    skipped, num_consts = p["cond_nconsts"], p["body_nconsts"]
    flow = Flow()
    carried = {k: num_consts + k for k in range(len(site.out_avals))}
    _loop(flow, body(p["body_jaxpr"]), len(site.in_avals) - skipped, carried)
    flow.operands = {skipped + i: (i, 0) for i in range(len(site.in_avals) - skipped)}
    flow.results = {k: (i, 0) for k, i in carried.items()}
    return flow


def _cond(site: Site, body: BodyOf) -> Flow:
    """Branches: any of them may be taken."""
    num_operands, num_results = len(site.in_avals) - 1, len(site.out_avals)
    flow = Flow(
        operands={1 + i: (i, 0) for i in range(num_operands)},
        results={k: (num_operands + k, 0) for k in range(num_results)},
    )
    first = num_operands + num_results
    for branch in site.params["branches"]:
        inside = body(branch)
        outputs = _joined(flow, inside, {i: i for i in range(num_operands)}, first)
        for k, node in enumerate(outputs):
            if node is not None:
                flow.moves.append((node, num_operands + k, _SAME))
        first += inside.num_nodes
    return flow


def _solve(site: Site, body: BodyOf) -> Flow:
    """A linear solve: diagonal where the matrix is and the solver, which may be inexact, is too.

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


FLOWS: dict[str, Callable[[Site, BodyOf], Flow]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "custom_linear_solve": _solve,
}
