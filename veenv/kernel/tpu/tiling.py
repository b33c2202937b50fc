"""How leaves of a Pallas kernel lie in the memory of a TPU: as XLA lays them out, so uncopied."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from veenv.kernel.scalar_program import Leaf


class Tiling(NamedTuple):
    """How a leaf lies in the memory of a TPU: in tiles of `width` entries by 128 points.

    The entries of a tile are neighbours along one axis. Where they do not fill its tiles, a kernel
    moves them between such tiles, one after the other, and full ones of its own.
    """

    axis: int  # whose entries share tiles
    length: int  # of the axis
    stride: int  # between its neighbours, among all entries
    width: int  # entries of a tile, with those of no use
    lines: int  # how often the axis is there

    @classmethod
    def of(cls, leaf: Leaf) -> Tiling:
        """The tiling for which XLA, too, needs the least memory; of equal ones the last axis."""
        found = [cls._along(leaf.shape, axis) for axis in reversed(range(len(leaf.shape)))]
        best = min(found, key=lambda t: t.size, default=cls(0, 1, 1, 1, 1))
        return best if best.full else best._replace(width=8)

    @classmethod
    def _along(cls, shape: tuple[int, ...], axis: int) -> Tiling:
        n, after = shape[axis], prod(shape[axis + 1 :])
        return cls(axis, n, after, min(8, 1 << (n - 1).bit_length()), prod(shape[:axis]) * after)

    @property
    def full(self) -> bool:
        """Whether all entries of tiles are of use, and XLA, too, sees them as tiles."""
        return self.length % self.width == 0 and (self.width > 1 or self.lines == 1)

    @property
    def tiles(self) -> int:
        """Of the axis."""
        return -(-self.length // self.width)

    @property
    def size(self) -> int:
        """Entries of all tiles."""
        return self.lines * self.tiles * self.width

    def place(self, k: Any) -> tuple[Any, Any, Any]:
        """The line of an entry, the tile of the line, and the row of the tile."""
        along = k // self.stride % self.length
        line = k // (self.stride * self.length) * self.stride + k % self.stride
        return line, along // self.width, along % self.width

    def block(self, parts: int, rows: int) -> pl.BlockSpec:
        """All entries at the points of a block."""
        if self.full:
            shape = self.lines * self.tiles, parts, rows * self.width, 128
            return pl.BlockSpec(shape, lambda i: (0, i, 0, 0))
        shape = self.lines, self.length, parts * rows * 128
        return pl.BlockSpec(shape, lambda i: (0, 0, i))

    def own(self, rows: int) -> tuple[int, ...]:
        """The shape of a kernel's own memory for the entries at a part of a block."""
        return self.lines, self.tiles, rows * self.width, 128

    def laid_out(self, x: jax.Array, rows: int) -> jax.Array:
        """From ``[B, *shape]`` to an array of such blocks."""
        x = x.reshape(x.shape if x.ndim > 1 else (-1, 1))
        x = jnp.moveaxis(jnp.moveaxis(x, 0, -1), self.axis, -2)
        if not self.full:
            return x.reshape(self.lines, self.length, -1)
        x = x.reshape(self.lines * self.tiles, self.width, -1, 128).swapaxes(1, 2)
        return x.reshape(self.lines * self.tiles, -1, rows * self.width, 128)

    def taken_back(self, x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """The inverse of `laid_out`."""
        if self.full:
            x = x.reshape(self.lines * self.tiles, -1, self.width, 128).swapaxes(1, 2)
        front = (n for k, n in enumerate(shape) if k != self.axis)
        x = x.reshape(*front, self.length, -1)
        return jnp.moveaxis(jnp.moveaxis(x, -2, self.axis), -1, 0).reshape(-1, *shape)


class Tiled:
    """The entries of a leaf at part `part` of a block of a TPU, which is so many rows of points."""

    def __init__(self, ref: Any, leaf: Leaf, part: Any, rows: int, memory: Iterator[Any]):
        self._ref, self._part, self._rows = ref, part, rows
        self._tiling = Tiling.of(leaf)
        self._own: Any = None if self._tiling.full else next(memory)
        self.dtype = ref.dtype

    def _at(self, k: Any) -> tuple[Any, ...]:
        line, tile, row = self._tiling.place(k)
        of_entry = pl.ds(row, self._rows, self._tiling.width)
        if self._own is not None:
            return pl.ds(line, 1), pl.ds(tile, 1), of_entry
        return pl.ds(line * self._tiling.tiles + tile, 1), pl.ds(self._part, 1), of_entry

    def __getitem__(self, k: Any) -> jax.Array:
        """An entry at the points of the part."""
        return (self._ref if self._own is None else self._own)[self._at(k)][0, 0]

    def __setitem__(self, k: Any, value: jax.Array) -> None:
        (self._ref if self._own is None else self._own)[self._at(k)] = value[None, None]

    def read(self) -> None:
        """Fills the kernel's own memory."""
        for own, there, shape in self._moves():
            self._own[own] = self._ref[there].reshape(shape)

    def write(self) -> None:
        """Moves the kernel's own memory to the leaf's."""
        for own, there, (lines, tiles, used, points) in self._moves():
            self._ref[there] = self._own[own].reshape(lines, tiles * used, points)

    def _moves(self) -> Iterator[tuple[Any, Any, tuple[int, ...]]]:
        """Where entries at 128 points are in the kernel's own memory and in the leaf's.

        And their shape there: whole tiles first, then the last ones of lines.
        """
        if self._own is None:
            return
        _, length, _, width, lines = self._tiling
        whole, rest = divmod(length, width)
        for row in range(self._rows):
            points = pl.ds(pl.multiple_of((self._part * self._rows + row) * 128, 128), 128)
            for tile, tiles, used in ((0, whole, width), (whole, 1, rest)):
                if tiles * used:
                    own = slice(None), pl.ds(tile, tiles), pl.ds(row * width, used)
                    there = slice(None), pl.ds(tile * width, tiles * used), points
                    yield own, there, (lines, tiles, used, 128)
