"""Axes along which an operator is diagonal: batch axes, mostly.

A primitive without a rule is one operator over all axes.  Along some of them it may still be a
separate map for every index: a decomposition of a batch of matrices, a loop over a batch of states.
Primitives with batch axes of their own have them by name here.  Loops, branches and solves have
them if their bodies do: an axis is followed from an operand through the partials of the body,
around the loop, to a result, and must stay one axis on every way.

Axes are numbered as in a structure, those of size one left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from veenv.rules.base import Pairs, Site
from veenv.trace import is_complex

Move = tuple[int, int, Mapping[int, int]]
"""From one node to another: a partial, as the out axis that each of its in axes is paired with."""


@dataclass
class Flow:
    """How derivatives flow through an equation with a body.

    Attributes:
      moves: the partials between nodes, which are numbers.
      operands: for each operand the node it enters at, and how many axes it has more in front.
      results: for each result the node it leaves from, and how many axes it has more in front.
    """

    moves: list[Move] = field(default_factory=list)
    operands: dict[int, tuple[int, int]] = field(default_factory=dict)
    results: dict[int, tuple[int, int]] = field(default_factory=dict)


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


BodyOf = Callable[[Any], Body]

_SAME = {k: k for k in range(64)}  # every axis is paired with itself; arrays have no more than 64

_MATRICES = frozenset(
    "cholesky cholesky_update eig eigh hessenberg householder_product lu qr geqrf geqp3 ormqr "
    "schur svd symmetric_product triangular_solve tridiagonal".split()
)
_SCATTERS = frozenset("scatter scatter-add scatter-sub scatter-mul scatter-min scatter-max".split())
_CUMULATIVE = frozenset("cumlogsumexp cummax cummin cumprod".split())


def parallel_axes(site: Site, body: BodyOf) -> Callable[[int, int], Pairs]:
    """Finds the axes along which the partials of an equation are diagonal.

    Args:
      site: an equation whose primitive has no rule.
      body: gives the partials inside a closed jaxpr.

    Returns:
      A function of the numbers of a result and of an operand. It gives (out axis, in axis) pairs:
      the partial is zero wherever the indices of a pair differ.
    """
    name = site.primitive.name
    if name in _FLOWS:
        flow = cache(lambda: _flow(site, body))
        ends = cache(lambda operand: _ends(flow(), operand, _rank(site, operand)))
        return lambda result, operand: _followed(flow(), ends(operand), result)
    named = _NAMED.get(name)

    def pairs(result: int, operand: int) -> Pairs:
        out, shape = site.out_avals[result].shape, site.in_avals[operand].shape
        found = [] if named is None else named(site, result, operand)
        return tuple(
            (_squeezed(out, k), _squeezed(shape, j)) for k, j in found if out[k] == shape[j] != 1
        )

    return pairs


def _flow(site: Site, body: BodyOf) -> Flow:
    """How derivatives flow through a body; nothing is known of one that has none by a constant.

    A body does not say which of its operands are constant, so all count as variables here.
    """
    try:
        return _FLOWS[site.primitive.name](site, body)
    except NotImplementedError:
        return Flow()


def _rank(site: Site, operand: int) -> int:
    """Number of axes of an operand that are not of size one, the parts of complex ones included."""
    aval = site.in_avals[operand]
    return sum(n != 1 for n in aval.shape) + (site.realify and is_complex(aval))


def _squeezed(shape: Sequence[int], axis: int) -> int:
    """Number of an axis when those of size one are left out."""
    return sum(n != 1 for n in shape[:axis])


def _leading(count: int) -> list[tuple[int, int]]:
    return [(k, k) for k in range(count)]


def _all_but(axis: int, rank: int) -> list[tuple[int, int]]:
    return [(k, k) for k in range(rank) if k != axis % rank]


def _matrices(site: Site, result: int, operand: int) -> list[tuple[int, int]]:
    return _leading(len(site.in_avals[0].shape) - 2)


def _tridiagonal_solve(site: Site, result: int, operand: int) -> list[tuple[int, int]]:
    return _leading(len(site.in_avals[0].shape) - 1)


def _fft(site: Site, result: int, operand: int) -> list[tuple[int, int]]:
    return _leading(len(site.in_avals[0].shape) - len(site.params["fft_lengths"]))


def _cumulative(site: Site, result: int, operand: int) -> list[tuple[int, int]]:
    return _all_but(site.params["axis"], len(site.in_avals[0].shape))


def _sort(site: Site, result: int, operand: int) -> list[tuple[int, int]]:
    return _all_but(site.params["dimension"], len(site.in_avals[0].shape))


def _top_k(site: Site, result: int, operand: int) -> list[tuple[int, int]]:
    return _all_but(site.params.get("axis", -1), len(site.in_avals[0].shape))


def _window(site: Site, result: int, operand: int) -> list[tuple[int, int]]:
    """Axes that the window does not reach along."""
    p = site.params
    kinds = "window_dimensions", "window_strides", "base_dilation", "window_dilation"
    each = zip(*(p[kind] for kind in kinds), p["padding"], strict=True)
    alone = (1, 1, 1, 1, (0, 0))
    return [(k, k) for k, (*sizes, pad) in enumerate(each) if (*sizes, tuple(pad)) == alone]


def _convolution(site: Site, result: int, operand: int) -> list[tuple[int, int]]:
    """Points of the batch, for the image; output features, for the kernel."""
    numbers = site.params["dimension_numbers"]
    if operand == 1:
        return [(numbers.out_spec[1], numbers.rhs_spec[0])]
    grouped = site.params["batch_group_count"] != 1
    return [] if grouped else [(numbers.out_spec[0], numbers.lhs_spec[0])]


def _gather(site: Site, result: int, operand: int) -> list[tuple[int, int]]:
    """Batch axes, and axes that are taken whole."""
    numbers, shape = site.params["dimension_numbers"], site.in_avals[0].shape
    rank = len(site.out_avals[0].shape)
    batch = [k for k in range(rank) if k not in numbers.offset_dims]
    at = numbers.operand_batching_dims, numbers.start_indices_batching_dims
    pairs = [(batch[k], j) for j, k in zip(*at, strict=True)]
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    kept = [j for j in range(len(shape)) if j not in gone]
    for k, j in zip(numbers.offset_dims, kept, strict=True):
        if site.params["slice_sizes"][j] == shape[j] and j not in numbers.start_index_map:
            pairs.append((k, j))
    return pairs


def _scatter(site: Site, result: int, operand: int) -> list[tuple[int, int]]:
    """Batch axes, and axes that are written whole; the operands are array, indices, updates."""
    numbers = site.params["dimension_numbers"]
    shape, updates = site.in_avals[0].shape, site.in_avals[2].shape
    batch = [k for k in range(len(updates)) if k not in numbers.update_window_dims]
    at = numbers.operand_batching_dims, numbers.scatter_indices_batching_dims
    pairs = [(j, batch[k]) for j, k in zip(*at, strict=True)]
    gone = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    kept = [j for j in range(len(shape)) if j not in gone]
    for k, j in zip(numbers.update_window_dims, kept, strict=True):
        if updates[k] == shape[j] and j not in numbers.scatter_dims_to_operand_dims:
            pairs.append((j, k))
    return pairs if operand == 2 else [(j, j) for j, _ in pairs]


_NAMED: dict[str, Callable[[Site, int, int], list[tuple[int, int]]]] = {
    **dict.fromkeys(_MATRICES, _matrices),
    **dict.fromkeys(_CUMULATIVE, _cumulative),
    **dict.fromkeys(("reduce_window_max", "reduce_window_min", "reduce_window_sum"), _window),
    **dict.fromkeys(_SCATTERS, _scatter),
    "conv_general_dilated": _convolution,
    "fft": _fft,
    "gather": _gather,
    "sort": _sort,
    "top_k": _top_k,
    "tridiagonal_solve": _tridiagonal_solve,
}


def _ends(flow: Flow, operand: int, rank: int) -> list[dict[int, int | None]]:
    """For each axis of an operand, the one axis of every node that it is paired with, or None."""
    if operand not in flow.operands:
        return []
    source, more = flow.operands[operand]
    ways: dict[int, list[tuple[int, Mapping[int, int]]]] = {}
    for v, w, pairs in flow.moves:
        ways.setdefault(v, []).append((w, pairs))
    found: list[dict[int, int | None]] = [{}] * more
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
        found.append(at)
    return found


def _followed(flow: Flow, ends: Sequence[Mapping[int, int | None]], result: int) -> Pairs:
    """The pairs of a result's axes with those whose ends are given."""
    if result not in flow.results:
        return ()
    target, more = flow.results[result]
    labels = ((axis, at.get(target)) for axis, at in enumerate(ends))
    return tuple((label + more, axis) for axis, label in labels if label is not None)


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
    num_carry = _num_alike(closed.out_avals, site.out_avals)
    first_x = _num_alike(closed.in_avals, site.in_avals)
    num_consts = first_x - num_carry
    flow = Flow()
    carried = {k: num_consts + k for k in range(num_carry)}
    outputs = _loop(flow, body(closed), len(site.in_avals), carried)
    for i in range(len(site.in_avals)):
        flow.operands[i] = i, more * (i >= first_x)
    for k, node in enumerate(outputs):
        if k < num_carry:
            flow.results[k] = num_consts + k, 0
        elif node is not None:
            flow.results[k] = node, more
    return flow


def _num_alike(inside: Sequence[Any], outside: Sequence[Any]) -> int:
    """How many variables of a loop are not stacked, with an axis more outside than inside."""
    pairs = zip(inside, outside, strict=True)
    return sum(len(a.shape) == len(b.shape) for a, b in pairs)


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
    """A linear solve: where the matrix is diagonal, its inverse is."""
    lengths = site.params["const_lengths"]
    first, num_consts = sum(lengths), lengths.matvec
    flow = Flow()
    unknowns = {k: num_consts + k for k in range(len(site.out_avals))}
    inside = body(site.params["jaxprs"].matvec)
    _loop(flow, inside, num_consts + len(unknowns), unknowns)
    flow.operands = {i: (i, 0) for i in range(num_consts)}
    flow.operands |= {first + k: (node, 0) for k, node in unknowns.items()}
    flow.results = {k: (node, 0) for k, node in unknowns.items()}
    return flow


_FLOWS: dict[str, Callable[[Site, BodyOf], Flow]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "custom_linear_solve": _solve,
}
