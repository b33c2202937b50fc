"""Which arrays of a program are written where they are, as nothing needs what they were before."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from veenv.kernel.program import Leaf, Op, ScalarProgram

_LAZY = frozenset({"view", "entry"})
"""What is read where it is needed."""
Place = tuple[int, int | None]
"""An array: the operation that it is, or one that writes in a copy of which of its arguments."""


def replacing(op: Op) -> Sequence[int]:
    """The places of an operation's arguments that are arrays in which it writes."""
    if op.name == "loop":
        return [k for k in range(op.attr.carries) if op.attr.body.inputs[k].shape]
    return (0,) if op.name == "write" else ()


def entries(program: ScalarProgram, i: int) -> int:
    """How many entries an array has."""
    ops = program.ops
    while ops[i].name == "write":
        i = ops[i].args[0]
    name, _, args, attr = ops[i]
    if name == "input":
        return program.inputs[attr[0]].size
    if name == "part":
        return ops[args[0]].attr.entries(attr)
    return attr[2] if name == "view" else len(args)


def is_stacked(program: ScalarProgram, op: Op) -> bool:
    """Whether an operation is the array of what a loop stacks."""
    return op.name == "part" and op.attr >= program.ops[op.args[0]].attr.carries


def owned(program: ScalarProgram, carries: int = 0) -> Iterator[tuple[Place, Leaf]]:
    """The arrays that are not another's memory; those of bodies of loops are not among them."""
    written = in_place(program, carries)
    for position, op in enumerate(program.ops):
        for k in replacing(op):
            if (position, k) not in written:
                a = op.args[k]
                yield (position, k), Leaf((entries(program, a),), program.ops[a].dtype)
        if op.name == "array" or is_stacked(program, op):
            yield (position, None), Leaf((entries(program, position),), op.dtype)


def in_place(program: ScalarProgram, carries: int = 0) -> frozenset[tuple[int, int]]:
    """The operations that may write in an argument's own memory, with the argument's place.

    Nothing reads the argument after them.  Of a body the first input leaves are `carries`.
    """
    ops = program.ops
    every = [(p, k) for p, op in enumerate(ops) for k in replacing(op)]
    if not every:
        return frozenset()
    reads: dict[int | tuple[int], list[int]] = {}

    def note(i: int, position: int) -> None:
        while ops[i].name in _LAZY:
            i = ops[i].args[0]
        key = (ops[i].attr[0],) if ops[i].name == "input" else i
        reads.setdefault(key, []).append(position)

    for position, op in enumerate(ops):
        for a in op.args if op.name not in _LAZY else ():
            note(a, position)
    for ids in program.results:
        for i in ids:
            note(i, len(ops))

    def free(position: int, place: int) -> bool:
        i = ops[position].args[place]
        name, of = ops[i].name, (ops[i].attr[0],) if ops[i].name == "input" else i
        own = name in ("write", "part") or (name == "input" and ops[i].attr[0] < carries)
        if name == "array":
            own = not program.is_constant[list(ops[i].args)].all()
        if not own or max(reads[of]) > position:
            return False
        return ops[position].name == "write" or reads[of].count(position) == 1

    return frozenset(pair for pair in every if free(*pair))


def reads_first(ops: Sequence[Op], order: Sequence[int]) -> list[int]:
    """An order in which operations that write in arrays come as late as they can."""
    inside = set(order)
    missing = {i: sum(a in inside for a in {*ops[i].args}) for i in order}
    users: dict[int, list[int]] = {}
    for i in order:
        for a in {*ops[i].args} & inside:
            users.setdefault(a, []).append(i)
    late = {i for i in order if replacing(ops[i])}
    rank = {i: (i in late, k) for k, i in enumerate(order)}
    ready = [(*rank[i], i) for i in order if not missing[i]]
    heapq.heapify(ready)
    found = []
    while ready:
        *_, i = heapq.heappop(ready)
        found.append(i)
        for user in users.get(i, ()):
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(ready, (*rank[user], user))
    return found
