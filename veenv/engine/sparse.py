"""`SparseTensor`: a block of a Jacobian that stores no structural zeros."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import sparse as jax_sparse

from veenv import _compat
from veenv.engine import edge
from veenv.engine.links import link_on_out
from veenv.engine.product import multiply
from veenv.engine.stored import Edge, respread_entries
from veenv.engine.terms import collect, evaluated
from veenv.linear.linear_map import LinearMap, Operator
from veenv.linear.selection import Affine, Selection
from veenv.structure import structure as algebra
from veenv.structure.structure import FREE, Link, Structure


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

    Example:
      >>> import veenv
      >>> jacobian = veenv.jacve(jnp.sin, sparse_representation=True)(jnp.zeros(3))
      >>> [(t.structure.describe(), t.values.tolist()) for t in jacobian.terms]
      [('i,i:i', [1.0, 1.0, 1.0])]
    """

    values: Array
    partners: Array | None
    structure: Structure = field(metadata={"static": True})
    places: Affine | None = field(default=None, metadata={"static": True})

    def edge(self) -> Edge:
        """The term as an edge of the engine."""
        s = self.structure
        link: LinearMap | None = None
        if self.places is not None:
            link = Selection(self.places, *_linked_shapes(s))
        elif self.partners is not None:
            link = _selection(s, self.partners)
        if s.unit:  # the number is ±1, but which is data
            s = algebra.stored(s)
        return Edge(s, self.values, self.values.dtype, 1, link)

    def partner_indices(self) -> Array | None:
        """As `partners`, also where `places` says them."""
        if self.places is None:
            return self.partners
        on_out = link_on_out(self.structure)
        return jnp.asarray((self.places if on_out else self.places.T).columns())


def _linked_shapes(s: Structure) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of the out and the in side of a link."""
    return tuple(s.out_shape[k] for k in s.link_out), tuple(s.in_shape[j] for j in s.link_in)


def _selection(s: Structure, partners: Array) -> Operator:
    """The linear map of a selection given by its partners."""
    out_shape, in_shape = _linked_shapes(s)
    on_out = link_on_out(s)
    small, large = (out_shape, in_shape) if on_out else (in_shape, out_shape)

    def gather(x: Array) -> Array:
        picked = x.reshape(-1)[jnp.maximum(partners, 0)]
        return jnp.where(partners >= 0, picked, 0).reshape(small)

    def scatter(x: Array) -> Array:
        kept = jnp.where(partners >= 0, x.reshape(-1), 0)
        zeros = jnp.zeros(prod(large), x.dtype)
        return zeros.at[jnp.maximum(partners, 0)].add(kept).reshape(large)

    apply, transpose = (gather, scatter) if on_out else (scatter, gather)
    return Operator(out_shape, in_shape, apply, transpose)


def term(e: Edge) -> Term:
    """An edge of the engine as a term that holds only arrays.

    Args:
      e: the edge, no operator.

    Example:
      >>> minus = Edge(algebra.diagonal((3,), valued=False), None, jnp.dtype("float32"), sign=-1)
      >>> float(term(minus).values)
      -1.0
    """
    s = e.structure
    values = jnp.ones((), e.dtype) if e.values is None else e.values
    partners = places = None
    if isinstance(e.link, Selection):
        places = e.link.places
    elif e.link is not None:
        on_out = prod(e.link.out_shape) <= prod(e.link.in_shape)
        large = e.link.in_shape if on_out else e.link.out_shape
        numbers = jnp.arange(1, prod(large) + 1, dtype=jnp.float64 if _wide(large) else jnp.float32)
        move = e.link.apply if on_out else e.link.transpose
        partners = move(numbers.reshape(large)).reshape(-1).astype(jnp.int32) - 1
    return Term(-values if e.sign < 0 else values, partners, s, places)


def _wide(shape: Sequence[int]) -> bool:
    """Whether float32 cannot tell the indices apart."""
    return prod(shape) >= 2**24


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SparseTensor:
    """A partial derivative as a sum of structured terms: no structural zeros are stored.

    Attributes:
      terms: the summands; none means zero.
      out_shape: shape of the differentiated value.
      in_shape: shape of the variable it is differentiated by.
      dtype: dtype of the entries.

    Example:
      >>> import jax.numpy as jnp, veenv
      >>> jacobian = veenv.jacve(jnp.sin, sparse_representation=True)(jnp.zeros(1000))
      >>> jacobian.shape, jacobian.nse
      ((1000, 1000), 1000)
      >>> (jacobian @ jnp.ones(1000)).shape
      (1000,)
    """

    terms: tuple[Term, ...]
    out_shape: tuple[int, ...] = field(metadata={"static": True})
    in_shape: tuple[int, ...] = field(metadata={"static": True})
    dtype: Any = field(metadata={"static": True})

    @classmethod
    def from_edges(
        cls, edges: Sequence[Edge], out_shape: Sequence[int], in_shape: Sequence[int], dtype: Any
    ) -> SparseTensor:
        """The sum of edges of the engine between variables of the given shapes.

        An operator is made dense but for the axes along which it is diagonal.
        """
        merged = collect(evaluated(edges)) if edges else ()
        return cls(tuple(map(term, merged)), tuple(out_shape), tuple(in_shape), jnp.dtype(dtype))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the dense tensor: `out_shape` + `in_shape`."""
        return self.out_shape + self.in_shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def nse(self) -> int:
        """Number of stored entries, repeated values counted at every place."""
        return sum(prod(_entry_shape(t.structure)) for t in self.terms)

    @property
    def T(self) -> SparseTensor:
        """The tensor with in axes first: shape `in_shape` + `out_shape`."""
        edges = [edge.transpose(t.edge()) for t in self.terms]
        return SparseTensor.from_edges(edges, self.in_shape, self.out_shape, self.dtype)

    def todense(self) -> Array:
        """The dense array of `shape` and `dtype`."""
        if not self.terms:
            return jnp.zeros(self.shape, self.dtype)
        dense = [
            edge.todense(t.edge(), self.out_shape, self.in_shape, self.dtype) for t in self.terms
        ]
        return reduce(jnp.add, dense)

    def dense(self, iota: Any = None) -> Array:
        """As `todense`, as graphax calls it; its unit matrix `iota` is not needed."""
        del iota
        return self.todense()

    def __matmul__(self, x: Any) -> Array:
        """Contracts the in axes with the first axes of a dense array, without densifying.

        Args:
          x: array of shape ``in_shape + rest``.

        Returns:
          Array of shape ``out_shape + rest``.

        Raises:
          ValueError: if x's first axes are not `in_shape`.
        """
        x = jnp.asarray(x)
        n = len(self.in_shape)
        if x.shape[:n] != self.in_shape:
            raise ValueError(f"the array's first axes must be {self.in_shape}, got shape {x.shape}")
        rest = x.shape[n:]
        ones_dropped = [d for d in x.shape if d != 1]
        right = Edge(algebra.dense(self.in_shape, rest), x.reshape(ones_dropped), x.dtype)
        dtype = _compat.promoted(self.dtype, x.dtype)
        total = jnp.zeros((*self.out_shape, *rest), dtype)
        for t in self.terms:
            product = multiply(t.edge(), right)
            total = total + edge.todense(product, self.out_shape, rest, dtype)
        return total

    def to_bcoo(self) -> jax_sparse.BCOO:
        """The tensor as a `jax.experimental.sparse.BCOO` of the same shape.

        Selections that skip entries are padded with explicit zeros.
        """
        parts = [_coordinates(t, self.out_shape, self.in_shape) for t in self.terms]
        if not parts:
            empty = jnp.zeros((0, self.ndim), jnp.int32)
            return jax_sparse.BCOO((jnp.zeros(0, self.dtype), empty), shape=self.shape)
        data = jnp.concatenate([d.astype(self.dtype) for d, _ in parts])
        indices = jnp.concatenate([i for _, i in parts])
        return jax_sparse.BCOO((data, indices), shape=self.shape)


