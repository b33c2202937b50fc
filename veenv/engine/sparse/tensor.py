"""`SparseTensor`: a block of a Jacobian that stores no structural zeros."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from veenv import _compat
from veenv.engine import edge
from veenv.engine.edge import Edge
from veenv.engine.edge_product import multiply
from veenv.engine.sparse import entries
from veenv.engine.sparse.entries import Entries, Indexed, Matrix
from veenv.engine.sparse.indexing import Sparse, merged_terms
from veenv.engine.sparse.pattern import Collection, Numbers, Pattern
from veenv.engine.sparse.solving import solve
from veenv.engine.sparse.summands import Term, host_values, layout_of, term
from veenv.engine.sums import evaluated
from veenv.structure import structure as algebra
from veenv.structure.structure import Link


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SparseTensor:
    """A partial derivative as a sum of structured terms: no structural zeros are stored.

    It is a matrix of flat out indices by flat in indices wherever a matrix is spoken of (`pattern`,
    `to_scipy`, `diagonal`).  A pytree: jit, vmap, scan and donation take it.  What `vmap` makes of
    one is a batch of tensors, whose methods apply to each.

    Attributes:
      terms: the summands; none means zero.
      out_shape: shape of the differentiated value.
      in_shape: shape of the variable it is differentiated by.
      dtype: dtype of the entries.
      zero: a zero of the dtype and the batch's shape where there are no terms to tell it.
      weak_type: the dense array gives way to any dtype that it meets, as Python's numbers do.

    Examples:
      >>> import jax.numpy as jnp, veenv
      >>> jacobian = veenv.jacve(jnp.sin, sparse_representation=True)(jnp.zeros(1000))
      >>> jacobian
      SparseTensor(float32[1000, 1000], nse=1000)
      >>> (jacobian @ jnp.ones(1000)).shape
      (1000,)
    """

    terms: tuple[Term | Entries, ...]
    out_shape: tuple[int, ...] = field(metadata={"static": True})
    in_shape: tuple[int, ...] = field(metadata={"static": True})
    dtype: Any = field(metadata={"static": True})
    zero: Array | None = None
    weak_type: bool = field(default=False, metadata={"static": True})

    __array_ufunc__ = None  # so that NumPy leaves `x @ tensor` to the tensor

    @classmethod
    def from_edges(
        cls, edges: Sequence[Edge], out_shape: Sequence[int], in_shape: Sequence[int], dtype: Any
    ) -> SparseTensor:
        """Returns the sum of edges of the engine between variables of the given shapes.

        An operator becomes dense, except along the axes where it is diagonal.
        """
        merged = merged_terms(evaluated(edges)) if edges else ()
        if isinstance(merged, Indexed):
            return cls.from_entries(merged, dtype, out_shape, in_shape)
        return cls._of(tuple(map(term, merged)), out_shape, in_shape, dtype)

    @classmethod
    def from_entries(cls, x: Matrix, dtype: Any, *shapes: Any) -> SparseTensor:
        """Returns the tensor of entries, of the matrix's or of other out and in shapes."""
        if isinstance(x, Entries):
            x = replace(x, values=x.values.astype(dtype))
            return cls._of((x,), *x.shapes, dtype)
        p = x.pattern.reshaped(*shapes)
        terms = [Entries(x.stored().astype(dtype), p)] if p.nse else []
        return cls._of(terms, p.out_shape, p.in_shape, dtype)

    @classmethod
    def _of(
        cls, terms: Sequence[Any], out_shape: Sequence[int], in_shape: Sequence[int], dtype: Any
    ) -> SparseTensor:
        dtype = jnp.dtype(dtype)
        zero = None if terms else jnp.zeros((), dtype)
        return cls(tuple(terms), tuple(out_shape), tuple(in_shape), dtype, zero)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch that `vmap` has made: () without one."""
        return self.terms[0].batch_shape if self.terms else getattr(self.zero, "shape", ())

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the dense tensor: `batch_shape` + `out_shape` + `in_shape`."""
        return self.batch_shape + self.out_shape + self.in_shape

    @property
    def ndim(self) -> int:
        """Number of axes, with those of the batch."""
        return len(self.shape)

    def __repr__(self) -> str:
        """Returns dtype, shape and number of entries; fields where `jax.tree` left no arrays."""
        if not all(hasattr(leaf, "shape") for leaf in jax.tree.leaves(self)):
            return f"SparseTensor(terms={self.terms}, dtype={self.dtype})"
        parts = [f"{self.dtype}{list(self.shape)}", f"nse={self.nse}"]
        if self.batch_shape or (len(self.out_shape), len(self.in_shape)) != (1, 1):
            parts[1:1] = [f"out_shape={self.out_shape}", f"in_shape={self.in_shape}"]
        return f"SparseTensor({', '.join(parts)})"

    @cached_property
    def _layout(self) -> tuple[Pattern, Collection] | None:
        """The pattern, and the sums of the terms' entries; None if it is computed."""
        one = _first_of_batch(self)
        return None if one is None else layout_of(one.terms, self.out_shape, self.in_shape)

    @property
    def layout(self) -> tuple[Pattern, Collection]:
        """The pattern, and the sums of the terms' entries that are its values.

        Raises:
          ValueError: if the places are computed inside of jit, or differ in a batch.
        """
        if self._layout is None:
            raise ValueError(
                f"the places of the entries of this tensor of shape {self.shape} are computed or "
                "differ in its batch; its pattern is known outside of jit, for one tensor at a time"
            )
        return self._layout

    @property
    def pattern(self) -> Pattern:
        """The places of the entries, each once, row by row: the same for all in a batch.

        Raises:
          ValueError: if they are computed inside of jit (by a sort, say), or differ in a batch.
        """
        key = self.terms[0].key() if len(self.terms) == 1 else None
        return key if isinstance(key, Pattern) else self.layout[0]

    def values(self, pattern: Pattern | None = None) -> Array:
        """Returns the values of the entries, in a pattern's order.

        Args:
          pattern: one that has all places of this tensor's; None: the tensor's own. A pattern that
            was found once, outside of jit, serves all values of a compiled function.

        Returns:
          Array of shape ``batch_shape + (nse,)``.

        Raises:
          ValueError: if the tensor has an entry outside the pattern, or places that are computed.
        """
        computed, collect = self.layout

        def values(j: SparseTensor) -> Array:
            raw = [t.entries().astype(j.dtype) for t in j.terms]
            return collect(jnp.concatenate([jnp.zeros(0, j.dtype), *raw]))

        stored = self.each(values)
        return (
            stored if pattern is None or pattern == computed else _spread(stored, computed, pattern)
        )

    def each(self, fun: Callable[..., Any], *rest: Any) -> Any:
        """Applies `fun` to every tensor of the batch, and to the same part of each of `rest`."""
        for _ in self.batch_shape:
            fun = jax.vmap(fun)
        wide = jax.dtypes.canonicalize_dtype(self.dtype) != self.dtype  # made while x64 was on
        with jax.enable_x64(True) if wide else nullcontext():
            return fun(self, *rest)

    @property
    def nse(self) -> int:
        """Number of entries; where places are computed, the most that it can be."""
        if self._layout is not None:
            return self.pattern.nse
        return sum(t.nse for t in self.terms)

    @property
    def bandwidth(self) -> tuple[int, int]:
        """The largest distances of an entry below the diagonal, and above it."""
        return self.pattern.bandwidth

    @property
    def T(self) -> SparseTensor:
        """The tensor with in axes first: shape `in_shape` + `out_shape`."""

        def transpose(j: SparseTensor) -> SparseTensor:
            edges = [edge.transpose(t.edge()) for t in j.terms if isinstance(t, Term)]
            structured = SparseTensor.from_edges(edges, j.in_shape, j.out_shape, j.dtype)
            terms = (*structured.terms, *(t.T for t in j.terms if isinstance(t, Entries)))
            return replace(structured, terms=terms, weak_type=j.weak_type)

        return self.each(transpose)

    def todense(self) -> Array:
        """Returns the dense array of `shape` and `dtype`."""
        return _compat.as_weak_as(self, self.each(_dense))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        del copy
        return np.asarray(self.todense(), dtype)

    def __matmul__(self, x: Any) -> Any:
        """Contracts the in axes with the first axes of an array, without making the tensor dense.

        Args:
          x: array of shape ``in_shape + rest``, or a `SparseTensor` with `out_shape` so; with the
            batch's axes in front where there is one.

        Returns:
          Array of shape ``out_shape + rest``; of two sparse tensors a sparse one.

        Raises:
          ValueError: if x's first axes are not `in_shape`.
        """
        sparse = isinstance(x, SparseTensor)
        x = x if sparse else jnp.asarray(x)
        expected = self.in_shape if sparse else self.batch_shape + self.in_shape
        if (x.out_shape if sparse else x.shape)[: len(expected)] != expected:
            raise ValueError(f"the array's first axes must be {expected}, got shape {x.shape}")
        return self.each(_product if sparse else _times, x)

    def __rmatmul__(self, x: Any) -> Array:
        """Contracts the last axes of an array of shape ``rest + out_shape`` with the out axes."""
        x = jnp.asarray(x)
        first = x.ndim - len(self.out_shape)
        if first < 0 or x.shape[first:] != self.out_shape:
            raise ValueError(f"the array's last axes must be {self.out_shape}, got shape {x.shape}")

        def one(j: SparseTensor, x: Array) -> Array:
            first, n = x.ndim - len(j.out_shape), len(j.in_shape)
            y = _times(j.T, x.transpose([*range(first, x.ndim), *range(first)]))
            return y.transpose([*range(n, y.ndim), *range(n)])

        return self.each(one, x)

    def __mul__(self, factor: Any) -> SparseTensor:
        if jnp.ndim(factor):
            raise ValueError(
                f"a sparse tensor is multiplied by one number, got shape {factor.shape}"
            )
        factor = jnp.asarray(factor)
        weak = self.weak_type and factor.weak_type
        real = jnp.issubdtype(self.dtype, jnp.complexfloating) or not jnp.iscomplexobj(factor)
        factor = factor.astype(self.dtype) if real else factor
        terms = tuple(t.scaled(factor) for t in self.terms)
        dtype = jnp.dtype(_compat.promoted(self.dtype, factor.dtype))
        return replace(self, terms=terms, dtype=dtype, weak_type=weak)

    __rmul__ = __mul__

    def __truediv__(self, factor: Any) -> SparseTensor:
        return self * (1 / jnp.asarray(factor, self.dtype))

    def __neg__(self) -> SparseTensor:
        return self * -1

    def __add__(self, other: SparseTensor) -> SparseTensor:
        return _added(self, other) if isinstance(other, SparseTensor) else NotImplemented

    def __sub__(self, other: SparseTensor) -> SparseTensor:
        return self + -other if isinstance(other, SparseTensor) else NotImplemented

    def __getitem__(self, index: Any) -> SparseTensor:
        """Returns a part, as NumPy's basic indices or one index array select it."""
        index = index if isinstance(index, tuple) else (index,)
        rank = len(self.out_shape) + len(self.in_shape)
        if any(i is None or isinstance(i, (bool, np.bool_)) for i in index):
            raise IndexError("a sparse tensor takes integers, slices and one array of them an axis")
        if Ellipsis not in [i for i in index if not hasattr(i, "shape")]:
            index = (*index, Ellipsis)
        at = next(n for n, i in enumerate(index) if i is Ellipsis)
        missing = rank - (len(index) - 1)
        if missing < 0:
            raise IndexError(f"the tensor has {rank} axes, got {len(index) - 1} indices")
        index = (*index[:at], *[slice(None)] * missing, *index[at + 1 :])
        outs, ins = index[: len(self.out_shape)], index[len(self.out_shape) :]
        rows, cols = _flat_indices(self.out_shape, outs), _flat_indices(self.in_shape, ins)

        def take(j: SparseTensor) -> SparseTensor:
            left = entries.selected(rows, j.out_shape, j.dtype)
            right = entries.transpose(entries.selected(cols, j.in_shape, j.dtype))
            part = entries.multiply_known(entries.multiply_known(left, j._indexed()), right)
            return SparseTensor.from_entries(part, j.dtype)

        return self.each(take)

    def diagonal(self) -> Array:
        """Returns entries at equal flat out and in indices: shape `out_shape` if square.

        Raises:
          ValueError: if the number of rows is not that of columns.
        """
        rows, cols = prod(self.out_shape), prod(self.in_shape)
        if rows != cols:
            raise ValueError(f"a diagonal needs as many rows as columns, got {rows} and {cols}")
        shape = (*self.batch_shape, *self.out_shape)
        p = self.pattern
        at = np.flatnonzero(p.rows == p.cols)
        values = jnp.zeros((*self.batch_shape, rows), self.dtype)
        values = values.at[..., p.rows[at]].set(self.values()[..., at], unique_indices=True)
        return values.reshape(shape)

    def trace(self) -> Array:
        """Returns the sum of the diagonal."""
        return self.diagonal().reshape(*self.batch_shape, -1).sum(axis=-1)

    def _indexed(self) -> Indexed:
        """Returns the tensor, without batch, as entries."""
        return Indexed(self.pattern, Numbers(self.values()), self.dtype)

    def solve(self, b: Any) -> Array:
        """Solves ``tensor @ x = b`` for x, as the pattern allows.

        A tensor that is not diagonal, tridiagonal or block-diagonal is solved by SciPy on the host.
        The solution is differentiable.

        Args:
          b: array of shape ``batch_shape + out_shape``.

        Returns:
          Array of shape ``batch_shape + in_shape``.

        Raises:
          ValueError: if the tensor is not square, or b has another shape.
        """
        return self.each(solve, jnp.asarray(b))

    def to_scipy(self, format: str = "csr") -> Any:  # SciPy's name
        """Returns an array of `scipy.sparse`: "csr", "csc", "coo" or another format.

        Raises:
          ValueError: if the tensor has a batch.
        """
        from scipy import sparse

        if self.batch_shape:
            raise ValueError(
                f"SciPy has no batches of matrices, got one of shape {self.batch_shape}"
            )
        p, collect = self.layout
        values = host_values(self.terms, collect, self.dtype)
        if format == "csc":
            order, starts = p.by_column
            matrix = sparse.csc_array((values[order], p.rows[order], starts.copy()), shape=p.sizes)
        elif format == "coo":
            return sparse.coo_array((values, (p.rows, p.cols)), shape=p.sizes)
        else:
            matrix = sparse.csr_array((values, p.cols.copy(), p.indptr.copy()), shape=p.sizes)
        matrix.has_canonical_format = True
        return matrix.asformat(format)

    def to_bcoo(self) -> Any:
        """Returns a `jax.experimental.sparse.BCOO`, sorted, no duplicates, no padding.

        Entries at places that are computed inside of jit stand as they are, zeros among them.
        """
        return self.each(_bcoo)

    def to_bcsr(self) -> Any:
        """Returns a `jax.experimental.sparse.BCSR`, sorted, no duplicates, no padding."""
        from jax.experimental import sparse

        def bcsr(j: SparseTensor) -> Any:
            p = j.pattern
            arrays = (j.values(), jnp.asarray(p.cols), jnp.asarray(p.indptr))
            return sparse.BCSR(arrays, shape=p.sizes, indices_sorted=True, unique_indices=True)

        return self.each(bcsr)


