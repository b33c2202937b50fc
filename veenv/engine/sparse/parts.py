"""Sums, products and parts of sparse tensors, by their patterns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from veenv import _compat
from veenv.engine import edge
from veenv.engine.edge import Edge
from veenv.engine.product import multiply
from veenv.engine.sparse import indexed
from veenv.engine.sparse.computed import Computed
from veenv.engine.sparse.indexed import Indexed
from veenv.engine.sparse.numbers import Numbers
from veenv.engine.sparse.pattern import Collection, Pattern, placed
from veenv.engine.sparse.policy import Sparse
from veenv.engine.sparse.summands import Entries, Term
from veenv.structure import structure as algebra
from veenv.structure.structure import Link

Tensor = Any
"""A `SparseTensor`, whose methods these functions are."""


def first_of_batch(j: Tensor) -> Tensor | None:
    """A tensor of the batch, for its places; None if they are not the same for all.

    The places of those that are being traced are left as they are.
    """
    depth = len(j.batch_shape)
    if not depth:
        return j
    found = []
    for t in j.terms:
        places = {}
        for name in ("partners", "rows", "cols"):
            each = getattr(t, name, None)
            if each is not None and not _compat.is_traced(each):
                each = np.asarray(each).reshape(-1, each.shape[-1])
                if not len(each) or (each != each[0]).any():
                    return None
                places[name] = each[0]
        found.append(replace(t, **places))
    return replace(j, terms=tuple(found))


def known(layout: tuple[Pattern, Collection] | None, j: Tensor) -> tuple[Pattern, Collection]:
    """The layout of a tensor.

    Raises:
      ValueError: if its places are not known.
    """
    if layout is None:
        raise ValueError(
            f"the places of the entries of this tensor of shape {j.shape} are computed or differ "
            "in its batch; its pattern is known outside of jit, for one tensor at a time"
        )
    return layout


def spread(values: Array, own: Pattern, pattern: Pattern) -> Array:
    """Values in the order of a larger pattern, zero where a tensor has no entry.

    Raises:
      ValueError: if the tensor has an entry that the pattern has not.
    """
    shapes = (own.out_shape, own.in_shape), (pattern.out_shape, pattern.in_shape)
    if shapes[0] != shapes[1]:
        raise ValueError(f"the pattern must be of shapes {shapes[0]}, got {shapes[1]}")
    places = np.searchsorted(pattern.keys, own.keys)
    found = places < pattern.nse
    found[found] = pattern.keys[places[found]] == own.keys[found]
    if not found.all():
        at = int(np.argmin(found))
        raise ValueError(f"the pattern has no entry at ({own.rows[at]}, {own.cols[at]})")
    whole = jnp.zeros((*values.shape[:-1], pattern.nse), values.dtype)
    return whole.at[..., places].set(values, unique_indices=True, indices_are_sorted=True)


def transposed(t: Entries | Computed) -> Entries | Computed:
    """Entries with rows and columns exchanged."""
    if isinstance(t, Computed):
        return t.T
    x = indexed.transpose(Indexed(t.pattern, Numbers(t.values), t.values.dtype))
    return Entries(x.stored(), x.pattern)


def dense(j: Tensor) -> Array:
    """The tensor, without batch, as a dense array."""
    if not j.terms:
        return jnp.zeros(j.shape, j.dtype)
    return reduce(jnp.add, (_dense_summand(t, j) for t in j.terms))


def _dense_summand(t: Any, j: Tensor) -> Array:
    if isinstance(t, Computed):
        return t.dense(j.dtype)
    if not isinstance(t, Entries):
        return edge.todense(t.edge(), j.out_shape, j.in_shape, j.dtype)
    return placed(t.values.astype(j.dtype), t.pattern).reshape(j.out_shape + j.in_shape)


def check_axes(expected: tuple[int, ...], got: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Refuses arrays whose first axes are not the expected ones.

    Raises:
      ValueError: if they are not.
    """
    if got[: len(expected)] != expected:
        raise ValueError(f"the array's first axes must be {expected}, got shape {shape}")


