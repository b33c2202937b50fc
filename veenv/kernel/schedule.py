"""The order of operations: what is not needed goes, and what stays runs in the faster order."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from math import inf

import numpy as np

from veenv.kernel.cpu.spans import least_size, size_of
from veenv.kernel.pipeline import cycles
from veenv.kernel.program import FREE, CannotFuseError, Leaf, Op, ScalarProgram

_ESTIMATED = 3500
"""Most operations of which orders are compared: in longer programs depth first keeps fewer values
waiting, and comparing would take longer than unrolling takes."""


def scheduled(
    ops: Sequence[Op],
    inputs: Sequence[Leaf],
    outputs: Sequence[Leaf],
    results: Sequence[np.ndarray],
    size: float = inf,
) -> ScalarProgram:
    """The program of the operations that the results need, in the best of a few orders.

    Args:
      ops: operations, each after its arguments.
      inputs: the input leaves.
      outputs: the output leaves.
      results: int64 [entries] for each output leaf, their operations.
      size: the largest `veenv.kernel.cpu.spans.size_of` that the program may have.

    Raises:
      CannotFuseError: where it is larger.
    """
    order = _depth_first(ops, _in_order(results))
    if least_size(ops, order, results) > size:  # which is known before the rest is done
        raise _too_large()
    needed = sorted(order)
    if len(needed) <= _ESTIMATED:
        late, least = _late(ops, needed), cycles(ops, order)
        if cycles(ops, late, least) <= least:
            order = late
    free = [i for i in needed if ops[i].name in FREE]
    order = [*free, *(i for i in order if ops[i].name not in FREE)]
    numbers = np.zeros(len(ops), np.int64)
    numbers[order] = np.arange(len(order))
    number = numbers.tolist()
    renamed = tuple(
        [
            Op.of(name, dtype, tuple([number[a] for a in args]), attr)
            for name, dtype, args, attr in [ops[i] for i in order]
        ]
    )
    places = tuple(tuple(numbers[ids].tolist()) for ids in results)
    program = ScalarProgram(tuple(inputs), renamed, tuple(outputs), places)
    if size < inf and size_of(program) > size:
        raise _too_large()
    return program


def _in_order(results: Sequence[np.ndarray]) -> list[int]:
    """The different ones of some numbers, each where it comes first."""
    numbers = np.concatenate([np.zeros(0, np.int64), *results])
    return numbers[np.sort(np.unique(numbers, return_index=True)[1])].tolist()


def _too_large() -> CannotFuseError:
    return CannotFuseError("compiling the kernel would take longer than there is time")


def _depth_first(ops: Sequence[Op], roots: Iterable[int]) -> list[int]:
    """Each root with what it needs that is not there yet, one root after the other."""
    seen, order = bytearray(len(ops)), list[int]()
    for root in roots:
        stack = [root]
        while stack:
            i = stack.pop()
            if i < 0:  # what it needs is there
                order.append(~i)
            elif not seen[i]:
                seen[i] = 1
                stack.append(~i)
                stack += [a for a in reversed(ops[i].args) if not seen[a]]
    return order


def _late(ops: Sequence[Op], needed: Sequence[int]) -> list[int]:
    """Each operation shortly before its first use: the reverse of an order from the end.

    From the end, what is last in the given order comes first, of the operations whose users are
    all there.
    """
    users = dict.fromkeys(needed, 0)
    for i in needed:
        for a in set(ops[i].args):
            users[a] += 1
    ready = [(-i, i) for i in needed if users[i] == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        _, i = heapq.heappop(ready)
        order.append(i)
        for a in set(ops[i].args):
            users[a] -= 1
            if users[a] == 0:
                heapq.heappush(ready, (-a, a))
    return order[::-1]
