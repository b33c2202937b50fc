"""Scalar programs of every operation that a kernel can have: to be compiled, or checked."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from veenv.kernel.scalar_program import FLOATS, Leaf, Op, ScalarProgram
from veenv.rules.operations import OPERATIONS

COMPARED = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
BITS = frozenset({"and", "or", "xor", "not"})
SHIFTS = frozenset({"shl", "shr_a", "shr_l"})
ARITHMETIC = frozenset({"add", "sub", "mul", "div", "rem", "neg", "abs", "max", "min"})
KINDS = (
    "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "bool",
)  # fmt: skip
"""Dtypes that a kernel computes in."""


@dataclasses.dataclass(frozen=True)
class Operations:
    """A program that does each operation once.

    Attributes:
      program: takes three numbers and a bool; every result is one operation's.
      names: the operation of each result.
    """

    program: ScalarProgram
    names: tuple[str, ...]


def operations(dtype: str) -> Operations:
    """All operations of a dtype, and conversions from it to the others.

    Args:
      dtype: what they compute with, by NumPy's name.
    """
    ops = [Op("input", dtype, (), (k, 0)) for k in range(3)] + [Op("input", "bool", (), (3, 0))]
    first = len(ops)
    for name, operation in OPERATIONS.items():
        if not belongs(name, dtype):
            continue
        to = "bool" if name in COMPARED else dtype
        if operation.function:
            ops.append(Op("call", to, tuple(range(arguments(name))), name))
        elif name == "select":
            ops.append(Op(name, to, (3, 0, 1)))
        else:
            # a shift is by less than the width, a divisor is not zero
            ops.append(Op(name, to, ((0, 2) if name in SHIFTS else (0, 1))[: arguments(name)]))
    for to in ("float32", "int32", "uint32", "int8", "bool"):
        if to != dtype:
            ops.append(Op("convert", to, (0,)))
    if np.dtype(dtype).itemsize == 4:
        ops.append(Op("bitcast", "int32", (0,)))
    made = ops[first:]
    inputs = tuple(Leaf((), op.dtype) for op in ops[:first])
    program = ScalarProgram(
        inputs, tuple(ops), tuple(Leaf((), op.dtype) for op in made),
        tuple((k,) for k in range(first, len(ops))),
    )  # fmt: skip
    return Operations(program, tuple(op.attr if op.name == "call" else op.name for op in made))


def belongs(name: str, dtype: str) -> bool:
    """Whether kernels have an operation of a dtype."""
    if dtype == "bool":
        return name in BITS | {"select"}
    if dtype in FLOATS:
        return name not in BITS | SHIFTS
    known = BITS | SHIFTS | COMPARED | ARITHMETIC | {"select"}
    return name in known and (name, dtype[0]) != ("abs", "u")


def arguments(name: str) -> int:
    """How many arguments an operation has."""
    return max(OPERATIONS[name].c.count(f"{{{k}}}") > 0 and k + 1 for k in range(3))


def by_target() -> dict[str, list[Any]]:
    """A table of how each operation is computed, by what the kernel is for."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for name, operation in OPERATIONS.items():
        function = operation.function or not (operation.llvm or name in ("max", "min", "select"))
        how = ("libm, libmvec", "libdevice") if function else ("instructions",) * 2
        if name in ("sin", "cos"):
            how = tuple(f"a polynomial, far out {call}" for call in ("libm", "libdevice"))
        rows.setdefault(how, []).append(name)
    rows["yes", "yes"] = [*KINDS]
    columns = ["operations, then dtypes", "CPU", "GPU of NVIDIA"]
    found = [[" ".join(f"`{name}`" for name in names), *how] for how, names in rows.items()]
    return {"columns": columns, "rows": found}
