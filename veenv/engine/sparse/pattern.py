"""Stores the places of a sparse matrix's entries, and gathers and adds up their values.

Places are index arrays of NumPy, known before any value; gathers are delayed until needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from math import prod
from operator import add
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from veenv import limits
from veenv.linear.barrier import pin


@dataclass(frozen=True, eq=False)
class Pattern:
    """The places of the entries of a sparse tensor, each once, row by row.

    Patterns of the same places are equal, so that a compiled function takes one for the other.

    Attributes:
      out_shape: shape of the out axes, whose flat indices are the rows.
      in_shape: shape of the in axes, whose flat indices are the columns.
      rows: int32 [nse], ascending.
      cols: int32 [nse], ascending within a row.

    Examples:
      >>> import jax.numpy as jnp, veenv
      >>> jacobian = veenv.jacve(lambda x: x[1:] * x[:-1], sparse_representation=True)(jnp.ones(3))
      >>> jacobian.pattern.rows.tolist(), jacobian.pattern.cols.tolist()
      ([0, 0, 1, 1], [0, 1, 1, 2])
    """

    out_shape: tuple[int, ...]
    in_shape: tuple[int, ...]
    rows: np.ndarray
    cols: np.ndarray

    def __repr__(self) -> str:
        """Returns shapes and number of entries."""
        return f"Pattern(out_shape={self.out_shape}, in_shape={self.in_shape}, nse={self.nse})"

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return prod(self.out_shape), prod(self.in_shape)

    @property
    def nse(self) -> int:
        """Number of entries."""
        return len(self.rows)

    @cached_property
    def indptr(self) -> np.ndarray:
        """The index of each row's first entry, int32 [rows + 1], as in CSR."""
        counts = np.bincount(self.rows, minlength=self.sizes[0])
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)

    @cached_property
    def by_column(self) -> tuple[np.ndarray, np.ndarray]:
        """The entries' order by column, int32 [nse], and the index of each column's first one."""
        counts = np.bincount(self.cols, minlength=self.sizes[1])
        order = np.argsort(self.cols, kind="stable").astype(np.int32)
        return order, np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)

    @cached_property
    def keys(self) -> np.ndarray:
        """The number row · columns + column of each entry, int64 [nse], ascending."""
        return self.rows.astype(np.int64) * self.sizes[1] + self.cols

    @property
    def bandwidth(self) -> tuple[int, int]:
        """The largest distances of an entry below the diagonal, and above it."""
        off = self.cols.astype(np.int64) - self.rows
        return (int(max(0, -off.min())), int(max(0, off.max()))) if self.nse else (0, 0)

    @cached_property
    def symmetric(self) -> bool:
        """True if the matrix is square, with an entry (j, i) for each entry (i, j)."""
        rows, width = self.sizes
        mirrored = self.cols.astype(np.int64) * width + self.rows
        return rows == width and np.array_equal(np.sort(mirrored), self.keys)

    @cached_property
    def _hash(self) -> int:
        return hash((self.out_shape, self.in_shape, self.rows.tobytes(), self.cols.tobytes()))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Pattern) or self._hash != other._hash:
            return False
        alike = (self.out_shape, self.in_shape) == (other.out_shape, other.in_shape)
        return alike and all(map(np.array_equal, (self.rows, self.cols), (other.rows, other.cols)))

    def reshaped(
        self, out_shape: Sequence[int] | None = None, in_shape: Sequence[int] | None = None
    ) -> Pattern:
        """Returns the places under other shapes of as many elements; None: the current one."""
        outs = self.out_shape if out_shape is None else tuple(out_shape)
        ins = self.in_shape if in_shape is None else tuple(in_shape)
        same = (outs, ins) == (self.out_shape, self.in_shape)
        return self if same else Pattern(outs, ins, self.rows, self.cols)

    @property
    def T(self) -> Pattern:
        """The places with rows and columns exchanged."""
        return collected(self.cols, self.rows, self.in_shape, self.out_shape)[0]


