"""Orders the operations that a program needs, and finds the ones that write in place."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from veenv.kernel.scalar_program import FREE, Leaf, Loop, Op, ScalarProgram, made, remembered

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
    """Counts the entries of an array."""
    ops = program.ops
    while ops[i].name == "write":
        i = ops[i].args[0]
    name, _, args, attr = ops[i]
    if name == "input":
        return program.inputs[attr[0]].size
    if name == "part":
        return ops[args[0]].attr.entries(attr)
    return attr[2] if name == "view" else len(args)


def owned(program: ScalarProgram, carries: int = 0) -> Iterator[tuple[Place, Leaf]]:
    """The arrays that are not another's memory; those of bodies of loops are not among them."""
    written = in_place(program, carries)
    for position, op in enumerate(program.ops):
        for k in replacing(op):
            if (position, k) not in written:
                a = op.args[k]
                yield (position, k), Leaf((entries(program, a),), program.ops[a].dtype)
        stacked = op.name == "part" and op.attr >= program.ops[op.args[0]].attr.carries
        if op.name == "array" or stacked:
            yield (position, None), Leaf((entries(program, position),), op.dtype)


@remembered
def in_place(program: ScalarProgram, carries: int) -> frozenset[tuple[int, int]]:
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
        is_place = name in ("write", "part") or (name == "input" and ops[i].attr[0] < carries)
        if name == "array":
            is_place = not program.is_constant[list(ops[i].args)].all()
        if not is_place or max(reads[of]) > position:
            return False
        return ops[position].name == "write" or reads[of].count(position) == 1

    return frozenset(pair for pair in every if free(*pair))


def reads_first(ops: Sequence[Op], order: Sequence[int]) -> list[int]:
    """An order in which operations that write in arrays come as late as they can."""
    place = {i: k for k, i in enumerate(order)}
    needs = {i: {a for a in ops[i].args if a in place} for i in order}
    users: dict[int, list[int]] = {}
    for i, args in needs.items():
        for a in args:
            users.setdefault(a, []).append(i)
    missing = {i: len(args) for i, args in needs.items()}
    ready = [(bool(replacing(ops[i])), place[i], i) for i, count in missing.items() if not count]
    heapq.heapify(ready)
    listed: list[int] = []
    while ready:
        i = heapq.heappop(ready)[-1]
        listed.append(i)
        for u in users.get(i, ()):
            missing[u] -= 1
            if not missing[u]:
                heapq.heappush(ready, (bool(replacing(ops[u])), place[u], u))
    return listed


Results = Sequence[Sequence[int]]
"""For each output leaf the operations of its entries."""


def needed(
    ops: Sequence[Op], inputs: Sequence[Leaf], outputs: Sequence[Leaf], results: Results
) -> ScalarProgram:
    """The operations that the results need, those without arguments first.

    They run as traced, or each result with what it needs, one after the other: the order that
    leaves fewer values waiting, which else exceed the registers. Where something is written in an
    array, what reads the array comes first.
    """
    roots = [i for ids in results for i in ids]
    ops, used = _trimmed(ops, roots)
    return _arranged(ops, used, inputs, outputs, results)[0]


def _trimmed(ops: Sequence[Op], roots: Sequence[int]) -> tuple[list[Op], bytearray]:
    """Operations whose loops compute only what is needed, and which of them are needed."""
    ops, used = list(ops), bytearray(len(ops))
    wanted: dict[int, set[int]] = {}
    new_number: dict[int, dict[int, int]] = {}
    for i in roots:
        used[i] = 1
    for i in range(len(ops) - 1, -1, -1):
        if not used[i]:
            continue
        op = ops[i]
        if op.name == "part":
            wanted.setdefault(op.args[0], set()).add(op.attr)
        elif op.name == "loop":
            ops[i], new_number[i] = _trimmed_loop(op, wanted[i])
        for a in ops[i].args:
            used[a] = 1
    if new_number:
        for i, op in enumerate(ops):
            if used[i] and op.name == "part":
                ops[i] = op._replace(attr=new_number[op.args[0]][op.attr])
    return ops, used


