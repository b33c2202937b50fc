"""Primitives of JAX that a kernel computes by others: what XLA calls a library for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from veenv.kernel import random_numbers
from veenv.kernel.program import CannotFuseError

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

    for _ in batch:
        one = jax.vmap(one)
    return one(a)


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


def _top_k(params: Mapping[str, Any], x: Array) -> Sequence[Array]:
    """The last entries of a sorted array, of equal ones the first; floats in their total order."""
    axis, keys = params.get("axis", x.ndim - 1), x
    if jnp.issubdtype(x.dtype, jnp.floating):
        bits = lax.bitcast_convert_type(x, f"int{8 * x.dtype.itemsize}")
        keys = jnp.where(bits < 0, bits ^ jnp.iinfo(bits.dtype).max, bits)
    columns = keys, lax.broadcasted_iota(jnp.int32, x.shape, axis), x
    ordered = lax.sort([lax.rev(c, [axis]) for c in columns], dimension=axis, num_keys=1)
    _, places, values = (
        lax.slice_in_dim(lax.rev(s, [axis]), 0, params["k"], axis=axis) for s in ordered
    )
    return [values, places]


def _cumlogsumexp(params: Mapping[str, Any], x: Array) -> Sequence[Array]:
    """As JAX has it: of pairs, of pairs of these, and so on."""
    axis, reverse = params["axis"], params["reverse"]
    return [lax.associative_scan(jnp.logaddexp, x, reverse=reverse, axis=axis)]


def _population_count(params: Mapping[str, Any], x: Array) -> Sequence[Array]:
    """How many bits are one: neighbours are added, then pairs of them, and so on."""
    bits = 8 * x.dtype.itemsize
    y = lax.bitcast_convert_type(x, f"uint{bits}")
    for width in (1, 2, 4, 8, 16, 32):
        if width < bits:
            mask = np.array((2**bits - 1) // (2**width + 1), y.dtype)
            y = (y & mask) + (lax.shift_right_logical(y, np.array(width, y.dtype)) & mask)
    return [lax.convert_element_type(y, x.dtype)]


_BODIES: Mapping[str, Callable[..., Any]] = {
    "cumlogsumexp": _cumlogsumexp, "population_count": _population_count, "svd": _svd,
    "top_k": _top_k, **random_numbers.BODIES,
}  # fmt: skip


def body_of(eqn: Any) -> Any | None:
    """What a primitive computes, as a closed jaxpr; None for others."""
    run = _BODIES.get(eqn.primitive.name)
    if run is None:
        return None
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars]
    return jax.make_jaxpr(functools.partial(run, eqn.params))(*shapes)
