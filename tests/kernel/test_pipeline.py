"""Estimated cycles: what makes straight-line code slow costs some, and the cheaper order runs."""

from __future__ import annotations

from math import inf

import numpy as np

from veenv.kernel import schedule
from veenv.kernel.pipeline import cycles
from veenv.kernel.program import FREE, Leaf, Op

X = Op("input", "float32", attr=(0, 0))


def in_order(ops):
    return cycles(ops, range(len(ops)))


def test_a_chain_takes_longer_than_as_many_independent_operations():
    chain = [X, *(Op("mul", "float32", (k, k)) for k in range(20))]
    alone = [X, *(Op("mul", "float32", (0, 0)) for _ in range(20))]
    assert in_order(chain) > 2 * in_order(alone)


def between(many, op):
    """So many values, an operation, and then a use of each of them."""
    values = [Op("mul", "float32", (0, 0)) for _ in range(many)]
    uses = [Op("add", "float32", (k, k)) for k in range(1, many + 1)]
    return in_order([X, *values, op, *uses])


def test_values_beyond_the_registers_are_stored_and_read_again():
    per_value = [between(n, Op("neg", "float32", (0,))) / n for n in (20, 60)]
    assert per_value[1] > 1.2 * per_value[0]


def test_a_function_that_is_called_leaves_no_register():
    # As much work in place, and by a call.
    sine = Op("call", "float32", (0,), "sin")
    called = Op("call", "float32", (0,), "exp")
    one = [in_order([X, op]) for op in (sine, called)]
    assert between(20, called) - one[1] > between(20, sine) - one[0] + 15


def test_an_estimate_ends_above_its_limit():
    chain = [X, *(Op("mul", "float32", (k, k)) for k in range(2000))]
    whole = in_order(chain)
    assert cycles(chain, range(len(chain)), whole) == whole
    assert whole / 4 < cycles(chain, range(len(chain)), whole / 4) < whole


def test_long_programs_are_in_depth_first_order(monkeypatch):
    monkeypatch.setattr(schedule, "_ESTIMATED", 5)
    monkeypatch.setattr(schedule, "cycles", None)  # nothing is estimated
    ops = [X, *(Op("mul", "float32", (k, 0)) for k in range(4)), Op("add", "float32", (0, 0))]
    leaf = Leaf((2,), "float32")
    program = schedule.scheduled(ops, [Leaf((), "float32")], [leaf], [np.array([5, 4])])
    assert [op.name for op in program.ops if op.name not in FREE] == ["add", *["mul"] * 4]


def test_the_order_of_fewer_cycles_is_taken(monkeypatch):
    ops = [X, *(Op("mul", "float32", (k, 0)) for k in range(4)), Op("add", "float32", (0, 0))]
    leaf = Leaf((2,), "float32")
    found = []
    for sign in (1, -1):  # the order whose last operation has the lower number, then the other
        monkeypatch.setattr(schedule, "cycles", lambda _, order, __=inf, s=sign: s * order[-1])
        program = schedule.scheduled(ops, [Leaf((), "float32")], [leaf], [np.array([5, 4])])
        found.append([op.name for op in program.ops if op.name not in FREE])
    assert found == [["add", *["mul"] * 4], [*["mul"] * 4, "add"]]
