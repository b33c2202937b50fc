"""Which entries of a Jacobian can be other than zero, as a picture of cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import jax
import numpy as np

from veenv.engine.api import jacve
from veenv.engine.sparse import SparseTensor
from veenv.tasks import Task

LARGEST = 2**22
"""Entries of a Jacobian up to which its pattern is found."""
CELLS = 64
"""Rows and columns of the picture, at most."""


@dataclass(frozen=True)
class SparsityPicture:
    """A Jacobian's structural zeros.

    Attributes:
      rows: number of output elements.
      columns: number of input elements.
      nonzero: entries that are not structurally zero.
      cells: float64 [R, C], the share of such entries in each cell of the picture.
      row_edges: rows, of the picture, where an output begins.
      column_edges: columns, of the picture, where an input begins.
    """

    rows: int
    columns: int
    nonzero: int
    cells: np.ndarray
    row_edges: tuple[float, ...]
    column_edges: tuple[float, ...]


def pattern(task: Task, ids: Sequence[int]) -> SparsityPicture | None:
    """The pattern at the task's point; None where the Jacobian is too large, or empty."""
    sparse = jacve(task.fun, tuple(ids), task.argnums, sparse_representation=True)
    outs = jax.tree.leaves(jax.eval_shape(task.fun, *task.example_args()))
    wanted = (task.argnums,) if isinstance(task.argnums, int) else task.argnums
    ins = jax.tree.leaves([task.example_args()[a] for a in wanted])
    row_sizes = [prod(x.shape) for x in outs]
    column_sizes = [prod(np.shape(x)) for x in ins]
    rows, columns = sum(row_sizes), sum(column_sizes)
    if not 0 < rows * columns <= LARGEST:
        return None

    blocks = jax.tree.leaves(
        jax.jit(sparse)(*task.example_args()), is_leaf=lambda x: isinstance(x, SparseTensor)
    )
    found = np.zeros((rows, columns), bool)
    starts = [np.cumsum([0, *sizes]) for sizes in (row_sizes, column_sizes)]
    for index, block in enumerate(blocks):
        out, by = divmod(index, len(ins))
        there = block.pattern
        found[starts[0][out] + there.rows, starts[1][by] + there.cols] = True
    cells = _shares(found)
    edges = (
        tuple((s[1:-1] * n / s[-1]).tolist()) for s, n in zip(starts, cells.shape, strict=True)
    )
    return SparsityPicture(rows, columns, int(found.sum()), cells, *edges)


def _shares(found: np.ndarray) -> np.ndarray:
    """The share of entries in each of at most `CELLS` by `CELLS` cells."""
    for axis in (0, 1):
        size = found.shape[axis]
        cuts = np.unique(np.linspace(0, size, min(size, CELLS) + 1).astype(int))
        counts = np.diff(cuts)
        total = np.add.reduceat(found.astype(float), cuts[:-1], axis=axis)
        found = total / (counts[:, None] if axis == 0 else counts)
    return found