def _entry_shape(s: Structure) -> list[int]:
    """Sizes along which a term has entries: out axes, link, in axes; pairs once."""
    sizes = [n for k, n in enumerate(s.out_shape) if k not in s.link_out]
    sizes += [s.link_size] if s.link is not Link.NONE else []
    return sizes + [n for j, n in enumerate(s.in_shape) if j not in s.pairs and j not in s.link_in]


def _coordinates(t: Term, out_shape: Sequence[int], in_shape: Sequence[int]) -> tuple[Array, Array]:
    """Data [n] and indices [n, ndim] of a term's entries."""
    s = t.structure
    shape = _entry_shape(s)
    grid = list(jnp.indices(shape, dtype=jnp.int32).reshape(len(shape), -1)) if shape else []
    count = prod(shape)
    free_out = [k for k in range(len(s.out_shape)) if k not in s.link_out]
    free_in = [j for j in range(len(s.in_shape)) if j not in s.pairs and j not in s.link_in]
    places: dict[tuple[str, int], Array] = {}
    for n, k in enumerate(free_out):
        places["out", k] = grid[n]
        if s.pairs[k] != FREE:
            places["in", s.pairs[k]] = grid[n]
    for n, j in enumerate(free_in):
        places["in", j] = grid[len(shape) - len(free_in) + n]
    data = respread_entries(t.values, s).reshape(-1)
    partners = t.partner_indices()
    if partners is not None:
        here = grid[len(free_out)]
        there = partners[here]
        data = jnp.where(there >= 0, data, 0)
        there = jnp.maximum(there, 0)
        out_sizes, in_sizes = _linked_shapes(s)
        flat_out, flat_in = (here, there) if link_on_out(s) else (there, here)
        places.update(_unravel("out", flat_out, s.link_out, out_sizes))
        places.update(_unravel("in", flat_in, s.link_in, in_sizes))
    columns = _full_axes("out", out_shape, places, count) + _full_axes(
        "in", in_shape, places, count
    )
    indices = jnp.stack(columns, axis=-1) if columns else jnp.zeros((count, 0), jnp.int32)
    return data, indices


def _unravel(
    side: str, flat: Array, axes: Sequence[int], sizes: Sequence[int]
) -> dict[tuple[str, int], Array]:
    if not axes:
        return {}
    parts = jnp.unravel_index(flat, tuple(sizes))
    return {(side, a): p.astype(jnp.int32) for a, p in zip(axes, parts, strict=True)}


def _full_axes(
    side: str, shape: Sequence[int], places: dict[tuple[str, int], Array], count: int
) -> list[Array]:
    """An index column for every axis; axes of size one, which structures leave out, are zero."""
    columns, number = [], 0
    for n in shape:
        if n == 1:
            columns.append(jnp.zeros(count, jnp.int32))
        else:
            columns.append(places[side, number])
            number += 1
    return columns
