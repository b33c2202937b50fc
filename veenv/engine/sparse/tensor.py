"""`SparseTensor`: a block of a Jacobian that stores no structural zeros."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from veenv import _compat
from veenv.engine import edge
from veenv.engine.edge import Edge
from veenv.engine.sparse import convert, parts
from veenv.engine.sparse.computed import Computed
from veenv.engine.sparse.indexed import Indexed
from veenv.engine.sparse.layout import layout_of
from veenv.engine.sparse.pattern import Collection, Pattern
from veenv.engine.sparse.policy import collected as merged_terms
from veenv.engine.sparse.solving import solve
from veenv.engine.sparse.summands import Entries, Term, term
from veenv.engine.sums import evaluated


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

    Example:
      >>> import jax.numpy as jnp, veenv
      >>> jacobian = veenv.jacve(jnp.sin, sparse_representation=True)(jnp.zeros(1000))
      >>> jacobian.shape, jacobian.nse
      ((1000, 1000), 1000)
      >>> (jacobian @ jnp.ones(1000)).shape
      (1000,)
    """

    terms: tuple[Term | Entries | Computed, ...]
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
        """The sum of edges of the engine between variables of the given shapes.

        An operator is made dense but for the axes along which it is diagonal.
        """
        merged = merged_terms(evaluated(edges)) if edges else ()
        if isinstance(merged, Indexed):
            return cls.from_entries(merged, dtype, out_shape, in_shape)
        return cls._of(tuple(map(term, merged)), out_shape, in_shape, dtype)

    @classmethod
    def from_entries(cls, x: Indexed | Computed, dtype: Any, *shapes: Any) -> SparseTensor:
        """The tensor of entries, of the matrix's or of other out and in shapes."""
        if isinstance(x, Computed):
            return cls._of((x.astype(dtype),), x.out_shape, x.in_shape, dtype)
        p = x.pattern.reshaped(*shapes)
        some = [Entries(x.stored().astype(dtype), p)] if p.nse else []
        return cls._of(some, p.out_shape, p.in_shape, dtype)

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

    @cached_property
    def _layout(self) -> tuple[Pattern, Collection] | None:
        """The pattern, and how the terms' entries become its values; None if it is computed."""
        one = parts.first_of_batch(self)
        return None if one is None else layout_of(one.terms, self.out_shape, self.in_shape)

    @property
    def pattern(self) -> Pattern:
        """The places of the entries, each once, row by row: the same for all in a batch.

        Raises:
          ValueError: if they are computed inside of jit (by a sort, say), or differ in a batch.
        """
        if len(self.terms) == 1 and isinstance(self.terms[0], Entries):
            return self.terms[0].pattern
        return parts.known(self._layout, self)[0]

    def values(self, pattern: Pattern | None = None) -> Array:
        """The values of the entries, in a pattern's order.

        Args:
          pattern: one that has all places of this tensor's; None: the tensor's own. A pattern that
            was found once, outside of jit, serves all values of a compiled function.

        Returns:
          Array of shape ``batch_shape + (nse,)``.

        Raises:
          ValueError: if the tensor has an entry outside the pattern, or places that are computed.
        """
        own, collect = parts.known(self._layout, self)

        def values(j: SparseTensor) -> Array:
            raw = [t.entries().astype(j.dtype) for t in j.terms]
            return collect(jnp.concatenate([jnp.zeros(0, j.dtype), *raw]))

        found = self.each(values)
        return found if pattern is None or pattern == own else parts.spread(found, own, pattern)

    def each(self, fun: Callable[..., Any], *others: Any) -> Any:
        """`fun` of every tensor of the batch, and of others' parts with the same leading axes."""
        for _ in self.batch_shape:
            fun = jax.vmap(fun)
        wide = jax.dtypes.canonicalize_dtype(self.dtype) != self.dtype  # made while x64 was on
        with jax.enable_x64(True) if wide else nullcontext():
            return fun(self, *others)

    @property
    def nse(self) -> int:
        """Number of entries; where places are computed, the most that it can be."""
        if self._layout is not None:
            return self.pattern.nse
        return sum(t.nse for t in self.terms)

    @property
    def bandwidth(self) -> tuple[int, int]:
        """The most that an entry is below the diagonal, and above it."""
        return self.pattern.bandwidth

    @property
    def T(self) -> SparseTensor:
        """The tensor with in axes first: shape `in_shape` + `out_shape`."""

        def transpose(j: SparseTensor) -> SparseTensor:
            edges = [edge.transpose(t.edge()) for t in j.terms if isinstance(t, Term)]
            found = SparseTensor.from_edges(edges, j.in_shape, j.out_shape, j.dtype)
            some = [parts.transposed(t) for t in j.terms if not isinstance(t, Term)]
            return replace(found, terms=(*found.terms, *some), weak_type=j.weak_type)

        return self.each(transpose)

    def todense(self) -> Array:
        """The dense array of `shape` and `dtype`."""
        return _compat.as_weak_as(self, self.each(parts.dense))

    def dense(self, iota: Any = None) -> Array:
        """As `todense`, as graphax calls it; its unit matrix `iota` is not needed."""
        return self.todense()

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
        if isinstance(x, SparseTensor):
            parts.check_axes(self.in_shape, x.out_shape, x.shape)
            return self.each(parts.product, x)
        x = jnp.asarray(x)
        parts.check_axes(self.batch_shape + self.in_shape, x.shape, x.shape)
        return self.each(parts.times, x)

    def __rmatmul__(self, x: Any) -> Array:
        """Contracts the last axes of an array of shape ``rest + out_shape`` with the out axes."""
        return parts.times_left(self, jnp.asarray(x))

    def __mul__(self, factor: Any) -> SparseTensor:
        return parts.scaled(self, factor)

    __rmul__ = __mul__

    def __truediv__(self, factor: Any) -> SparseTensor:
        return parts.scaled(self, 1 / jnp.asarray(factor, self.dtype))

    def __neg__(self) -> SparseTensor:
        return parts.scaled(self, -1)

    def __add__(self, other: SparseTensor) -> SparseTensor:
        return parts.added(self, other) if isinstance(other, SparseTensor) else NotImplemented

    def __sub__(self, other: SparseTensor) -> SparseTensor:
        return self + -other if isinstance(other, SparseTensor) else NotImplemented

    def __getitem__(self, index: Any) -> SparseTensor:
        """A part, as NumPy's basic indices or one index array take it."""
        return parts.part(self, index)

    def diagonal(self) -> Array:
        """The entries at equal flat out and in indices: shape `out_shape` if the tensor is square.

        Raises:
          ValueError: if the number of rows is not that of columns.
        """
        return parts.diagonal(self)

    def trace(self) -> Array:
        """The sum of the diagonal."""
        return self.diagonal().reshape(*self.batch_shape, -1).sum(axis=-1)

    def block_diagonal(self, blocks: int) -> Array:
        """The blocks on the diagonal of the matrix, cut into as many rows and columns of blocks.

        Args:
          blocks: how many blocks; it must divide the numbers of rows and columns.

        Returns:
          Array of shape ``batch_shape + (blocks, rows / blocks, columns / blocks)``.

        Raises:
          ValueError: if it does not divide them.
        """
        return parts.block_diagonal(self, blocks)

    def solve(self, b: Any) -> Array:
        """x with ``tensor @ x = b``, as the pattern allows.

        On the host by SciPy if it is not diagonal, tridiagonal or block-diagonal; differentiable.

        Args:
          b: array of shape ``batch_shape + out_shape``.

        Returns:
          Array of shape ``batch_shape + in_shape``.

        Raises:
          ValueError: if the tensor is not square, or b has another shape.
        """
        return self.each(solve, jnp.asarray(b))

    def to_scipy(self, format: str = "csr") -> Any:  # as SciPy calls it
        """The matrix as an array of `scipy.sparse`: "csr", "csc", "coo" or another format."""
        return convert.to_scipy(self, format)

    def to_bcoo(self) -> Any:
        """The tensor as a `jax.experimental.sparse.BCOO`, sorted, no duplicates, no padding.

        Entries at places that are computed inside of jit stand as they are, zeros among them.
        """
        return self.each(convert.to_bcoo)

    def to_bcsr(self) -> Any:
        """The matrix as a `jax.experimental.sparse.BCSR`, sorted, no duplicates, no padding."""
        return self.each(convert.to_bcsr)

    def spy(self, ax: Any = None, **style: Any) -> Any:
        """Draws the pattern with Matplotlib, on its axes `ax` or new ones, which are returned.

        Args:
          ax: the axes.
          **style: for Matplotlib's `plot`.
        """
        return convert.spy(self, ax, **style)