@dataclass(frozen=True, eq=False)
class Collection:
    """The index tables by which numbers are added up to results.

    Attributes:
      size: number of results.
      table: int32 [size], the number that each result is, or [size, k], those that it is the sum
        of, one past the last number where there are fewer than k; None where some have many more
        than others.
      groups: with `at`: the sums of few numbers, those of more, and so on, one table each.
      at: int32 [size], which of all their results each result is.
    """

    size: int
    table: np.ndarray | None
    groups: tuple[Collection, ...] = ()
    at: np.ndarray | None = None

    @property
    def is_gather(self) -> bool:
        """True if each result is one number."""
        return self.table is not None and self.table.ndim == 1

    def __call__(self, numbers: Array) -> Array:
        """Returns the results [size, …] of numbers [n, …]."""
        return Numbers(numbers).collected(self).array()

    def on_host(self, numbers: np.ndarray) -> np.ndarray:
        """Returns the results [size] of numbers [n] of NumPy."""
        if self.table is None:
            return np.concatenate([group.on_host(numbers) for group in self.groups])[self.at]
        if self.is_gather:
            return numbers[self.table]
        return np.append(numbers, numbers.dtype.type(0))[self.table].sum(axis=1)


def collection(order: np.ndarray, results: np.ndarray, size: int, total: int) -> Collection:
    """Returns the tables that add `total` numbers, ordered by result, to `size` results."""
    counts = np.bincount(results, minlength=size)
    most = int(counts.max(initial=0))
    if most <= 1 and len(order) == size:
        return Collection(size, order.astype(np.int32))
    length = np.searchsorted(limits.THIN ** np.arange(16, dtype=np.int64), counts)
    groups = np.unique(length)  # those of one number at most, of 2 to 4, of 5 to 16, …
    if len(groups) <= 1 or size * most <= limits.THIN * len(order):
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]]) if size else counts
        table = np.full((size, max(most, 1)), total, np.int32)
        table[results, np.arange(len(order)) - starts[results]] = order
        return Collection(size, table)
    at, groups_by_length, before = np.zeros(size, np.int32), [], 0
    for n in groups:
        in_group = length == n
        group_size, of_group = int(np.count_nonzero(in_group)), in_group[results]
        at[in_group] = before + np.arange(group_size)
        groups_by_length.append(
            collection(order[of_group], at[results[of_group]] - before, group_size, total)
        )
        before += group_size
    return Collection(size, None, tuple(groups_by_length), at)


def gathered(numbers: Array, at: np.ndarray) -> Array:
    """Gathers ``numbers[at]`` for indices in bounds; one gather, no arithmetic on indices."""
    indices, rest = at.astype(np.int32)[..., None], numbers.shape[1:]
    windows = tuple(range(at.ndim, at.ndim + len(rest)))
    axes = lax.GatherDimensionNumbers(windows, collapsed_slice_dims=(0,), start_index_map=(0,))
    return lax.gather(numbers, indices, axes, (1, *rest), mode="promise_in_bounds")


def collected(
    rows: np.ndarray, cols: np.ndarray, out_shape: Sequence[int], in_shape: Sequence[int]
) -> tuple[Pattern, Collection]:
    """Returns the pattern of entries that may repeat, and how their values are added up.

    Args:
      rows: integers [n], the flat out index of each entry; below zero: no entry.
      cols: integers [n], its flat in index; below zero: no entry.
      out_shape: shape of the out axes.
      in_shape: shape of the in axes.

    Examples:
      >>> pattern, collect = collected(np.array([1, 0, 1]), np.array([0, 1, 0]), (2,), (2,))
      >>> pattern.nse, collect(jnp.array([1.0, 2.0, 3.0])).tolist()
      (2, [2.0, 4.0])
    """
    width = prod(in_shape)
    keys = rows.astype(np.int64) * width + cols
    there = (rows >= 0) & (cols >= 0)
    total = len(keys)
    if total and (keys[1:] > keys[:-1]).all() and there.all():
        order = np.arange(total)
    else:
        order = np.argsort(keys, kind="stable")
        order = order[there[order]]
    keys = keys[order]
    first = np.concatenate([[True], keys[1:] != keys[:-1]]) if len(keys) else keys.astype(bool)
    unique = keys[first]
    places = (x.astype(np.int32) for x in np.divmod(unique, max(width, 1)))
    pattern = Pattern(tuple(out_shape), tuple(in_shape), *places)
    return pattern, collection(order, np.cumsum(first) - 1, len(unique), total)