def _bcoo(j: SparseTensor) -> Any:
    """Returns a tensor without batch as a BCOO; zeros at place zero for entries without a place."""
    from jax.experimental import sparse

    known = j._layout is not None
    xp: Any = np if known else jnp
    if known:
        rows, cols, data = j.pattern.rows, j.pattern.cols, j.values()
    else:
        places = [t.traced_coordinates() for t in j.terms]
        rows, cols = map(jnp.concatenate, zip(*places, strict=True))
        values = jnp.concatenate([t.entries().astype(j.dtype) for t in j.terms])
        data = jnp.where(rows >= 0, values, 0)
    columns = [
        column
        for flat, side in ((rows, j.out_shape), (cols, j.in_shape))
        for column in (xp.unravel_index(xp.maximum(flat, 0), side) if side else ())
    ]
    indices = xp.stack(columns, axis=-1) if columns else np.zeros((len(data), 0))
    return sparse.BCOO(
        (data, jnp.asarray(indices, jnp.int32)),
        shape=j.out_shape + j.in_shape,
        indices_sorted=known,
        unique_indices=known,
    )


def _first_of_batch(j: SparseTensor) -> SparseTensor | None:
    """Returns one tensor of the batch, for its places; None if they are not the same for all.

    Places that are being traced stay as they are.
    """
    depth = len(j.batch_shape)
    if not depth:
        return j
    terms = []
    for t in j.terms:
        places = {}
        for name in ("partners", "rows", "cols"):
            each = getattr(t, name, None)
            if each is not None and not _compat.is_traced(each):
                each = np.asarray(each).reshape(-1, each.shape[-1])
                if not len(each) or (each != each[0]).any():
                    return None
                places[name] = each[0]
        terms.append(replace(t, **places))
    return replace(j, terms=tuple(terms))