def times(j: Tensor, x: Array) -> Array:
    """The tensor, without batch, times an array of shape ``in_shape + rest``."""
    rest = x.shape[len(j.in_shape) :]
    ones_dropped = [d for d in x.shape if d != 1]
    right = Edge(algebra.dense(j.in_shape, rest), x.reshape(ones_dropped), x.dtype)
    dtype = _compat.promoted(j.dtype, x.dtype)
    total = jnp.zeros((*j.out_shape, *rest), dtype)
    for t in j.terms:
        flat = x.reshape(prod(j.in_shape), *rest).astype(dtype)
        if isinstance(t, Computed | Entries):
            total = total + t.times(flat).reshape(total.shape)
        else:
            product = multiply(t.edge(), right)
            total = total + edge.todense(product, j.out_shape, rest, dtype)
    return total


def times_left(j: Tensor, x: Array) -> Array:
    """An array of shape ``rest + out_shape`` times the tensor.

    Raises:
      ValueError: if x's last axes are not `out_shape`.
    """
    first = x.ndim - len(j.out_shape)
    if first < 0 or x.shape[first:] != j.out_shape:
        raise ValueError(f"the array's last axes must be {j.out_shape}, got shape {x.shape}")

    def one(j: Tensor, x: Array) -> Array:
        first = x.ndim - len(j.out_shape)
        y = times(j.T, x.transpose([*range(first, x.ndim), *range(first)]))
        n = len(j.in_shape)
        return y.transpose([*range(n, y.ndim), *range(n)])

    return j.each(one, x)


def scaled(j: Tensor, factor: Any) -> Tensor:
    """The tensor times a number."""
    if jnp.ndim(factor):
        raise ValueError(f"a sparse tensor is multiplied by one number, got shape {factor.shape}")
    factor = jnp.asarray(factor)
    weak = j.weak_type and factor.weak_type
    real = jnp.issubdtype(j.dtype, jnp.complexfloating) or not jnp.iscomplexobj(factor)
    factor = factor.astype(j.dtype) if real else factor
    some = [
        replace(t, values=t.values * factor, **_as_stored(t)) if isinstance(t, Term)
        else replace(t, values=t.values * factor)
        for t in j.terms
    ]  # fmt: skip
    dtype = jnp.dtype(_compat.promoted(j.dtype, factor.dtype))
    return replace(j, terms=tuple(some), dtype=dtype, weak_type=weak)


def _as_stored(t: Term) -> dict[str, Any]:
    s = t.structure
    return {"structure": replace(s, unit=False)} if s.unit else {}


def added(a: Tensor, b: Tensor) -> Tensor:
    """The sum of two tensors of one shape.

    Raises:
      ValueError: if the shapes differ.
    """
    if (a.out_shape, a.in_shape, a.batch_shape) != (b.out_shape, b.in_shape, b.batch_shape):
        raise ValueError(f"tensors to add must have one shape, got {a.shape} and {b.shape}")
    dtype = _compat.promoted(a.dtype, b.dtype)

    def add(a: Tensor, b: Tensor) -> Tensor:
        every = [*a.terms, *b.terms]
        edges = [t.edge() for t in every if isinstance(t, Term)]
        total = type(a).from_edges(edges, a.out_shape, a.in_shape, dtype)
        known = [
            Indexed(t.pattern, Numbers(t.values), dtype) for t in every if isinstance(t, Entries)
        ]
        further: list[Any] = [t for t in every if isinstance(t, Computed)]
        if known:
            x = indexed.total(known)
            further.append(Entries(x.stored().astype(dtype), x.pattern))
        return replace(total, terms=(*total.terms, *further))

    return a.each(add, b)


def whole(j: Tensor) -> Indexed:
    """The tensor, without batch, as entries."""
    return Indexed(j.pattern, Numbers(j.values()), j.dtype)


