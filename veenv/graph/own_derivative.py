"""Primitives of other libraries that are their own derivative, and so linear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from veenv import _compat
from veenv.rules import walk
from veenv.rules.dtypes import is_differentiable


def is_own_derivative(primitive: Any, params: Any, moving: Sequence[int], ins: Any) -> bool:
    """Whether the tangent of a primitive by some operands is the primitive at their tangents."""
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in ins]

    def pushed(full: list[Any], tangents: list[Any]) -> Any:
        def call(*values: Any) -> Any:
            own = list(full)
            for n, value in zip(moving, values, strict=True):
                own[n] = value
            return _compat.bind(primitive, params, own)

        return jax.jvp(call, [full[n] for n in moving], tangents)[1]

    try:
        closed = jax.make_jaxpr(pushed)(shapes, [shapes[n] for n in moving])
    except Exception:  # the rule of a primitive of somebody else's
        return False
    jaxpr = _compat.open_jaxpr(closed)
    expected: list[Any] = list(jaxpr.invars[: len(ins)])
    for n, var in zip(moving, jaxpr.invars[len(ins) :], strict=True):
        expected[n] = var
    made: list[Any] = []

    def step(eqn: Any, ins: list[Any]) -> list[Any]:
        same = eqn.primitive is primitive and ins == expected
        if same and all(_equal(eqn.params.get(k), v) for k, v in params.items()):
            made[:] = eqn.outvars
        source = _copied(eqn)
        return list(eqn.outvars) if source is None else [ins[source]]

    known = {v: v for v in (*jaxpr.invars, *jaxpr.constvars)}
    read = walk.run(jaxpr, known, step, lambda _: None)  # literals are nobody's copies
    moved = [
        (v, made[k]) for k, v in enumerate(jaxpr.outvars) if made and is_differentiable(v.aval)
    ]
    return bool(moved) and all(read(v) is own for v, own in moved)


def _copied(eqn: Any) -> int | None:
    """Which operand the result of an equation is a copy of, if it is one."""
    if eqn.primitive.name in ("copy", "copy_p"):
        return 0
    if eqn.primitive.name in ("add", "add_any"):
        zero = [walk.is_literal(v) and np.ndim(v.val) == 0 and v.val == 0 for v in eqn.invars]
        return 1 - zero.index(True) if True in zero else None
    return None


def _equal(a: Any, b: Any) -> bool:
    """Whether two parameters are equal; tokens that only name themselves are."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    if type(a) is type(b) and type(a).__eq__ is object.__eq__:
        return True
    try:
        return bool(a == b)
    except Exception:  # parameters need not be comparable
        return False