def _spread(values: Array, current: Pattern, pattern: Pattern) -> Array:
    """Returns values in the order of a larger pattern, zero where a tensor has no entry.

    Raises:
      ValueError: if the tensor has an entry that the pattern has not.
    """
    shapes = (current.out_shape, current.in_shape), (pattern.out_shape, pattern.in_shape)
    if shapes[0] != shapes[1]:
        raise ValueError(f"the pattern must be of shapes {shapes[0]}, got {shapes[1]}")
    places = np.searchsorted(pattern.keys, current.keys)
    present = places < pattern.nse
    present[present] = pattern.keys[places[present]] == current.keys[present]
    if not present.all():
        at = int(np.argmin(present))
        raise ValueError(f"the pattern has no entry at ({current.rows[at]}, {current.cols[at]})")
    whole = jnp.zeros((*values.shape[:-1], pattern.nse), values.dtype)
    return whole.at[..., places].set(values, unique_indices=True, indices_are_sorted=True)


def _dense(j: SparseTensor) -> Array:
    """Returns the tensor, without batch, as a dense array."""
    if not j.terms:
        return jnp.zeros(j.shape, j.dtype)
    return reduce(jnp.add, [t.dense(j.dtype).reshape(j.out_shape + j.in_shape) for t in j.terms])


