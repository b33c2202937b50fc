"""Primitives of JAX that a kernel computes by others: what XLA calls a library for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from veenv import _compat, limits
from veenv.kernel.building import random_numbers
from veenv.kernel.scalar_program import CannotFuseError
from veenv.linear.linear_map import Same

_MOST_SWEEPS = 30
"""Of Jacobi's method, which needs five to ten."""


def _svd(params: Mapping[str, Any], a: Array) -> Sequence[Array]:
    """One-sided Jacobi (Hestenes 1958); the signs of singular vectors are its own."""
    if params.get("subset_by_index") is not None:
        raise CannotFuseError("primitive 'svd' of some singular values cannot be fused", "svd")
    *batch, rows, columns = a.shape
    full, vectors = params["full_matrices"], params["compute_uv"]

    def one(a: Array) -> Sequence[Array]:
        turned, v, values = _rotated(a if rows >= columns else a.T)
        if not vectors:
            return [values]
        u, upper = lax.linalg.qr(turned, full_matrices=full)
        signs = jnp.where(jnp.diagonal(upper) < 0, -1, 1).astype(a.dtype)
        u = jnp.concatenate([u[:, : len(v)] * signs[None], u[:, len(v) :]], axis=1)
        return [values, u, v.T] if rows >= columns else [values, v, u.T]

    return random_numbers.along_axes(one, len(batch))(a)


