"""The record of a kernel, which the driver reads: `veenv.kernel.cpu.tiles` has its fields."""

from __future__ import annotations

import numpy as np

from veenv.kernel.cpu import tiles
from veenv.kernel.cpu.compile import MachineCode
from veenv.kernel.cpu.emitter import memory_element
from veenv.kernel.cpu.layout import STRIDE
from veenv.kernel.cpu.outputs import Written, written
from veenv.kernel.cpu.transposition import NAME, transposing
from veenv.kernel.program import Leaf, ScalarProgram

_MOST_DIRECT = 24
"""Outputs that are written in place where a vector of points is not a whole line of the cache.

More of them would collide in the cache, at the equal distances they often have; they are staged.
"""
_LINE = 64
_STAGING = 48 * 1024
_IN_PLACE_TILE = 1 << 40
_LITTLE_STACK = 16 * 1024
"""Bytes that a body takes at most of a thread's stack; threads of 128 kB are usual."""
_OTHERS_STACK = 64 * 1024
"""Bytes of a stack for functions that a body calls, and for handlers of signals."""
_CHUNK_OPERATIONS = 1_500_000
"""Operations of points that are worth a task of the thread pool, about 20 microseconds."""


def fill(
    words: np.ndarray, program: ScalarProgram, lanes: int, code: MachineCode
) -> list[np.ndarray]:
    """Writes the record of a kernel (int64) but for its key, its users and the next one.

    Returns the arrays whose addresses are in the record, which have to live as long.
    """
    outputs = written(program)
    whole = [_bytes(made.leaf) for made in outputs if not made.by_value]
    direct = len(whole) <= _MOST_DIRECT or all(lanes * size >= _LINE for size in whole)
    in_place = [direct and not made.by_value for made in outputs]
    staged = sum(_bytes(m.stored) for m, there in zip(outputs, in_place, strict=True) if not there)
    tile = max(1, _STAGING // (lanes * staged)) if staged else _IN_PLACE_TILE
    inputs = [Written(leaf, leaf, ()) for leaf in program.inputs]
    offset, rows = 0, []
    for made, there in (*((x, True) for x in inputs), *zip(outputs, in_place, strict=True)):
        size = _bytes(made.stored)
        row = [_bytes(made.leaf), len(made.leaf.shape), offset, int(there), size]
        rows.append([*row, *(_by_value(made, lanes) if made.by_value else [0] * 6)])
        offset += -(-size * lanes * (1 if there else tile) // _LINE) * _LINE
    leaves = np.array(rows, np.int64).reshape(-1, tiles.LEAF_WORDS)
    words[tiles.BODY] = code.address("body")
    words[tiles.NUM_IN], words[tiles.NUM_OUT] = len(inputs), len(outputs)
    words[tiles.TILE], words[tiles.LANES] = tile, lanes
    tables = 8 * (STRIDE * len(inputs) + len(outputs))
    own_stack = code.stack > _LITTLE_STACK
    words[tiles.STAGING], words[tiles.OWN_STACK] = offset, own_stack
    memory = offset + tables + (code.stack + _OTHERS_STACK if own_stack else 0)
    words[tiles.MEMORY] = -(-memory // _LINE) * _LINE
    words[tiles.INS] = leaves.ctypes.data
    words[tiles.OUTS] = leaves[len(inputs) :].ctypes.data
    moved = sum(made.leaf.size for made in (*inputs, *outputs))
    work = _CHUNK_OPERATIONS // (program.executed + 2 * moved + 1)
    words[tiles.CHUNK] = -(-max(work, 1) // lanes) * lanes
    arrays = [(made.sources, made.places, made.constants) for made in outputs]
    return [leaves, *(array for three in arrays for array in three)]


def _by_value(made: Written, lanes: int) -> list[int]:
    """The fields of a leaf that is written by values."""
    constants = made.constants.ctypes.data if made.constants.size else 0
    transpose = transposing(memory_element(made.leaf.dtype), lanes).address(NAME)
    width = np.dtype(made.leaf.dtype).itemsize
    tables = [made.sources.ctypes.data, made.places.ctypes.data, constants]
    return [len(made.sources), *tables, width, transpose]


def _bytes(leaf: Leaf) -> int:
    """Bytes of a leaf at one point."""
    return leaf.size * np.dtype(leaf.dtype).itemsize