def _times(j: SparseTensor, x: Array) -> Array:
    """Multiplies the tensor, without batch, by an array of shape ``in_shape + rest``."""
    rest = x.shape[len(j.in_shape) :]
    ones_dropped = [d for d in x.shape if d != 1]
    right = Edge(algebra.dense(j.in_shape, rest), x.reshape(ones_dropped), x.dtype)
    dtype = _compat.promoted(j.dtype, x.dtype)
    total = jnp.zeros((*j.out_shape, *rest), dtype)
    for t in j.terms:
        flat = x.reshape(prod(j.in_shape), *rest).astype(dtype)
        if isinstance(t, Entries):
            total = total + t.times(flat).reshape(total.shape)
        else:
            product = multiply(t.edge(), right)
            total = total + edge.todense(product, j.out_shape, rest, dtype)
    return total


def _added(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    """Adds two tensors of one shape.

    Raises:
      ValueError: if the shapes differ.
    """
    if (a.out_shape, a.in_shape, a.batch_shape) != (b.out_shape, b.in_shape, b.batch_shape):
        raise ValueError(f"tensors to add must have one shape, got {a.shape} and {b.shape}")
    dtype = _compat.promoted(a.dtype, b.dtype)

    def add(a: SparseTensor, b: SparseTensor) -> SparseTensor:
        every = [*a.terms, *b.terms]
        edges = [t.edge() for t in every if isinstance(t, Term)]
        total = type(a).from_edges(edges, a.out_shape, a.in_shape, dtype)
        further = [t for t in every if isinstance(t, Entries)]
        known = [
            Indexed(t.pattern, Numbers(t.values), dtype) for t in further if t.pattern is not None
        ]
        further = [t for t in further if t.pattern is None]
        if known:
            x = entries.total_known(known)
            further.append(Entries(x.stored().astype(dtype), x.pattern))
        return replace(total, terms=(*total.terms, *further))

    return a.each(add, b)


def _product(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    """Multiplies two sparse tensors, without batch.

    Bands and diagonals multiply as they are; otherwise entries meet by their places.
    """
    every = [*a.terms, *b.terms]
    dtype = _compat.promoted(a.dtype, b.dtype)
    if all(isinstance(t, Term) and _is_thin(t) for t in every):
        post, pre = ([t.edge() for t in x.terms if isinstance(t, Term)] for x in (a, b))
        product = Sparse().multiply(tuple(post), tuple(pre)) if post and pre else ()
        if isinstance(product, Indexed):
            return type(a).from_entries(product, dtype, a.out_shape, b.in_shape)
        return type(a).from_edges(product, a.out_shape, b.in_shape, dtype)
    return type(a).from_entries(entries.multiply_known(a._indexed(), b._indexed()), dtype)


def _is_thin(t: Term) -> bool:
    """Returns whether a term has at most one entry in each row and column, at named places."""
    s = t.structure
    outs = all(k in s.link_out or j >= 0 for k, j in enumerate(s.pairs))
    ins = all(j in s.link_in or j in s.pairs for j in range(len(s.in_shape)))
    return outs and ins and (s.link is Link.NONE or t.places is not None)


def _flat_indices(shape: tuple[int, ...], index: Sequence[Any]) -> np.ndarray:
    """Returns the flat indices that an index selects of an array."""
    if sum(hasattr(i, "shape") or isinstance(i, list) for i in index) > 1:
        raise IndexError("one index array for the out axes and one for the in axes at most")
    if any(map(_compat.is_traced, index)):
        raise IndexError("the indices of a sparse tensor must be known when tracing")
    plain = tuple(np.asarray(i) if hasattr(i, "shape") else i for i in index)
    return np.arange(prod(shape)).reshape(shape)[plain]
