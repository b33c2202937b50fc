"""The open and closed states of an A* search, as arrays for compiled code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from veenv.search._compile import compiled, lowest_bit
from veenv.search.core import Problem
from veenv.search.kernels import SUCC

_ONE = np.uint64(1)
_ZERO = np.uint64(0)
_MIX_A = np.uint64(0x9E3779B97F4A7C15)
_MIX_B = np.uint64(0xBF58476D1CE4E5B9)


class Frontier(NamedTuple):
    """States of an A* search; M is their largest number, Q that of queue entries.

    Attributes:
      sets: uint64 [M, Ws]; eliminated vertices.
      digest: uint64 [M]; hash of the structures (0 for scalars).
      cost: int64 [M]; least cost to come.
      rest: int64 [M]; bound on the cost to go.
      parent: int32 [M].
      move: int32 [M]; vertex eliminated last.
      closed: bool [M]; already expanded.
      table: int32 [2 M]; open-addressing hash table of state numbers + 1.
      queue: int64 [Q, 2]; binary heap of (priority, state).
      sizes: int64 [2]; number of states and of queue entries.
    """

    sets: np.ndarray
    digest: np.ndarray
    cost: np.ndarray
    rest: np.ndarray
    parent: np.ndarray
    move: np.ndarray
    closed: np.ndarray
    table: np.ndarray
    queue: np.ndarray
    sizes: np.ndarray


@compiled
def push(queue, sizes, priority, state):
    """Adds a state to the queue."""
    i = sizes[1]
    sizes[1] += 1
    while i > 0:
        up = (i - 1) >> 1
        if queue[up, 0] <= priority:
            break
        queue[i, 0], queue[i, 1] = queue[up, 0], queue[up, 1]
        i = up
    queue[i, 0], queue[i, 1] = priority, state


@compiled
def pop(queue, sizes):
    """Removes and returns the state of least priority."""
    state = queue[0, 1]
    sizes[1] -= 1
    last, priority, moved = sizes[1], queue[sizes[1], 0], queue[sizes[1], 1]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= last:
            break
        if child + 1 < last and queue[child + 1, 0] < queue[child, 0]:
            child += 1
        if queue[child, 0] >= priority:
            break
        queue[i, 0], queue[i, 1] = queue[child, 0], queue[child, 1]
        i = child
    queue[i, 0], queue[i, 1] = priority, moved
    return state


@compiled
def _mix(z):
    z = (z ^ (z >> np.uint64(31))) * _MIX_B
    return z ^ (z >> np.uint64(29))


@compiled
def state_digest(bits, ids):
    """Hash of an array state; zero for a scalar one, which its set determines."""
    total = _ZERO
    nodes = ids.shape[0]
    if nodes != bits.shape[1]:
        return total
    for u in range(nodes):
        for k in range(bits.shape[2]):
            rest = bits[SUCC, u, k]
            while rest != _ZERO:
                w = (k << 6) + lowest_bit(rest)
                rest &= rest - _ONE
                edge = np.uint64(u * nodes + w)
                total += _mix((edge << np.uint64(32) | np.uint64(ids[u, w])) * _MIX_A)
    return total


@compiled
def _find(front, members, digest):
    """Table slot of a state, or of the empty place where it belongs."""
    z = digest
    for k in range(members.shape[0]):
        z = _mix((z ^ members[k]) * _MIX_A)
    mask = np.uint64(front.table.shape[0] - 1)
    slot = z & mask
    while True:
        entry = front.table[slot] - 1
        if entry < 0:
            return slot
        same = front.digest[entry] == digest
        for k in range(members.shape[0]):
            same = same and front.sets[entry, k] == members[k]
        if same:
            return slot
        slot = (slot + _ONE) & mask


@compiled
def insert(front, members, digest, cost, rest, parent, move, cutoff):
    """Adds a state or improves it; states that cannot beat `cutoff` are left out."""
    if cost + rest >= cutoff:
        return
    slot = _find(front, members, digest)
    entry = front.table[slot] - 1
    if entry < 0:
        entry = front.sizes[0]
        front.sizes[0] += 1
        front.table[slot] = entry + 1
        front.sets[entry] = members
        front.digest[entry] = digest
        front.rest[entry] = rest
        front.closed[entry] = False
    elif front.cost[entry] <= cost:
        return
    front.cost[entry] = cost
    front.parent[entry] = parent
    front.move[entry] = move
    front.closed[entry] = False
    push(front.queue, front.sizes, cost + rest, entry)


def make_frontier(problem: Problem, bounds: np.ndarray, max_states: int) -> Frontier:
    """A frontier that holds the initial state; memory is touched only as it fills."""
    words = max(1, (problem.n + 63) // 64)
    front = Frontier(
        np.empty((max_states, words), np.uint64),
        np.empty(max_states, np.uint64),
        np.empty(max_states, np.int64),
        np.empty(max_states, np.int64),
        np.empty(max_states, np.int32),
        np.empty(max_states, np.int32),
        np.empty(max_states, np.bool_),
        np.zeros(1 << (2 * max_states - 1).bit_length(), np.int32),
        np.empty((3 * max_states, 2), np.int64),
        np.zeros(2, np.int64),
    )
    digest = state_digest(problem.core.bits, problem.core.ids)
    start = np.zeros(words, np.uint64)
    insert(front, start, np.uint64(digest), 0, int(bounds.sum()), 0, -1, np.int64(1) << 62)
    return front