def padded(numbers: Array, table: np.ndarray) -> Array:
    """Appends one zero to numbers [n, …], if a table of their indices has index n."""
    if not (table == len(numbers)).any():
        return numbers
    return jnp.concatenate([numbers, jnp.zeros((1, *numbers.shape[1:]), numbers.dtype)])


def placed(values: Array, pattern: Pattern) -> Array:
    """Returns the dense matrix of values [nse] at the places of a pattern."""
    rows, cols = pattern.sizes
    if pattern.nse == rows * cols:
        return values.reshape(rows, cols)
    if pattern.nse * limits.THIN >= rows * cols:  # a gather is faster than a scatter of many
        table = np.full(rows * cols, pattern.nse, np.int32)
        table[pattern.keys] = np.arange(pattern.nse)
        return gathered(padded(values, table), table).reshape(rows, cols)
    whole = jnp.zeros((rows, cols), values.dtype).at[pattern.rows, pattern.cols]
    return whole.set(values, unique_indices=True, indices_are_sorted=True)


def meetings(post: Pattern, pre: Pattern) -> tuple[np.ndarray, np.ndarray]:
    """Returns the numbers of the entries of post, and of pre, that meet in post · pre."""
    counts = np.diff(pre.indptr)[post.cols]
    of_post = np.repeat(np.arange(post.nse), counts)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]) if len(counts) else counts
    within = np.arange(len(of_post)) - np.repeat(starts, counts)
    return of_post, within + np.repeat(pre.indptr[:-1][post.cols], counts)


def num_meetings(post: Pattern, pre: Pattern) -> int:
    """Returns the number of products of entries that post · pre takes."""
    return int(np.diff(pre.indptr)[post.cols].sum())