def _trimmed_loop(op: Op, wanted: set[int]) -> tuple[Op, dict[int, int]]:
    """A loop that has only some results, and for each of them its new number."""
    loop: Loop = op.attr
    body, alive = loop.body, set(wanted if loop.routine is None else range(loop.carries))
    last = [len(body.results) - 1] if loop.length is None else []
    if all(o.name != "loop" for o in body.ops):
        alive |= _carried(body, [*alive, *last], loop.carries)
    while True:
        chosen = [*sorted(alive), *last]
        ops, used = _trimmed(body.ops, [body.results[k][0] for k in chosen])
        read = {o.attr[0] for o, flag in zip(ops, used, strict=True) if flag and o.name == "input"}
        carried = {k for k in read if k < loop.carries}
        if carried <= alive:
            break
        alive |= carried
    carries = [k for k in sorted(alive) if k < loop.carries]
    inputs = [*carries, *sorted(k for k in read if k >= loop.carries)]
    place = {k: n for n, k in enumerate(inputs)}
    renamed = [
        o._replace(attr=(place[o.attr[0]], o.attr[1])) if flag and o.name == "input" else o
        for o, flag in zip(ops, used, strict=True)
    ]
    program, tested = _arranged(
        renamed,
        used,
        [body.inputs[k] for k in inputs],
        [body.outputs[k] for k in chosen],
        [body.results[k] for k in chosen],
        [body.results[k][0] for k in last],
    )
    stacked = sum(loop.carries <= k < loop.carries + loop.stacked for k in inputs)
    reduced = replace(loop, body=program, carries=len(carries), stacked=stacked, tested=tested)
    args = tuple(op.args[k] for k in inputs)
    return op._replace(args=args, attr=reduced), {k: n for n, k in enumerate(sorted(alive))}


def _carried(body: ScalarProgram, wanted: Sequence[int], carries: int) -> set[int]:
    """Finds the carries that some results of a step, and the carries themselves, need."""
    needed: set[int] = set()
    seen, waiting = bytearray(len(body.ops)), [body.results[k][0] for k in wanted]
    while waiting:
        i = waiting.pop()
        if seen[i]:
            continue
        seen[i], op = 1, body.ops[i]
        waiting += op.args
        if op.name == "input" and op.attr[0] < carries and op.attr[0] not in needed:
            needed.add(op.attr[0])
            waiting.append(body.results[op.attr[0]][0])
    return needed


def _arranged(
    ops: Sequence[Op],
    used: bytearray,
    inputs: Sequence[Leaf],
    outputs: Sequence[Leaf],
    results: Results,
    first: Sequence[int] = (),
) -> tuple[ScalarProgram, int]:
    """The program of operations that are used, and how many of them `first` needs; those lead."""
    every = [i for i, flag in enumerate(used) if flag]
    deep = depth_first(ops, [*first, *(i for ids in results for i in ids)])
    free = [i for i in every if ops[i].name in FREE]
    args = np.array([a for i in every for a in ops[i].args], np.int64)
    users = np.array([i for i in every for _ in ops[i].args], np.int64)
    computed = np.isin(args, free, invert=True)
    best = min((every, deep), key=lambda order: _waiting(order, users[computed], args[computed]))
    if any(replacing(ops[i]) for i in every):
        best = reads_first(ops, best)
    early = set(depth_first(ops, first))
    best = [*(i for i in best if i in early), *(i for i in best if i not in early)]
    parts: dict[int, list[int]] = {}
    for i in every:
        if ops[i].name == "part":
            parts.setdefault(ops[i].args[0], []).append(i)
    order = [i for i in every if _is_given(ops[i])]
    for i in best:
        if not _is_given(ops[i]) and ops[i].name != "part":
            order += [i, *parts.get(i, ())]
    tested = max((1 + k for k, i in enumerate(order) if i in early), default=0)
    numbers = np.zeros(len(ops), np.int64)
    numbers[order] = np.arange(len(order))
    number = numbers.tolist().__getitem__
    renamed = [
        made((name, dtype, tuple(map(number, args)), attr))
        for name, dtype, args, attr in [ops[i] for i in order]
    ]
    rows = tuple(tuple(map(number, ids)) for ids in results)
    return ScalarProgram(tuple(inputs), tuple(renamed), tuple(outputs), rows), tested


def _is_given(op: Op) -> bool:
    return op.name in ("input", "const")


def depth_first(ops: Sequence[Op], roots: Sequence[int]) -> list[int]:
    """Lists each root after the operations that it needs, one root after the other."""
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


def _waiting(order: Sequence[int], users: np.ndarray, args: np.ndarray) -> int:
    """Counts for how many operations values wait until their last use, all together.

    `users` and `args` are, for each use of a value, the operation that needs it and that of it.
    """
    place = np.zeros(max(order, default=0) + 1, np.int64)
    place[order] = np.arange(len(order))
    last = np.zeros_like(place)
    np.maximum.at(last, args, place[users])
    used = np.flatnonzero(last)
    return int((last[used] - place[used]).sum())