def _rotated(a: Array) -> tuple[Array, Array, Array]:
    """A matrix with as many rows or more times a rotation, which makes its columns orthogonal.

    Also the rotation, and the lengths of the columns, which descend.
    """
    size, small = a.shape[1], jnp.finfo(a.dtype).eps

    def sweep(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        table, _, count = state
        largest = jnp.zeros((), a.dtype)
        for p, q in combinations(range(size), 2):
            x, y = table[:, p], table[:, q]
            alpha, beta, gamma = (jnp.sum(s[: len(a)] * t[: len(a)])
                                  for s, t in ((x, x), (y, y), (x, y)))  # fmt: skip
            off = jnp.abs(gamma) > small * jnp.sqrt(alpha) * jnp.sqrt(beta)
            largest = jnp.where(off, 1, largest)
            ratio = (beta - alpha) / jnp.where(off, 2 * gamma, 1)
            tangent = jnp.where(ratio < 0, -1, 1) / (jnp.abs(ratio) + jnp.sqrt(ratio * ratio + 1))
            tangent = jnp.where(off, tangent, 0)
            cosine = 1 / jnp.sqrt(tangent * tangent + 1)
            sine = cosine * tangent
            table = table.at[:, p].set(cosine * x - sine * y).at[:, q].set(sine * x + cosine * y)
        return table, largest, count + 1

    start = jnp.concatenate([a, jnp.eye(size, dtype=a.dtype)])
    table, _, _ = lax.while_loop(
        lambda state: (state[1] > 0) & (state[2] < _MOST_SWEEPS),
        sweep,
        (start, jnp.ones((), a.dtype), jnp.int32(0)),
    )
    lengths = jnp.sqrt(jnp.sum(table[: len(a)] * table[: len(a)], axis=0))
    table = jnp.concatenate([lengths[None], table])
    for end in range(size - 1, 0, -1):
        for i in range(end):
            pair = table[:, i : i + 2]
            table = table.at[:, i : i + 2].set(
                jnp.where(pair[0, 0] < pair[0, 1], pair[:, ::-1], pair)
            )
    return table[1 : len(a) + 1], table[len(a) + 1 :], table[0]


def _population_count(params: Mapping[str, Any], x: Array) -> Sequence[Array]:
    """Counts bits in pairs, then in fours, and so on."""
    width = 8 * x.dtype.itemsize
    counts, ones = x.astype(f"uint{width}"), (1 << width) - 1
    for shift in (1 << k for k in range(width.bit_length() - 1)):
        mask = counts.dtype.type(ones // ((1 << shift) + 1))
        counts = (counts & mask) + (counts >> shift & mask)
    return [counts.astype(x.dtype)]


def _total(x: Array) -> Array:
    """Integers in the total order of numbers: zeros by sign, and what is not a number, too."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x.astype(np.uint8) if x.dtype == bool else x
    bits = lax.bitcast_convert_type(x, f"int{8 * x.dtype.itemsize}")
    return jnp.where(bits < 0, bits ^ jnp.iinfo(bits.dtype).max, bits)


def _top_k(params: Mapping[str, Any], x: Array) -> Sequence[Array]:
    """The last entries of a sorted array, of equal ones the first; floats in their total order."""
    axis = params.get("axis", x.ndim - 1)
    columns = _total(x), lax.broadcasted_iota(jnp.int32, x.shape, axis), x
    ordered = lax.sort([lax.rev(c, [axis]) for c in columns], dimension=axis, num_keys=1)
    _, places, values = (
        lax.slice_in_dim(lax.rev(s, [axis]), 0, params["k"], axis=axis) for s in ordered
    )
    return [values, places]


def _search_sorted(params: Mapping[str, Any], table: Array, wanted: Array) -> Sequence[Array]:
    """Counts the entries of a sorted table before each of some numbers, or not after it."""
    primitive = params["_prim"]
    inner = primitive.params
    if table.ndim != inner["batch_dims"] + 1:
        raise CannotFuseError("primitive 'SearchSorted' can be fused for one axis", "SearchSorted")

    def before(x: Array, y: Array) -> Array:  # what is not a number comes last
        return (x < y) | ((x == x) & (y != y))

    def one(table: Array, wanted: Array) -> Array:
        x, y = jnp.broadcast_arrays(wanted[..., None], table)
        passed = ~before(x, y) if inner["side"] == "right" else before(y, x)
        return passed.sum(-1, primitive.out_aval.dtype)

    return [random_numbers.along_axes(one, inner["batch_dims"])(table, wanted)]


def _cumlogsumexp(params: Mapping[str, Any], x: Array) -> Sequence[Array]:
    """Scans as JAX does: over pairs, pairs of these, and so on."""
    axis, reverse = params["axis"], params["reverse"]
    return [lax.associative_scan(jnp.logaddexp, x, reverse=reverse, axis=axis)]


def _taps(params: Mapping[str, Any], x: Array, fill: Any) -> list[Array]:
    """Returns what each place of a window reads of a padded array, in the result's shape."""
    ones, pads = (1,) * x.ndim, params["padding"]
    spread, apart = (np.array(params.get(f"{k}_dilation", ones)) for k in ("base", "window"))
    sizes, strides = (np.array(params[f"window_{k}"]) for k in ("dimensions", "strides"))
    config = [
        (int(low), int(high), int(n) - 1) for (low, high), n in zip(pads, spread, strict=True)
    ]
    x = lax.pad(x, jnp.asarray(fill, x.dtype), config)
    reach = np.maximum((x.shape - (sizes - 1) * apart - 1) // strides * strides + 1, 0)
    starts = [np.array(tap) * apart * (reach > 0) for tap in np.ndindex(*sizes)]
    return [
        lax.slice(x, start.tolist(), (start + reach).tolist(), strides.tolist()) for start in starts
    ]


def bound(dtype: Any, largest: bool) -> Any:
    """The least or the largest number of a dtype."""
    if jnp.issubdtype(dtype, jnp.inexact):
        return jnp.inf if largest else -jnp.inf
    if jnp.issubdtype(dtype, jnp.bool_):
        return largest
    return jnp.iinfo(dtype).max if largest else jnp.iinfo(dtype).min


def _window_extreme(params: Mapping[str, Any], x: Array, largest: bool) -> Sequence[Array]:
    combine = lax.max if largest else lax.min
    return [functools.reduce(combine, _taps(params, x, bound(x.dtype, not largest)))]


def _window_reduction(params: Mapping[str, Any], *operands: Array) -> Sequence[Array]:
    """With any function, from the first place in a window to the last."""
    half, body = len(operands) // 2, _compat.open_jaxpr(params["jaxpr"])
    one = functools.partial(jax.core.eval_jaxpr, body, params["consts"])
    combine = random_numbers.along_axes(one, operands[0].ndim)
    rows = [_taps(params, x, fill) for x, fill in zip(operands, operands[half:], strict=False)]
    results = [jnp.full_like(row[0], fill) for row, fill in zip(rows, operands[half:], strict=True)]
    for taps in zip(*rows, strict=True):
        results = combine(*results, *taps)
    return results


def _keys(params: Mapping[str, Any], x: Array) -> tuple[list[Array], Any, Callable[..., Array]]:
    """Places by which one of a window is chosen, what is chosen over, and whether it stays."""
    stays = params["select_prim"].bind
    least = bound(x.dtype, params["select_prim"].name == "le")
    return _taps(params, x, least), least, stays


def _gathered(params: Mapping[str, Any], values: Array, x: Array) -> Sequence[Array]:
    """Gathers the value at each window's extreme, the first of equal ones."""
    taps, least, stays = _keys(params, x)
    best, extreme = jnp.full_like(taps[0], least), jnp.zeros_like(taps[0], values.dtype)
    for key, value in zip(taps, _taps(params, values, 0), strict=True):
        old = stays(best, key)
        best, extreme = jnp.where(old, best, key), jnp.where(old, extreme, value)
    return [extreme]


def _scattered(params: Mapping[str, Any], values: Array, x: Array) -> Sequence[Array]:
    """The values of windows, added where the window has its extreme."""
    taps, _, stays = _keys(params, x)
    best, old = taps[0], []
    for key in taps[1:]:
        old.append(stays(best, key))
        best = jnp.where(old[-1], best, key)
    parts = []
    for before in reversed(old):
        parts.append(jnp.where(before, 0, values))
        values = jnp.where(before, values, 0)
    places = jax.linear_transpose(lambda y: _taps(params, y, 0), x)
    return places([values, *reversed(parts)])


def _eig(params: Mapping[str, Any], a: Array) -> Sequence[Array]:
    """A primitive without a body."""
    raise CannotFuseError(
        "primitive 'eig' cannot be fused: take jnp.linalg.eigh where the matrix is symmetric, or "
        "compute eigenvalues outside of the kernel",
        "eig",
    )


_BODIES: Mapping[str, Callable[..., Any]] = {
    "SearchSorted": _search_sorted, "cumlogsumexp": _cumlogsumexp, "eig": _eig,
    "le_to": lambda _, x, y: [_total(x) <= _total(y)],
    "lt_to": lambda _, x, y: [_total(x) < _total(y)],
    "population_count": _population_count, "svd": _svd, "top_k": _top_k,
    "reduce_window": _window_reduction,
    "reduce_window_max": functools.partial(_window_extreme, largest=True),
    "reduce_window_min": functools.partial(_window_extreme, largest=False),
    "reduce_window_sum": lambda p, x: [functools.reduce(lax.add, _taps(p, x, 0))],
    "select_and_gather_add": _gathered, "select_and_scatter_add": _scattered,
    **random_numbers.BODIES,
}  # fmt: skip


def name_of(eqn: Any) -> str:
    """The name of a primitive; newer versions of JAX tell some apart by a class alone."""
    kind = type(eqn.params.get("_prim"))
    if kind is type(None):
        return eqn.primitive.name
    own = kind.__module__.startswith("jax.")
    return kind.__name__ if own else f"{kind.__module__}.{kind.__name__}"


def body_of(eqn: Any) -> Any | None:
    """Returns a primitive's decomposition as a closed jaxpr; None for primitives without one."""
    formula = _found(eqn)
    return None if isinstance(formula, CannotFuseError) else formula


def refusal(eqn: Any) -> CannotFuseError | None:
    """Explains why an equation has no decomposition where others of its primitive have one."""
    formula = _found(eqn)
    return formula if isinstance(formula, CannotFuseError) else None


def _found(eqn: Any) -> Any | CannotFuseError | None:
    return _traced(Same(eqn)) if name_of(eqn) in _BODIES else None


@functools.lru_cache(maxsize=limits.REMEMBERED)
def _traced(same: Same) -> Any:
    eqn = same.item
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars]
    try:
        return jax.make_jaxpr(functools.partial(_BODIES[name_of(eqn)], eqn.params))(*shapes)
    except CannotFuseError as error:
        return CannotFuseError(error.reason, error.primitive)  # without the frames that it came by
