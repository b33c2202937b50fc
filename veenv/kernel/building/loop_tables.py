"""Precomputes values that depend only on the loop counter, as tables shared by all points.

Adam's bias corrections are powers of the step's number; XLA computes them once for a whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from veenv import limits
from veenv.kernel.building.builder import Builder, evaluate
from veenv.kernel.ordering import depth_first
from veenv.kernel.scalar_program import FLOATS, Op
from veenv.rules.operations import OPERATIONS, weight

_EVALUATED = frozenset({"convert", "bitcast", "call", *OPERATIONS})


def by_number(
    ops: Sequence[Op], carried: Mapping[int, int], columns: Mapping[int, Sequence[int]], b: Builder
) -> tuple[bytearray, set[int]]:
    """Finds the operations and carries of a body that depend only on the loop counter.

    `carried` are carries that start as constants, with their next values; `columns` the entries of
    stacked arrays, operations of `b`.
    """
    known = {i for i, steps in columns.items() if all(b.value(s) is not None for s in steps)}
    alone = set(carried)
    while True:
        flags = bytearray(len(ops))
        for i, op in enumerate(ops):
            if op.args:
                flags[i] = op.name in _EVALUATED and all(flags[a] for a in op.args)
            else:
                flags[i] = op.name == "const" or i in known or i in alone
        rest = {i for i in alone if flags[carried[i]]}
        if rest == alone:
            return flags, alone
        alone = rest


def tables(
    ops: Sequence[Op],
    carries: Sequence[int],
    stacked: Sequence[int],
    carried: Mapping[int, tuple[int, int]],
    columns: Mapping[int, Sequence[int]],
    order: Sequence[int],
    b: Builder,
) -> tuple[dict[int, list[int]], dict[int, int]]:
    """Operations of a body that become tables, with their entries; last values of carries.

    Args:
      ops: the body's; arguments come before what they are arguments of.
      carries: the next value of each number that is carried.
      stacked: what is stacked.
      carried: for each number that is carried and starts as a constant its start and next value.
      columns: the steps' entries of stacked arrays.
      order: the numbers of the steps, as they follow each other.
      b: where starts, entries and tables are constants.
    """
    ahead = {i: after for i, (_, after) in carried.items()}
    flags, alone = by_number(ops, ahead, columns, b)
    results = {*carries, *stacked}
    used = depth_first(ops, [i for i in results if not flags[i]])
    read = {a for i in used if not flags[i] for a in ops[i].args}
    wanted = {i for i in (*read, *results) if flags[i] and ops[i].name != "const"}
    wanted -= {ahead[i] for i in alone} - read - {*stacked}
    computed = sorted(depth_first(ops, [*wanted, *(ahead[i] for i in alone)]))
    saved = sum(weight(ops[i].name, ops[i].attr) for i in computed if ops[i].args)
    # a number that is read from a table takes as long as a multiplication
    if saved <= len(wanted) or len(computed) * len(order) > limits.MAX_OPERATIONS:
        return {}, {}
    values = {i: b.value(carried[i][0]) for i in alone}
    tables: dict[int, list[int]] = {i: [0] * len(order) for i in wanted}
    for t in order:
        now = dict(values)
        for i in computed:
            op = ops[i]
            if op.args:
                now[i] = evaluate(op, [now[a] for a in op.args])
            elif i not in now:
                now[i] = op.attr if op.name == "const" else b.value(columns[i][t])
        for i, entries in tables.items():
            entries[t] = b.const(now[i])
        values = {i: now[ahead[i]] for i in alone}
    return tables, {i: b.const(value) for i, value in values.items()}


def divided_by(ops: list[Op], i: int, entries: list[int], b: Builder) -> list[int]:
    """The entries of a table, inverse where nothing but divisors is read: these multiply then."""
    users = [k for k, op in enumerate(ops) if i in op.args]
    divisor = [ops[k].name == "div" and ops[k].args[0] != i for k in users]
    if not users or not all(divisor) or ops[i].dtype not in FLOATS:
        return entries
    inverse = [b.op("div", ops[i].dtype, b.number(1, ops[i].dtype), e) for e in entries]
    tiny = np.finfo(ops[i].dtype).tiny
    if not all(tiny <= abs(b.value(e)) < np.inf for e in inverse):
        return entries
    for k in users:
        ops[k] = ops[k]._replace(name="mul")
    return inverse