@dataclass(frozen=True, eq=False)
class Numbers:
    """An array ``signs * source[at]`` whose gather is delayed.

    Attributes:
      source: [m, …].
      at: integers [n] below m; None: all of them, in order.
      signs: int8 [n], each 1 or -1; None: all 1.
      unit: whether `source` is one 1, so that signs are all there is to know.

    Examples:
      >>> Numbers(jnp.array([1.0, 2.0, 3.0])).take(np.array([2, 0, 0])).array().tolist()
      [3.0, 1.0, 1.0]
    """

    source: Array
    at: np.ndarray | None = None
    signs: np.ndarray | None = None
    unit: bool = False

    @classmethod
    def ones(cls, count: int, dtype: Any, signs: np.ndarray | None = None) -> Numbers:
        """Returns ones, or numbers that are 1 or -1."""
        return cls(jnp.ones(1, dtype), np.zeros(count, np.int32), signs, unit=True)

    def __len__(self) -> int:
        return len(self.source) if self.at is None else len(self.at)

    def take(self, at: np.ndarray) -> Numbers:
        """Returns the numbers at some indices."""
        signs = None if self.signs is None else self.signs[at]
        return replace(self, at=at if self.at is None else self.at[at], signs=signs)

    def signed(self, signs: np.ndarray | None) -> Numbers:
        """Returns the numbers times the signs [n]."""
        both = [s for s in (self.signs, signs) if s is not None]
        return replace(self, signs=reduce(np.multiply, both) if both else None)

    def astype(self, dtype: Any) -> Numbers:
        """Returns the numbers in another dtype."""
        same = self.source.dtype == dtype
        return self if same else replace(self, source=self.source.astype(dtype))

    def array(self) -> Array:
        """Returns the numbers as an array [n]."""
        if self.signs is None or (self.signs > 0).all():
            return self.source if self.at is None else _indexed(self.source, self.at)
        if (self.signs < 0).all():
            return -replace(self, signs=None).array()
        whole, at = self._unsigned()
        return _indexed(whole, at)

    def _unsigned(self) -> tuple[Array, np.ndarray]:
        """Returns an array that has the numbers with their signs, and where they are in it."""
        size = len(self.source)
        at = np.arange(size) if self.at is None else self.at
        if self.signs is None or (self.signs > 0).all():
            return self.source, at
        if size > 2 * len(at):  # a negated copy costs more
            signs = jnp.asarray(self.signs, self.source.dtype)
            return _indexed(self.source, at) * signs, np.arange(len(at))
        whole = pin(jnp.concatenate([self.source, -self.source]))
        return whole, at + size * (self.signs < 0)

    def collected(self, collect: Collection) -> Numbers:
        """Returns the sums that `collect` describes."""
        if collect.is_gather:
            assert collect.table is not None
            return self.take(collect.table)
        if collect.table is None:
            assert collect.at is not None
            return joined([self.collected(group) for group in collect.groups]).take(collect.at)
        table = collect.table.reshape(collect.size, -1)
        full, at = self._unsigned()
        places = np.append(at, len(full))[table.T]
        if (table == len(self)).any():
            full = pin(jnp.concatenate([full, jnp.zeros((1, *full.shape[1:]), full.dtype)]))
        if len(places) > limits.FEW:
            return Numbers(gathered(full, places).sum(axis=0))
        return Numbers(reduce(add, (_indexed(full, row) for row in places)))


def joined(several: Sequence[Numbers]) -> Numbers:
    """Concatenates numbers of one dtype."""
    signs = None
    if any(x.signs is not None for x in several):
        signs = np.concatenate(
            [np.ones(len(x), np.int8) if x.signs is None else x.signs for x in several]
        )
    if all(x.unit for x in several):
        return Numbers.ones(sum(map(len, several)), several[0].source.dtype, signs)
    sources: dict[int, Array] = {id(x.source): x.source for x in several}
    starts, size = {}, 0
    for name, source in sources.items():
        starts[name] = size
        size += len(source)
    at = [
        (np.arange(len(x.source)) if x.at is None else x.at) + starts[id(x.source)] for x in several
    ]
    parts = [*sources.values()]
    whole = parts[0] if len(parts) == 1 else pin(jnp.concatenate(parts))
    return Numbers(whole, np.concatenate(at), signs)


def _indexed(source: Array, at: np.ndarray) -> Array:
    """Returns ``source[at]``, by broadcasts and slices where they do."""
    m, n = len(source), len(at)
    if m == n and (at == np.arange(m)).all():
        return source
    if source.ndim > 1:
        return gathered(source, at)
    if n == 0:
        return source[:0]
    if (at == at[0]).all():
        one = source if m == 1 else lax.slice(source, (int(at[0]),), (int(at[0]) + 1,))
        return jnp.broadcast_to(one, (n,))
    if n % m == 0:
        if (at == np.arange(n) // (n // m)).all():
            return lax.broadcast_in_dim(source, (m, n // m), (0,)).reshape(n)
        if (at == np.arange(n) % m).all():
            return lax.broadcast_in_dim(source, (n // m, m), (1,)).reshape(n)
    step = int(at[1] - at[0])
    if step > 0 and (np.diff(at) == step).all():
        return lax.slice(source, (int(at[0]),), (int(at[-1]) + 1,), (step,))
    return gathered(source, at)
