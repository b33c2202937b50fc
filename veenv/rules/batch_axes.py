"""Batch axes of primitives without a rule, which are left as operators.

Each function here gives, for a result and an operand of an equation, (out axis, in axis) pairs: the
partial is zero wherever the indices of a pair differ.  Axes of size one are numbered too.
"""

from __future__ import annotations

from collections.abc import Callable

from veenv.rules.base import Site
from veenv.rules.table import named

CHOOSE = frozenset(("select_and_gather_add", "select_and_scatter_add"))
"""Primitives whose further operands only decide what is taken of the first."""


def _leading(count: int) -> list[tuple[int, int]]:
    return [(k, k) for k in range(count)]


def _all_but(axis: int, rank: int) -> list[tuple[int, int]]:
    return [(k, k) for k in range(rank) if k != axis % rank]


def _matrices(site: Site, result: int, operand: int) -> list[tuple[int, int]]:
    return _leading(len(site.in_avals[0].shape) - 2)


def _triangular_solve(site: Site, result: int, operand: int) -> list[tuple[int, int]]:
    """Matrices of a batch; the right sides of one matrix."""
    rank = len(site.in_avals[0].shape)
    several = rank - 1 if site.params["left_side"] else rank - 2
    return _leading(rank - 2) + [(several, several)] * (operand == 1)


def _tridiagonal_solve(site: Site, result: int, operand: int) -> list[tuple[int, int]]:
    """Matrices of a batch; the right sides of one matrix."""
    rank = len(site.in_avals[0].shape)
    return _leading(rank - 1) + [(rank, rank)] * (operand == 3)


def _fft(site: Site, result: int, operand: int) -> list[tuple[int, int]]:
    return _leading(len(site.in_avals[0].shape) - len(site.params["fft_lengths"]))


def _cumulative(site: Site, result: int, operand: int) -> list[tuple[int, int]]:
    return _all_but(site.params["axis"], len(site.in_avals[0].shape))


def _sort(site: Site, result: int, operand: int) -> list[tuple[int, int]]:
    return _all_but(site.params["dimension"], len(site.in_avals[0].shape))


def _approx_top_k(site: Site, result: int, operand: int) -> list[tuple[int, int]]:
    return _all_but(site.params["reduction_dimension"], len(site.in_avals[0].shape))


def _top_k(site: Site, result: int, operand: int) -> list[tuple[int, int]]:
    return _all_but(site.params.get("axis", -1), len(site.in_avals[0].shape))


def _window(site: Site, result: int, operand: int) -> list[tuple[int, int]]:
    """Axes that the window does not reach along."""
    p = site.params
    kinds = "window_dimensions", "window_strides", "base_dilation", "window_dilation"
    ones = (1,) * len(p["padding"])
    windows = zip(*(p.get(kind, ones) for kind in kinds), p["padding"], strict=True)
    alone = (1, 1, 1, 1, (0, 0))
    return [(k, k) for k, (*sizes, pad) in enumerate(windows) if (*sizes, tuple(pad)) == alone]


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


def _reduce(site: Site, result: int, operand: int) -> list[tuple[int, int]]:
    """Axes that are not reduced, of what is; the numbers to begin with come after."""
    rank, gone = len(site.in_avals[operand].shape), site.params["dimensions"]
    return list(enumerate(j for j in range(rank) if j not in gone)) if rank else []


def _elementwise(site: Site, result: int, operand: int) -> list[tuple[int, int]]:
    return _leading(len(site.out_avals[result].shape))


def _named_by_class(site: Site, result: int, operand: int) -> list[tuple[int, int]]:
    """Primitives that newer versions of JAX tell apart by a class alone."""
    own = type(site.params["_prim"])
    known = own.__name__ == "Ldexp" and own.__module__.startswith("jax.")
    return _elementwise(site, result, operand) if known else []


NAMED: dict[str, Callable[[Site, int, int], list[tuple[int, int]]]] = {
    **dict.fromkeys(named(form="matrix"), _matrices),
    **dict.fromkeys(named(form="running"), _cumulative),
    **dict.fromkeys(named(form="window"), _window),
    **dict.fromkeys(named(form="put"), _scatter),
    "approx_top_k": _approx_top_k,
    "call_hi_primitive": _named_by_class,
    "conv_general_dilated": _convolution,
    "fft": _fft,
    "gather": _gather,
    "random_gamma": _elementwise,
    "reduce": _reduce,
    "sort": _sort,
    "top_k": _top_k,
    "triangular_solve": _triangular_solve,
    "tridiagonal_solve": _tridiagonal_solve,
}
"""By primitive."""
