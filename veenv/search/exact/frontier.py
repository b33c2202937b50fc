"""The open and closed states of an A* search, as arrays for compiled code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from veenv.search.kernels.compilation import GOLDEN, MIX, ONE, ZERO, compiled, lowest_bit
from veenv.search.kernels.kernels import PRED, SUCC, by_core, lookup
from veenv.search.problem import Problem


class Frontier(NamedTuple):
    """States of an A* search; M is their largest number, Q that of queue entries."""

    sets: np.ndarray  # uint64 [M, Ws]; eliminated vertices
    # uint64 [M]; hash of the structures less that of the initial state's (0 for scalars)
    digest: np.ndarray
    cost: np.ndarray  # int64 [M]; least cost to come
    rest: np.ndarray  # int64 [M]; bound on the cost to go
    parent: np.ndarray  # int32 [M]
    move: np.ndarray  # int32 [M]; vertex eliminated last
    closed: np.ndarray  # bool [M]; already expanded
    table: np.ndarray  # int32 [2 M]; open-addressing hash table of state numbers + 1
    queue: np.ndarray  # int64 [Q, 2]; binary heap of (priority, state)
    sizes: np.ndarray  # int64 [2]; number of states and of queue entries


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
    last, priority, last_state = sizes[1], queue[sizes[1], 0], queue[sizes[1], 1]
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
    queue[i, 0], queue[i, 1] = priority, last_state
    return state


@compiled
def _mix(z):
    z = (z ^ (z >> np.uint64(31))) * MIX
    return z ^ (z >> np.uint64(29))


@compiled
def _edge_digest(nodes, u, w, structure):
    """Hashes one edge; a state's hash is the sum over its edges, modulo 2**64."""
    edge = np.uint64(u * nodes + w)
    return _mix((edge << np.uint64(32) | np.uint64(structure)) * GOLDEN)


@compiled
def array_digest_change(core, bits, ids, v):
    """Computes how the hash of an array state changes if v is eliminated; the state stays."""
    keys, results, handle = core.keys, core.results, core.handle
    nodes, words, keep = ids.shape[0], bits.shape[2], core.is_output[v]
    change = ZERO
    for k in range(words):
        rest = bits[PRED, v, k]
        while rest != ZERO:
            u = (k << 6) + lowest_bit(rest)
            rest &= rest - ONE
            pre = ids[u, v]
            if not keep:
                change -= _edge_digest(nodes, u, v, pre)
            for j in range(words):
                succs = bits[SUCC, v, j]
                while succs != ZERO:
                    w = (j << 6) + lowest_bit(succs)
                    succs &= succs - ONE
                    new = results[0, lookup(keys, handle, ids[v, w], pre, 0)]
                    old = ids[u, w]
                    if old != 0:
                        low, high = min(old, new), max(old, new)
                        new = results[1, lookup(keys, handle, low, high, 1)]
                        change -= _edge_digest(nodes, u, w, old)
                    change += _edge_digest(nodes, u, w, new)
    for j in range(words):
        succs = bits[SUCC, v, j]
        while succs != ZERO:
            w = (j << 6) + lowest_bit(succs)
            succs &= succs - ONE
            change -= _edge_digest(nodes, v, w, ids[v, w])
    return change


def _scalar_digest_change(core, bits, ids, v):
    return ZERO


def _array_digest_change(core, bits, ids, v):
    return array_digest_change(core, bits, ids, v)


digest_change = by_core(_scalar_digest_change, _array_digest_change)
"""Returns `array_digest_change`, or zero for scalars, whose set determines the state."""


@compiled
def _find(front, members, digest):
    """Returns the index of a state in the table, or of the empty slot where it belongs."""
    z = digest
    for k in range(members.shape[0]):
        z = _mix((z ^ members[k]) * GOLDEN)
    mask = np.uint64(front.table.shape[0] - 1)
    place = z & mask
    while True:
        entry = front.table[place] - 1
        if entry < 0:
            return place
        same = front.digest[entry] == digest
        for k in range(members.shape[0]):
            same = same and front.sets[entry, k] == members[k]
        if same:
            return place
        place = (place + ONE) & mask


@compiled
def insert(front, members, digest, cost, rest, parent, move, cutoff):
    """Adds a state or improves it; states that cannot beat `cutoff` are left out."""
    if cost + rest >= cutoff:
        return
    place = _find(front, members, digest)
    entry = front.table[place] - 1
    if entry < 0:
        entry = front.sizes[0]
        front.sizes[0] += 1
        front.table[place] = entry + 1
        front.sets[entry] = members
        front.digest[entry] = digest
        front.rest[entry] = rest
    elif front.cost[entry] <= cost:
        return
    front.cost[entry] = cost
    front.parent[entry] = parent
    front.move[entry] = move
    front.closed[entry] = False
    push(front.queue, front.sizes, cost + rest, entry)


def make_frontier(problem: Problem, bound: int, max_states: int) -> Frontier:
    """Makes a frontier of the initial state, whose remaining cost is at least `bound`.

    Memory is touched only as it fills.
    """
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
    start = np.zeros(words, np.uint64)
    insert(front, start, ZERO, 0, bound, 0, -1, np.int64(1) << 62)
    return front
