"""What has a scalar form: primitives that a kernel may hold, and a look for others in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from veenv import _compat
from veenv.kernel import linear, moves, random_numbers, sums
from veenv.kernel.elementwise import ELEMENTWISE
from veenv.kernel.program import DTYPES, PAIRS, CannotFuseError, Leaf, dtype_name

MOVES = {**moves.RULES, **sums.RULES, **linear.RULES, **random_numbers.RULES}
"""Rules of what moves, sums, contracts and solves, by primitive."""
_CONTROL = frozenset({"cond", "device_put", "platform_index", "scan", "while"})
_KNOWN = frozenset({*MOVES, *ELEMENTWISE})


UNLIKE_XLA = frozenset({"eigh"})
"""What only a kernel that is asked for may hold: eigenvectors of its own signs."""


def called_by(eqn: Any) -> tuple[Any, Sequence[int]] | None:
    """A jaxpr that a call runs, and which of its operands are the arguments; None for others.

    A call may have a derivative rule of its own.
    """
    if eqn.primitive.name == "custom_linear_solve":
        lengths = eqn.params["const_lengths"]
        first = lengths.matvec + lengths.vecmat
        right = range(first + lengths.solve + lengths.transpose_solve, len(eqn.invars))
        return eqn.params["jaxprs"].solve, [*range(first, first + lengths.solve), *right]
    body = _compat.inlinable(eqn)
    if body is None:
        body = random_numbers.body_of(eqn)
    if body is None:
        body = _compat.call_body(eqn.primitive.name, eqn.params)
    known = hasattr(_compat.open_jaxpr(body), "eqns")
    return (body, range(len(eqn.invars))) if known else None


def refuse_unknown(jaxpr: Any, within: Sequence[Any] = ()) -> int:
    """Refuses what has a primitive without scalar form, before anything is unrolled.

    `within` are the equations whose body the jaxpr is, the outer ones first. Branches are left for
    later: it may be known which one is taken. Returns about how many operations linear algebra
    takes.
    """
    total = 0
    for eqn in jaxpr.eqns:
        name, path = eqn.primitive.name, [*within, eqn]
        called = called_by(eqn)
        bodies = [called[0]] if called is not None else []
        if name == "while" or (name == "scan" and eqn.params["length"]):
            bodies = [*_compat.bodies(eqn.params)]
        if bodies:
            total += sum(refuse_unknown(_compat.open_jaxpr(body), path) for body in bodies)
        elif name not in _CONTROL:
            avals = [var.aval for var in (*eqn.invars, *eqn.outvars)]
            for dtype in {aval.dtype for aval in avals if hasattr(aval, "dtype")}:
                if dtype_name(dtype) not in {*DTYPES, *PAIRS}:
                    raise refused(dtype_name(dtype))
            if name not in _KNOWN:
                lines = map(_compat.source_line, reversed(path))
                line = next(filter(None, lines), "")
                raise CannotFuseError(f"primitive {name!r} cannot be fused", name, line)
            total += linear.operations(eqn)
    return total


def leaf_of(aval: Any) -> Leaf:
    """Shape and dtype of a variable of a kernel."""
    dtype = dtype_name(aval.dtype)
    if dtype not in DTYPES:
        raise refused(dtype)
    return Leaf(tuple(aval.shape), dtype)


def refused(dtype: Any) -> CannotFuseError:
    """The error for numbers that a kernel does not take."""
    return CannotFuseError(
        f"values of dtype {dtype} cannot be fused; a kernel takes floats of 16 to 64 bits, "
        "integers, bools, keys of Threefry, and complex numbers in between"
    )
