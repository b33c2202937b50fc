"""Vertex elimination on numbers of operations, compiled: the work of the program of an order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from veenv.search.kernels.compilation import ONE, ZERO, compiled, lowest_bit, popcount
from veenv.search.kernels.kernels import copy_flat
from veenv.search.merged.operations import (
    ADD,
    AND,
    CONST,
    MUL,
    NONE,
    OR,
    SUB,
    chosen,
    forget,
    logical,
    negative,
    product,
    total,
)


class Entries(NamedTuple):
    """A graph of single numbers, an edge for each entry of an elemental partial.

    Attributes:
      edge: int64 [N, N]; by target and source: the operation plus one, negative for a minus; 0
        where there is no edge.
      mask: int64 [N, N]; the operation that says where it is not shut out, or `NONE`; [1, 1] where
        no edge has one.
      preds: uint64 [N, W]; sources of each target, as bits.
      succs: uint64 [N, W]; targets of each source.
      kept: bool [N]; outputs.
      starts: int64 [n + 1]; the entries of each vertex, in `entries`.
      entries: int64; nodes.
      outputs: int64; nodes that are outputs.
      always: int64; operations that are results whatever the order.
      pairs: int64 [P, 3]; operations that take so much less where the program has both.
      num_inputs: how many nodes are inputs, the first.
      uses: int64 [M]; scratch, for how often each operation is used.
    """

    edge: np.ndarray
    mask: np.ndarray
    preds: np.ndarray
    succs: np.ndarray
    kept: np.ndarray
    starts: np.ndarray
    entries: np.ndarray
    outputs: np.ndarray
    always: np.ndarray
    pairs: np.ndarray
    num_inputs: int
    uses: np.ndarray


class State(NamedTuple):
    """What an elimination changes: copies of the first four of `Entries`."""

    edge: np.ndarray
    mask: np.ndarray
    preds: np.ndarray
    succs: np.ndarray


@compiled
def _join(ops, state, masked, w, v, u):
    """Adds the path u → v → w to the edge u → w; False where there is no room."""
    post, pre = state.edge[w, v], state.edge[v, u]
    minus = (post < 0) != (pre < 0)
    left, right = abs(post) - 1, abs(pre) - 1
    mask = NONE
    if masked:
        first, second = state.mask[w, v], state.mask[v, u]
        left, right = chosen(ops, second, left), chosen(ops, first, right)
        mask = second if first == NONE else first
        if first != NONE and second != NONE:
            mask = logical(ops, AND, first, second)
    new = product(ops, left, right)
    old = state.edge[w, u]
    if old != 0:
        before = abs(old) - 1
        if minus == (old < 0):
            new = total(ops, before, new, False)
        elif minus:
            new, minus = total(ops, before, new, True), False
        else:
            new, minus = total(ops, new, before, True), False
        if masked:
            other = state.mask[w, u]
            mask = NONE if mask == NONE or other == NONE else logical(ops, OR, other, mask)
    if masked:
        state.mask[w, u] = mask
    state.edge[w, u] = -new - 1 if minus else new + 1


@compiled
def _eliminate(ops, state, masked, kept, v):
    words = state.preds.shape[1]
    word, bit = v >> 6, ONE << np.uint64(v & 63)
    for k in range(words):
        targets = state.succs[v, k]
        while targets != ZERO:
            w = (k << 6) + lowest_bit(targets)
            targets &= targets - ONE
            for j in range(words):
                sources = state.preds[v, j]
                while sources != ZERO:
                    u = (j << 6) + lowest_bit(sources)
                    sources &= sources - ONE
                    _join(ops, state, masked, w, v, u)
                    state.succs[u, k] |= ONE << np.uint64(w & 63)
                state.preds[w, j] |= state.preds[v, j]
            state.preds[w, word] &= ~bit
            state.edge[w, v] = 0
        state.succs[v, k] = ZERO
    if kept:
        return
    for j in range(words):
        sources = state.preds[v, j]
        while sources != ZERO:
            u = (j << 6) + lowest_bit(sources)
            sources &= sources - ONE
            state.succs[u, word] &= ~bit
            state.edge[v, u] = 0
        state.preds[v, j] = ZERO


@compiled
def _most(graph, state, v):
    """The most operations that eliminating v can make, and those of signs at the end."""
    ins, outs = 0, 0
    for k in range(state.preds.shape[1]):
        ins += popcount(state.preds[v, k])
        outs += popcount(state.succs[v, k])
    return 8 * ins * outs + graph.num_inputs * graph.outputs.shape[0]


@compiled
def work_of(ops, graph, state, order):
    """The work of the program that an order leads to; -1 where it has too many operations.

    Args:
      ops: `Operations`; as at the start, and so again at the end.
      graph: `Entries`.
      state: `State` of the graph's size.
      order: int64 [n]; vertices, by their places in `Entries.starts`.
    """
    copy_flat(state.edge, graph.edge)
    copy_flat(state.preds, graph.preds)
    copy_flat(state.succs, graph.succs)
    copy_flat(state.mask, graph.mask)
    masked = graph.mask.shape[0] > 1
    for k in range(order.shape[0]):
        for e in range(graph.starts[order[k]], graph.starts[order[k] + 1]):
            v = graph.entries[e]
            if ops.size[0] + _most(graph, state, v) > ops.rows.shape[0]:
                forget(ops)
                return -1
            _eliminate(ops, state, masked, graph.kept[v], v)
    found = _weigh(ops, graph, state)
    forget(ops)
    return found


@compiled
def _weigh(ops, graph, state):
    """The work of what the remaining edges need, as `ScalarProgram.work` has it."""
    rows, uses = ops.rows, graph.uses
    for w in graph.outputs:
        for u in range(graph.num_inputs):
            if state.edge[w, u] < 0:
                state.edge[w, u] = negative(ops, -state.edge[w, u] - 1) + 1
    count = ops.size[0]
    uses[:count] = 0
    for i in graph.always:
        uses[i] += 1
    for w in graph.outputs:
        for u in range(graph.num_inputs):
            if state.edge[w, u] != 0:
                uses[state.edge[w, u] - 1] += 1
    work = 0
    for i in range(count - 1, -1, -1):
        if uses[i] != 0:
            work += rows[i, 4]
            if rows[i, 0] != CONST:
                for k in range(1, 4):
                    if rows[i, k] != NONE:
                        uses[rows[i, k]] += 1
    for i in range(count):
        if uses[i] != 0 and (rows[i, 0] == ADD or rows[i, 0] == SUB):
            a, b = rows[i, 1], rows[i, 2]
            if (rows[a, 0] == MUL and uses[a] == 1) or (rows[b, 0] == MUL and uses[b] == 1):
                work -= 1
    for p in range(graph.pairs.shape[0]):
        if uses[graph.pairs[p, 0]] != 0 and uses[graph.pairs[p, 1]] != 0:
            work -= graph.pairs[p, 2]
    return work
