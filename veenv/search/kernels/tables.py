"""Structure algebra as integer tables: every `Structure` a small id, every result cached.

The compiled loops work on ids.  The first time they meet a pair of structures they call `fill`,
which asks `veenv.structure` and stores the answer; from then on the pair is a hash lookup.  The
tables are caches of fixed size: when one is nearly full it is emptied.
"""

from __future__ import annotations

import weakref

import numpy as np

from veenv.search.kernels.compilation import GOLDEN
from veenv.structure.product import multiply
from veenv.structure.structure import Structure, add

_MASK = (1 << 64) - 1
_SIZE = 1 << 16

_live: weakref.WeakValueDictionary[int, StructureTables] = weakref.WeakValueDictionary()
_next_handle = 1


class StructureTables:
    """Interned structures and the hash tables of their products and sums.

    Attributes:
      handle: number by which compiled code names this object.
      keys: uint64 [2, size]; (first << 32 | second) of products and of sums, 0 for empty.
      results: int32 [2, size]; id of the result.
      counts: int64 [2, size]; what the product costs, and what the sum costs.
    """

    def __init__(self, *, additions: bool = False):
        """Makes empty tables; `additions` cost as multiplications do, or nothing."""
        global _next_handle
        self.keys = np.zeros((2, _SIZE), np.uint64)
        self.results = np.zeros((2, _SIZE), np.int32)
        self.counts = np.zeros((2, _SIZE), np.int64)
        self.handle = _next_handle
        self._additions = additions
        self._ids: dict[Structure, int] = {}
        self._structures: list[Structure | None] = [None]
        self._used = [0, 0]
        _next_handle += 1
        _live[self.handle] = self

    def intern(self, structure: Structure) -> int:
        """Returns the id (from 1) of a structure."""
        number = self._ids.get(structure)
        if number is None:
            number = self._ids[structure] = len(self._structures)
            self._structures.append(structure)
        return number

    def fill(self, first: int, second: int, kind: int) -> None:
        """Stores first · second (kind 0: post, pre) or first + second (kind 1)."""
        a, b = self._structures[first], self._structures[second]
        assert a is not None
        assert b is not None
        size = self.keys.shape[1]
        if 2 * self._used[kind] > size:
            self.keys[kind] = 0
            self._used[kind] = 0
        key = (first << 32) | second
        place = (((key * int(GOLDEN)) & _MASK) >> 32) & (size - 1)
        while self.keys[kind, place] not in (0, key):
            place = (place + 1) & (size - 1)
        if kind == 0:
            product = multiply(a, b)
            result = product.structure
            count = product.operations if self._additions else product.multiplications
        else:
            result = add(a, b)
            count = result.num_values if self._additions else 0
        self.results[kind, place] = self.intern(result)
        self.counts[kind, place] = count
        self.keys[kind, place] = key
        self._used[kind] += 1


def fill(handle: int, first: int, second: int, kind: int) -> None:
    """Adds one entry to the tables with this handle (called by compiled code on a miss)."""
    _live[int(handle)].fill(int(first), int(second), int(kind))