def product(a: Tensor, b: Tensor) -> Tensor:
    """The product of two sparse tensors, without batch.

    Bands and diagonals multiply as they are; otherwise entries meet by their places.
    """
    every = [*a.terms, *b.terms]
    dtype = _compat.promoted(a.dtype, b.dtype)
    if all(isinstance(t, Term) and _is_thin(t) for t in every):
        post, pre = ([t.edge() for t in x.terms] for x in (a, b))
        some = Sparse().multiply(tuple(post), tuple(pre)) if post and pre else ()
        if isinstance(some, Indexed):
            return type(a).from_entries(some, dtype, a.out_shape, b.in_shape)
        return type(a).from_edges(some, a.out_shape, b.in_shape, dtype)
    return type(a).from_entries(indexed.multiply(whole(a), whole(b)), dtype)


def _is_thin(t: Term) -> bool:
    """Whether a term has an entry at most in each row and column, at places that have a name."""
    s = t.structure
    outs = all(k in s.link_out or j >= 0 for k, j in enumerate(s.pairs))
    ins = all(j in s.link_in or j in s.pairs for j in range(len(s.in_shape)))
    return outs and ins and (s.link is Link.NONE or t.places is not None)


def diagonal(j: Tensor) -> Array:
    """The entries at equal flat out and in indices."""
    rows, cols = prod(j.out_shape), prod(j.in_shape)
    if rows != cols:
        raise ValueError(f"a diagonal needs as many rows as columns, got {rows} and {cols}")
    shape = (*j.batch_shape, *j.out_shape)
    p = j.pattern
    at = np.flatnonzero(p.rows == p.cols)
    found = jnp.zeros((*j.batch_shape, rows), j.dtype)
    found = found.at[..., p.rows[at]].set(j.values()[..., at], unique_indices=True)
    return found.reshape(shape)


def block_diagonal(j: Tensor, blocks: int) -> Array:
    """The blocks on the diagonal of the matrix."""
    rows, cols = prod(j.out_shape), prod(j.in_shape)
    if blocks < 1 or rows % blocks or cols % blocks:
        raise ValueError(f"{blocks} blocks must divide {rows} rows and {cols} columns")
    height, width = rows // blocks, cols // blocks
    p = j.pattern
    at = np.flatnonzero(p.rows // height == p.cols // width)
    where = (p.rows[at] // height, p.rows[at] % height, p.cols[at] % width)
    found = jnp.zeros((*j.batch_shape, blocks, height, width), j.dtype)
    return found.at[(..., *where)].set(j.values()[..., at], unique_indices=True)


def part(j: Tensor, index: Any) -> Tensor:
    """A part of a tensor; the batch, if any, stays whole."""
    index = index if isinstance(index, tuple) else (index,)
    rank = len(j.out_shape) + len(j.in_shape)
    if any(i is None or isinstance(i, (bool, np.bool_)) for i in index):
        raise IndexError("a sparse tensor takes integers, slices and one array of them an axis")
    if Ellipsis not in [i for i in index if not hasattr(i, "shape")]:
        index = (*index, Ellipsis)
    at = next(n for n, i in enumerate(index) if i is Ellipsis)
    missing = rank - (len(index) - 1)
    if missing < 0:
        raise IndexError(f"the tensor has {rank} axes, got {len(index) - 1} indices")
    index = (*index[:at], *[slice(None)] * missing, *index[at + 1 :])
    outs, ins = index[: len(j.out_shape)], index[len(j.out_shape) :]
    rows, cols = _taken(j.out_shape, outs), _taken(j.in_shape, ins)

    def take(j: Tensor) -> Tensor:
        left = indexed.selected(rows, j.out_shape, j.dtype)
        right = indexed.transpose(indexed.selected(cols, j.in_shape, j.dtype))
        return type(j).from_entries(
            indexed.multiply(indexed.multiply(left, whole(j)), right), j.dtype
        )

    return j.each(take)


def _taken(shape: tuple[int, ...], index: Sequence[Any]) -> np.ndarray:
    """The flat indices that an index takes of an array."""
    if sum(hasattr(i, "shape") or isinstance(i, list) for i in index) > 1:
        raise IndexError("one index array for the out axes and one for the in axes at most")
    if any(map(_compat.is_traced, index)):
        raise IndexError("the indices of a sparse tensor must be known when tracing")
    plain = tuple(np.asarray(i) if hasattr(i, "shape") else i for i in index)
    return np.arange(prod(shape)).reshape(shape)[plain]
