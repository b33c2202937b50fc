"""Stores the structured summands of a `SparseTensor`, and finds the pattern of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from veenv import _compat, limits
from veenv.engine.edge import (
    Edge,
    align,
    entrywise,
    link_on_out,
    respread_entries,
    stored_values,
    todense,
)
from veenv.engine.sparse.pattern import Collection, Pattern, collected
from veenv.linear.linear_map import Affine, LinearMap, Operator, Selection, columns
from veenv.rules.indexmap import numbered, strides_of
from veenv.structure import structure as algebra
from veenv.structure.product import labels_of
from veenv.structure.structure import FREE, Structure


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Term:
    """One structured summand of a sparse tensor.

    Attributes:
      values: array of shape ``structure.value_shape``; one number, ±1, if it is unit.
      partners: int32 [T], for each index of the link's smaller side (the out side if equal) its
        flat index on the other side, -1 where it has none; None without link, and where `places`
        says it.
      structure: what the values mean.
      places: the link, if it is a stretch of one axis (a slice, say), which takes no memory.

    Examples:
      >>> import veenv
      >>> jacobian = veenv.jacve(jnp.sin, sparse_representation=True)(jnp.zeros(3))
      >>> [(t.structure.describe(), t.values.tolist()) for t in jacobian.terms]
      [('i,i:i', [1.0, 1.0, 1.0])]
    """

    values: Array
    partners: Array | np.ndarray | None
    structure: Structure = field(metadata={"static": True})
    places: Affine | None = field(default=None, metadata={"static": True})

    @property
    def nse(self) -> int:
        """Number of entries."""
        return prod(entrywise(self.structure).value_shape)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch that `vmap` has made: () without one."""
        shape = jnp.shape(self.values)
        return shape[: len(shape) - len(self.structure.value_shape)]

    def edge(self) -> Edge:
        """Returns the term as an edge of the engine."""
        s = self.structure
        link: LinearMap | None = None
        if self.places is not None:
            link = Selection(self.places, *_linked_shapes(s))
        elif self.partners is not None:
            link = _selection(s, self.partners)
        if s.unit:  # the number is ±1, but which is data
            s = algebra.stored(s)
        return Edge(s, self.values, self.values.dtype, 1, link)

    def partner_indices(self) -> Array | np.ndarray | None:
        """Returns `partners`, also where `places` says them."""
        if self.places is None:
            return self.partners
        on_out = link_on_out(self.structure)
        return jnp.asarray((self.places if on_out else self.places.T).columns())

    def scaled(self, factor: Array) -> Term:
        """Returns the term times a number."""
        s = self.structure
        return replace(self, values=self.values * factor, structure=replace(s, unit=False))

    def dense(self, dtype: Any) -> Array:
        """Returns the dense array, without axes of size one."""
        return todense(self.edge(), self.structure.out_shape, self.structure.in_shape, dtype)

    def entries(self) -> Array:
        """Returns the value of every entry, repeated at every place, in one axis."""
        return respread_entries(self.values, self.structure).reshape(-1)

    def key(self) -> tuple[Any, ...] | None:
        """Returns a key of the places of its entries; None if they are not known when tracing."""
        if self.places is not None or self.partners is None:
            return self.structure, self.places, None
        if _compat.is_traced(self.partners) or isinstance(self.partners, jax.ShapeDtypeStruct):
            return None
        return self.structure, None, np.asarray(self.partners, np.int32).tobytes()

    def coordinates(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Returns flat out and in index of every entry; None if not known when tracing.

        An entry that a selection does not have is at -1.
        """
        return None if (key := self.key()) is None else coordinates(key)

    def traced_coordinates(self) -> tuple[Array, Array]:
        """Returns flat out and in index of every entry, known or traced."""
        return _coordinates(self.structure, self.partner_indices(), jnp)


def _linked_shapes(s: Structure) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the shapes of the out and the in side of a link."""
    return tuple(s.out_shape[k] for k in s.link_out), tuple(s.in_shape[j] for j in s.link_in)


def _selection(s: Structure, partners: Array | np.ndarray) -> Operator:
    """Returns the linear map of a selection given by its partners."""
    out_shape, in_shape = _linked_shapes(s)
    on_out = link_on_out(s)
    small, large = (out_shape, in_shape) if on_out else (in_shape, out_shape)

    def gather(x: Array) -> Array:
        picked = x.reshape(-1)[jnp.maximum(partners, 0)]
        return jnp.where(partners >= 0, picked, 0).reshape(small)

    def scatter(x: Array) -> Array:
        selected = jnp.where(partners >= 0, x.reshape(-1), 0)
        zeros = jnp.zeros(prod(large), x.dtype)
        return zeros.at[jnp.maximum(partners, 0)].add(selected).reshape(large)

    apply, transpose = (gather, scatter) if on_out else (scatter, gather)
    return Operator(out_shape, in_shape, apply, transpose)


def term(e: Edge) -> Term:
    """Returns an edge of the engine as a term that holds only arrays.

    Args:
      e: the edge, no operator.

    Examples:
      >>> minus = Edge(algebra.diagonal((3,), valued=False), None, jnp.dtype("float32"), sign=-1)
      >>> float(term(minus).values)
      -1.0
    """
    if e.link is None or isinstance(e.link, Selection):
        return Term(stored_values(e), None, e.structure, e.link and e.link.places)
    on_out = prod(e.link.out_shape) <= prod(e.link.in_shape)
    large = e.link.in_shape if on_out else e.link.out_shape
    partners: Any = columns(e.link if on_out else e.link.T)
    if partners is None:
        move = e.link.apply if on_out else e.link.transpose
        with jax.ensure_compile_time_eval():  # inside of jit, too, unless places are computed
            # float32 cannot tell larger numbers apart
            dtype = jnp.float64 if prod(large) >= 2**24 else jnp.float32
            numbers = jnp.arange(1, prod(large) + 1, dtype=dtype)
            partners = move(numbers.reshape(large)).reshape(-1).astype(jnp.int32) - 1
    return Term(stored_values(e), partners, e.structure)


def coordinates(key: tuple[Any, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Returns flat out and in index of every entry of the terms that have a key."""
    s, places, partners = key
    if places is not None:
        partners = (places if link_on_out(s) else places.T).columns()
    elif partners is not None:
        partners = np.frombuffer(partners, np.int32)
    return _coordinates(s, partners, np)


def numbered_entries(s: Structure) -> np.ndarray:
    """Returns, for every entry in `Term.entries`' order, the flat index of its value."""
    every, numbers = entrywise(s), numbered(s.value_shape)
    of_axes: Any = align(numbers, labels_of(s), labels_of(every))
    return np.broadcast_to(of_axes, every.value_shape).reshape(-1)


def _coordinates(s: Structure, partners: Any, xp: Any) -> tuple[Any, Any]:
    """Returns flat out and in index of each entry, by NumPy or its like; -1 for none."""
    every = entrywise(s)
    out_strides, in_strides = strides_of(s.out_shape), strides_of(s.in_shape)
    rows = cols = xp.zeros(every.value_shape, np.int32)
    there: Any = None

    def along(axis: int, numbers: Any) -> Any:
        ones = [1] * (rows.ndim - 1)
        return xp.asarray(numbers, np.int32).reshape([*ones[:axis], -1, *ones[axis:]])

    for axis, (side, k) in enumerate(labels_of(every)):
        if side == "out":
            rows = rows + along(axis, np.arange(s.out_shape[k]) * out_strides[k])
            if s.pairs[k] != FREE:
                cols = cols + along(axis, np.arange(s.out_shape[k]) * in_strides[s.pairs[k]])
        elif side == "in":
            cols = cols + along(axis, np.arange(s.in_shape[k]) * in_strides[k])
        else:
            offsets = offsets_of(s.out_shape, s.link_out), offsets_of(s.in_shape, s.link_in)
            on_out = link_on_out(s)
            near, far = offsets if on_out else offsets[::-1]
            there = along(axis, partners) >= 0
            far = along(axis, xp.asarray(far)[xp.maximum(partners, 0)])
            rows = rows + (along(axis, near) if on_out else far)
            cols = cols + (far if on_out else along(axis, near))
    if there is not None:
        rows, cols = xp.where(there, rows, -1), xp.where(there, cols, -1)
    return rows.reshape(-1), cols.reshape(-1)


def offsets_of(shape: Sequence[int], axes: Sequence[int]) -> np.ndarray:
    """Returns the flat index of each index along some axes."""
    strides = strides_of(shape)
    total = np.zeros(1, np.int32)
    for k in axes:
        total = (total[:, None] + np.arange(shape[k], dtype=np.int32) * strides[k]).reshape(-1)
    return total


def layout_of(
    terms: Sequence[Any], out_shape: tuple[int, ...], in_shape: tuple[int, ...]
) -> tuple[Pattern, Collection] | None:
    """Returns the pattern of summands and the sums of their entries; None if it is computed."""
    keys = tuple(t.key() for t in terms)
    if None not in keys:
        return _layout(keys, out_shape, in_shape)
    term_places = [t.coordinates() for t in terms]
    known = [places for places in term_places if places is not None]
    return _collected(known, out_shape, in_shape) if len(known) == len(term_places) else None


def host_values(terms: Sequence[Any], collect: Collection, dtype: Any) -> np.ndarray:
    """Returns the values of a tensor's pattern, by NumPy, outside of jit and without batch."""
    numbers = [np.zeros(0, dtype)]
    for t in terms:
        values = np.asarray(t.values, dtype).reshape(-1)
        numbers.append(values[numbered_entries(t.structure)] if isinstance(t, Term) else values)
    return collect.on_host(np.concatenate(numbers))


@lru_cache(maxsize=limits.KEPT)
def _layout(
    keys: tuple[Any, ...], out_shape: tuple[int, ...], in_shape: tuple[int, ...]
) -> tuple[Pattern, Collection]:
    places = [(k.rows, k.cols) if isinstance(k, Pattern) else coordinates(k) for k in keys]
    return _collected(places, out_shape, in_shape)


def _collected(
    places: Sequence[tuple[np.ndarray, np.ndarray]], *shapes: tuple[int, ...]
) -> tuple[Pattern, Collection]:
    none = np.zeros(0, np.int32)
    rows, cols = (np.concatenate([none, *(f[k] for f in places)]) for k in (0, 1))
    return collected(rows, cols, *shapes)
