"""How leaves of a Pallas kernel lie in the memory of a TPU: as XLA lays them out, so uncopied."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from veenv.kernel.program import Leaf


class Tiling(NamedTuple):
    """How a leaf lies in the memory of a TPU: in tiles of `width` entries by 128 points.

    The entries of a tile are neighbours along one axis, or among all where none fills its tiles.
    """

    # whose entries share tiles; None if all do, with some of no use behind them
    axis: int | None
    length: int  # of the axis
    stride: int  # between its neighbours, among all entries
    width: int  # entries of a tile
    tiles: int  # of all entries, at 128 points

    @classmethod
    def of(cls, leaf: Leaf) -> Tiling:
        """The tiling for which XLA, too, needs the least memory."""
        full = [k for k, n in enumerate(leaf.shape) if n % 8 == 0 or n in (2, 4)]
        if full and leaf.size:
            axis, n = full[-1], leaf.shape[full[-1]]
            width = min(n, 8)
            return cls(axis, n, prod(leaf.shape[axis + 1 :]), width, leaf.size // width)
        width = min(8, 1 << max(0, leaf.size - 1).bit_length())
        tiles = max(1, -(-leaf.size // width))
        return cls(None, tiles * width, 1, width, tiles)

    def place(self, k: Any) -> tuple[Any, Any]:
        """The tile of an entry, and its row there."""
        along = k // self.stride % self.length
        front = k // (self.stride * self.length) * self.stride + k % self.stride
        return front * (self.length // self.width) + along // self.width, along % self.width

    def laid_out(self, x: jax.Array, rows: int) -> jax.Array:
        """From ``[B, *shape]`` to ``[tiles, B/128/rows, rows * width, 128]``."""
        if self.axis is None:
            x = x.reshape(len(x), -1).T
            x = jnp.pad(x, ((0, self.length - len(x)), (0, 0)))
        else:
            x = jnp.moveaxis(jnp.moveaxis(x, 0, -1), self.axis, -2)
        x = x.reshape(self.tiles, self.width, -1, 128).swapaxes(1, 2)
        return x.reshape(self.tiles, -1, rows * self.width, 128)

    def taken_back(self, x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """The inverse of `laid_out`."""
        x = x.reshape(self.tiles, -1, self.width, 128).swapaxes(1, 2)
        if self.axis is None:
            x = x.reshape(self.length, -1)[: prod(shape)]
            return x.T.reshape(-1, *shape)
        front = (n for k, n in enumerate(shape) if k != self.axis)
        x = x.reshape(*front, self.length, -1)
        return jnp.moveaxis(jnp.moveaxis(x, -2, self.axis), -1, 0)


class Tiled:
    """The entries of a leaf at part `part` of a block of a TPU, which is so many rows of points."""

    def __init__(self, ref: Any, tiling: Tiling, part: Any, rows: int):
        self._ref, self._tiling, self._part, self._rows = ref, tiling, part, rows
        self.dtype = ref.dtype

    def _at(self, k: Any) -> tuple[Any, ...]:
        tile, row = self._tiling.place(k)
        of_entry = pl.ds(row, self._rows, self._tiling.width)
        return pl.ds(tile, 1), pl.ds(self._part, 1), of_entry

    def __getitem__(self, k: Any) -> jax.Array:
        """An entry at the points of the part."""
        return self._ref[self._at(k)][0, 0]

    def __setitem__(self, k: Any, value: jax.Array) -> None:
        self._ref[self._at(k)] = value[None, None]
