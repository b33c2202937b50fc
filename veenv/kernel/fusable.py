"""What has a scalar form: primitives that a kernel may hold, and a look for others in time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from veenv import _compat
from veenv.kernel import rules_scalar, rules_shape, rules_sum
from veenv.kernel.program import DTYPES, CannotFuseError, Leaf, dtype_name

MOVES = {**rules_shape.RULES, **rules_sum.RULES}
"""Rules of what moves, sums and contracts entries, by primitive."""
HERE = str(Path(__file__).parent.parent)
"""Where lines of this package are, which tell a user nothing."""
_CONTROL = frozenset({"cond", "device_put", "scan"})
_KNOWN = frozenset({*MOVES, *rules_scalar.RULES, "clamp"})


def inlined(eqn: Any) -> Any | None:
    """The body of a call, one with a derivative rule of its own too; None for other equations."""
    body = _compat.inlinable(eqn)
    if body is None:
        body = _compat.call_body(eqn.primitive.name, eqn.params)
    return body if hasattr(_compat.open_jaxpr(body), "eqns") else None


def refuse_unknown(jaxpr: Any, within: Sequence[Any] = ()) -> None:
    """Refuses what has a primitive without scalar form, before anything is unrolled.

    Branches are left for later: it may be known which one is taken.

    Args:
      jaxpr: an open jaxpr.
      within: the equations whose body it is, the outer ones first.

    Raises:
      CannotFuseError: naming the primitive and the user's line.
    """
    for eqn in jaxpr.eqns:
        name, path = eqn.primitive.name, [*within, eqn]
        body = eqn.params["jaxpr"] if name == "scan" and eqn.params["length"] else inlined(eqn)
        if body is not None:
            refuse_unknown(_compat.open_jaxpr(body), path)
        elif name not in _CONTROL:
            avals = [var.aval for var in (*eqn.invars, *eqn.outvars)]
            for dtype in {aval.dtype for aval in avals if hasattr(aval, "dtype")}:
                if dtype_name(dtype) not in DTYPES:
                    raise refused(dtype_name(dtype))
            if name not in _KNOWN:
                lines = map(_compat.source_line, reversed(path))
                line = next((line for line in lines if line and HERE not in line), "")
                raise CannotFuseError(f"primitive {name!r} cannot be fused", name, line)


def leaf_of(aval: Any) -> Leaf:
    """Shape and dtype of a variable of a kernel.

    Raises:
      CannotFuseError: if a kernel does not take such numbers.
    """
    dtype = dtype_name(aval.dtype)
    if dtype not in DTYPES:
        raise refused(dtype)
    return Leaf(tuple(aval.shape), dtype)


def refused(dtype: Any) -> CannotFuseError:
    """The error for numbers that a kernel does not take."""
    return CannotFuseError(
        f"values of dtype {dtype} cannot be fused; a kernel takes float32, float64, integers and "
        "bools"
    )
