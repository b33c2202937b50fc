"""Incremental evaluation: what a change inside one window of an order costs.

A `Tape` holds an order, the cost of each of its eliminations, and the graph's state at every
``stride``-th position.  A changed window [lo, hi] is evaluated from the checkpoint before lo.  A
scalar graph's state depends only on the set of vertices eliminated, so nothing changes after hi;
an array graph's structures may depend on the order inside the window, so evaluation goes on until
the state equals a checkpoint.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from veenv.search.kernels.compilation import compiled
from veenv.search.kernels.kernels import copy_state, eliminate
from veenv.search.kernels.scalar import ScalarCore
from veenv.search.problem import Problem

_CHECKPOINT_BYTES = 1 << 27
_STRIDE_SCALAR = 6
_STRIDE_ARRAY = 16  # a state is large, so checkpoints are expensive


class Tape(NamedTuple):
    """An order under evaluation; n vertices, C checkpoints."""

    order: np.ndarray  # int64 [n]; the current order
    costs: np.ndarray  # int64 [n]; cost of each elimination
    trial: np.ndarray  # int64 [n]; the changed order, equal to `order` outside the window
    trial_costs: np.ndarray  # int64 [n]; its costs, valid in the evaluated window
    # uint64 [2, C, 3, N, W]; state before position c·stride, of order (0) and of trial (1)
    bits: np.ndarray
    ids: np.ndarray  # int32 [2, C, N, N]; the same
    now: np.ndarray  # uint64 [3, N, W]; working state
    now_ids: np.ndarray  # int32 [N, N]; the same
    stride: int  # positions between checkpoints


def make_tape(problem: Problem) -> Tape:
    """An empty tape for a problem; `load` puts an order on it."""
    core, n = problem.core, problem.n
    state = core.bits.nbytes + core.ids.nbytes
    most = max(1, _CHECKPOINT_BYTES // (2 * state))
    usual = _STRIDE_SCALAR if problem.tables is None else _STRIDE_ARRAY
    stride = max(usual, -(-n // most))
    num = n // stride + 1
    return Tape(
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros((2, num, *core.bits.shape), np.uint64),
        np.zeros((2, num, *core.ids.shape), np.int32),
        core.bits.copy(),
        core.ids.copy(),
        stride,
    )


def set_determined(core: Any) -> Any:
    """Whether the state depends on the set of eliminated vertices only; for compiled callers."""
    raise TypeError("set_determined is called from compiled code only")


@overload(set_determined, strict=False)
def _set_determined(core: Any) -> Any:
    if core.instance_class is ScalarCore:
        return lambda core: True
    return lambda core: False


@compiled
def load(core, tape, order):
    """Puts an order (int64 [n]) on the tape; returns its cost."""
    copy_state(tape.now, tape.now_ids, core.bits, core.ids)
    total = np.int64(0)
    for i in range(core.n):
        if i % tape.stride == 0:
            c = i // tape.stride
            copy_state(tape.bits[0, c], tape.ids[0, c], tape.now, tape.now_ids)
        tape.order[i] = order[i]
        tape.trial[i] = order[i]
        tape.costs[i] = eliminate(core, tape.now, tape.now_ids, order[i])
        total += tape.costs[i]
    return total


@compiled
def same(a, b):
    """Whether two contiguous arrays of one shape are equal."""
    x, y = a.reshape(a.size), b.reshape(b.size)
    for start in range(0, x.shape[0], 64):
        differ = False
        for i in range(start, min(start + 64, x.shape[0])):
            differ |= x[i] != y[i]
        if differ:
            return False
    return True


@compiled
def evaluate(core, tape, lo, hi, allowed):
    """Change of the total if `trial`, which differs from `order` in [lo, hi], replaced it.

    Args:
      core: the graph's constants.
      tape: the tape; its working state, trial costs and trial checkpoints are changed.
      lo: first changed position.
      hi: last changed position.
      allowed: largest change of interest.

    Returns:
      (change, end): the change, and the position up to which trial costs are valid; or
      (some number above `allowed`, -1) as soon as the window alone exceeds `allowed`, which ends
      the matter for scalars and is a cheap reason not to look further for arrays.
    """
    order, trial, stride, bits, ids = tape.order, tape.trial, tape.stride, tape.bits, tape.ids
    costs, trial_costs, now, now_ids = tape.costs, tape.trial_costs, tape.now, tape.now_ids
    n = core.n
    start = lo // stride
    copy_state(now, now_ids, bits[0, start], ids[0, start])
    for i in range(start * stride, lo):
        eliminate(core, now, now_ids, order[i])
    change = np.int64(0)
    for i in range(lo, hi + 1):
        change -= costs[i]
    by_set = set_determined(core)
    i = lo
    while i < n:
        if i > hi and by_set:
            break
        if i % stride == 0 and i > lo:
            c = i // stride
            if i > hi and same(now_ids, ids[0, c]):
                break
            copy_state(bits[1, c], ids[1, c], now, now_ids)
        cost = eliminate(core, now, now_ids, trial[i])
        trial_costs[i] = cost
        change += cost
        if i > hi:
            change -= costs[i]
        elif change > allowed:
            return change, -1
        i += 1
    return change, i


@compiled
def commit(tape, lo, end):
    """Makes `trial` the order after `evaluate` returned `end`."""
    stride = tape.stride
    for i in range(lo, end):
        tape.order[i] = tape.trial[i]
        tape.costs[i] = tape.trial_costs[i]
    for c in range(lo // stride + 1, (end - 1) // stride + 1):
        copy_state(tape.bits[0, c], tape.ids[0, c], tape.bits[1, c], tape.ids[1, c])


@compiled
def discard(tape, lo, hi):
    """Restores `trial` to `order` in [lo, hi]."""
    for i in range(lo, hi + 1):
        tape.trial[i] = tape.order[i]
