"""Numbers that are taken from an array, of which the gather is put off until they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from veenv.engine.sparse.pattern import Collection, taken
from veenv.linear.barrier import pin

_MOST_ADDED = 8
"""Most numbers of a sum that are taken one by one, in one loop."""


@dataclass(frozen=True, eq=False)
class Numbers:
    """The numbers ``signs * source[at]``.

    Attributes:
      source: [m].
      at: integers [n] below m; None: all of them, in order.
      signs: int8 [n], each 1 or -1; None: all 1.
      unit: whether `source` is one 1, so that signs are all there is to know.

    Example:
      >>> Numbers(jnp.array([1.0, 2.0, 3.0])).take(np.array([2, 0, 0])).array().tolist()
      [3.0, 1.0, 1.0]
    """

    source: Array
    at: np.ndarray | None = None
    signs: np.ndarray | None = None
    unit: bool = False

    @classmethod
    def ones(cls, count: int, dtype: Any, signs: np.ndarray | None = None) -> Numbers:
        """Ones, or numbers that are 1 or -1."""
        return cls(jnp.ones(1, dtype), np.zeros(count, np.int32), signs, unit=True)

    def __len__(self) -> int:
        return len(self.source) if self.at is None else len(self.at)

    def take(self, at: np.ndarray) -> Numbers:
        """Some of them."""
        signs = None if self.signs is None else self.signs[at]
        return replace(self, at=at if self.at is None else self.at[at], signs=signs)

    def signed(self, signs: np.ndarray | None) -> Numbers:
        """They with the signs [n]."""
        both = [s for s in (self.signs, signs) if s is not None]
        return replace(self, signs=reduce(np.multiply, both) if both else None)

    def astype(self, dtype: Any) -> Numbers:
        """The numbers in another dtype."""
        same = self.source.dtype == dtype
        return self if same else replace(self, source=self.source.astype(dtype))

    def array(self) -> Array:
        """They as an array [n]."""
        if self.signs is None or (self.signs > 0).all():
            return self.source if self.at is None else _taken(self.source, self.at)
        if (self.signs < 0).all():
            return -replace(self, signs=None).array()
        whole, at = self._unsigned()
        return _taken(whole, at)

    def _unsigned(self) -> tuple[Array, np.ndarray]:
        """An array that has the numbers with their signs, and where they are in it."""
        size = len(self.source)
        at = np.arange(size) if self.at is None else self.at
        if self.signs is None or (self.signs > 0).all():
            return self.source, at
        if size > 2 * len(at):  # not worth a second one
            signs = jnp.asarray(self.signs, self.source.dtype)
            return _taken(self.source, at) * signs, np.arange(len(at))
        whole = pin(jnp.concatenate([self.source, -self.source]))
        return whole, at + size * (self.signs < 0)

    def collected(self, collect: Collection) -> Numbers:
        """They added up as `collect` says."""
        if collect.alone:
            assert collect.table is not None
            return self.take(collect.table)
        if collect.table is None:
            assert collect.at is not None
            return joined([self.collected(group) for group in collect.groups]).take(collect.at)
        table = collect.table.reshape(collect.size, -1)
        full, at = self._unsigned()
        places = np.append(at, len(full))[table.T]
        if (table == len(self)).any():
            full = pin(jnp.concatenate([full, jnp.zeros(1, full.dtype)]))
        if len(places) > _MOST_ADDED:
            return Numbers(_taken(full, places.reshape(-1)).reshape(places.shape).sum(axis=0))
        return Numbers(reduce(add, (_taken(full, row) for row in places)))


def joined(several: Sequence[Numbers]) -> Numbers:
    """Numbers of one dtype one after another."""
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


def _taken(source: Array, at: np.ndarray) -> Array:
    """``source[at]``, by broadcasts and slices where they do."""
    m, n = len(source), len(at)
    if m == n and (at == np.arange(m)).all():
        return source
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
    return taken(source, at)
