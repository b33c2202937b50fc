"""Numbers that are taken from an array, of which the gather is put off until they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from veenv.engine.sparse.pattern import Collection, taken

_MOST_ADDED = 8
"""Most numbers of a sum that are taken one by one, in one loop."""


@dataclass(frozen=True, eq=False)
class Numbers:
    """The numbers ``source[at]``.

    Attributes:
      source: [m].
      at: integers [n] below m; None: all of them, in order.

    Example:
      >>> Numbers(jnp.array([1.0, 2.0, 3.0])).take(np.array([2, 0, 0])).array().tolist()
      [3.0, 1.0, 1.0]
    """

    source: Array
    at: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.source) if self.at is None else len(self.at)

    def take(self, at: np.ndarray) -> Numbers:
        """Some of them."""
        return Numbers(self.source, at if self.at is None else self.at[at])

    def astype(self, dtype: Any) -> Numbers:
        """The numbers in another dtype."""
        return self if self.source.dtype == dtype else Numbers(self.source.astype(dtype), self.at)

    def array(self) -> Array:
        """They as an array [n]."""
        return self.source if self.at is None else _taken(self.source, self.at)

    def collected(self, collect: Collection) -> Numbers:
        """They added up as `collect` says."""
        if collect.alone:
            assert collect.table is not None
            return self.take(collect.table)
        if collect.table is None:
            assert collect.at is not None
            return joined([self.collected(group) for group in collect.groups]).take(collect.at)
        if collect.table.shape[1] > _MOST_ADDED:
            return Numbers(collect(self.array()))
        own = np.arange(len(self.source)) if self.at is None else self.at
        places = np.append(own, len(self.source))[collect.table]
        full = self.source
        if len(collect.table) and (collect.table == len(self)).any():
            full = jnp.concatenate([full, jnp.zeros(1, full.dtype)])
        return Numbers(reduce(add, (_taken(full, places[:, k]) for k in range(places.shape[1]))))


def joined(several: Sequence[Numbers]) -> Numbers:
    """Numbers of one dtype one after another."""
    sources: dict[int, Array] = {id(x.source): x.source for x in several}
    starts, size = {}, 0
    for name, source in sources.items():
        starts[name] = size
        size += len(source)
    at = [
        (np.arange(len(x.source)) if x.at is None else x.at) + starts[id(x.source)] for x in several
    ]
    whole = [*sources.values()]
    return Numbers(whole[0] if len(whole) == 1 else jnp.concatenate(whole), np.concatenate(at))


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
