"""Proves functions linear, so that their rules may be applied to any matrix of cotangents.

Every variable of a program is zero, constant, linear in the inputs, or of unknown kind.  Only what
follows from the primitives is believed; anything else counts as unknown.  So does what is linear
but has another derivative, through a rule of its own or where gradients stop.  A primitive of
another library is linear where it is its own derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from veenv import _compat
from veenv.graph.program import Equation, Program
from veenv.rules import walk
from veenv.rules.base import find, is_differentiable, replaced
from veenv.rules.table import facts


class Kind(IntEnum):
    """Abstract value of a variable; `LINEAR` is linear and homogeneous in the inputs."""

    ZERO = 0
    CONSTANT = 1
    LINEAR = 2
    UNKNOWN = 3


Kinds = Sequence[Kind]


def is_linear(program: Program) -> bool:
    """Returns whether all outputs of a program are provably linear in its inputs.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from veenv.graph.program import trace
      >>> x = jax.ShapeDtypeStruct((3,), "float32")
      >>> is_linear(trace(lambda g: jnp.where(x.shape[0] > 2, 2 * g[::-1], 0), [x]))
      True
      >>> is_linear(trace(lambda g: jnp.clip(g, -1, 1), [x]))
      False
    """
    count, constants = program.num_inputs, len(program.constants)
    known = dict.fromkeys(range(count), Kind.LINEAR)
    known |= dict.fromkeys(range(count, count + constants), Kind.CONSTANT)
    kinds = _Kinds().results(program.equations, known, program.outputs)
    return all(kind in (Kind.ZERO, Kind.LINEAR) for kind in kinds)


def is_zero_at_zero(program: Program) -> bool:
    """Returns whether all outputs of a program are provably zero where its inputs are.

    Follows the variables that hold one known number everywhere.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from veenv.graph.program import trace
      >>> x = jax.ShapeDtypeStruct((3,), "float32")
      >>> is_zero_at_zero(trace(lambda g: jnp.clip(g, -1, 1), [x]))
      True
      >>> is_zero_at_zero(trace(lambda g: jnp.ones_like(g), [x]))
      False
    """
    known: dict[int, Any] = dict.fromkeys(range(program.num_inputs), 0.0)
    known |= dict.fromkeys(range(program.num_inputs, len(program.avals)))

    def step(e: Equation, values: Sequence[Any]) -> list[Any]:
        return [_uniform(e, values)] * len(e.outvars)

    read = walk.run(program.equations, known, step, lambda a: None if np.ndim(a.val) else a.val)
    return all(read(o) is not None and not read(o) for o in program.outputs)


def _uniform(e: Equation, values: Sequence[Any]) -> Any:
    """Returns the one number that an equation's results hold everywhere; None if unknown."""
    name, params = e.primitive.name, e.params
    if facts(name).bilinear and any(v is not None and not v for v in values[:2]):
        return 0.0
    if None in values or not values:
        return None
    if facts(name).elementwise:
        with jax.ensure_compile_time_eval():
            cast = [jnp.asarray(v, a.dtype) for v, a in zip(values, e.in_avals, strict=True)]
            return _compat.bind(e.primitive, params, cast)[0]
    linear = _positions(name, params, len(values)) or ()
    if linear and not any(values[n] for n in linear):
        return 0.0
    first, *rest = values
    if facts(name).form == "same":  # with several operands, result k copies operand k
        return first if all(np.array_equal(v, first) for v in rest) else None
    return first if facts(name).result == "entries" else None


class _Kinds(walk.Domain[Kind]):
    """Abstract interpretation of a program by the kinds of its variables."""

    def constant(self, value: Any) -> Kind:
        """Returns the kind of a constant; float0 zeros have no values to compare."""
        if np.ndim(value) or not isinstance(value, (int, float, np.ndarray, np.generic)):
            return Kind.CONSTANT
        empty = jnp.result_type(value) == jax.dtypes.float0
        return Kind.ZERO if empty or value == 0 else Kind.CONSTANT

    def join(self, a: Kind, b: Kind) -> Kind:
        """Returns the kind of a sum: a linear and a constant part together are neither."""
        return max(a, b) if Kind.ZERO in (a, b) or a == b else Kind.UNKNOWN

    def chosen(self, test: Callable[[], Kind], results: list[Kind]) -> list[Kind]:
        """Returns the kinds of a branch's results: unknown where the inputs choose the branch."""
        return results if test() < Kind.LINEAR else [Kind.UNKNOWN] * len(results)

    def primitive(self, equation: Any, ins: list[Kind]) -> list[Kind]:
        """Returns the results' kinds by the operands that a primitive is linear in."""
        primitive, params = equation.primitive, equation.params
        name, avals, outs = primitive.name, walk.in_avals(equation), walk.out_avals(equation)
        if facts(name).form == "solve":
            return self._solve(params, ins, len(outs))
        if facts(name).bilinear:
            return [_product(ins)] * len(outs)
        linear = _positions(name, params, len(ins))
        if linear is None and Kind.ZERO in ins and find(name) is None:
            linear = _by_own_derivative(primitive, params, ins, avals)
        if max(ins, default=Kind.ZERO) < Kind.LINEAR:
            zero = linear and all(ins[n] is Kind.ZERO for n in linear)
            return [Kind.ZERO if zero else Kind.CONSTANT] * len(outs)
        if linear is None:
            linear = _by_own_derivative(primitive, params, ins, avals)
        rest = [k for n, k in enumerate(ins) if n not in (linear or ())]
        if linear is None or max(rest, default=Kind.ZERO) > Kind.CONSTANT:
            return [Kind.UNKNOWN] * len(outs)
        kind = reduce(self.join, (ins[n] for n in linear), Kind.ZERO)
        return [kind if is_differentiable(a) else Kind.UNKNOWN for a in outs]

    def _solve(self, params: Any, ins: list[Kind], count: int) -> list[Kind]:
        """Returns the kinds of a linear solve, which claims to be linear in its right side."""
        first = sum(params["const_lengths"])
        if max(ins[:first], default=Kind.ZERO) > Kind.CONSTANT:
            return [Kind.UNKNOWN] * count
        side = reduce(self.join, ins[first:], Kind.ZERO)
        extra = Kind.CONSTANT if side < Kind.LINEAR else Kind.UNKNOWN
        solved = len(ins) - first
        return [side] * solved + [extra] * (count - solved)


def _positions(name: str, params: Any, count: int) -> Sequence[int] | None:
    """Returns the operands that a primitive is linear in; None if none is known."""
    if facts(name).power(params) == 1:
        return (0,)
    return facts(name).linear_in(count)


def _product(kinds: Kinds) -> Kind:
    a, b, *rest = kinds
    if Kind.ZERO in (a, b) or max(rest, default=Kind.ZERO) > Kind.CONSTANT:
        return Kind.ZERO if Kind.ZERO in (a, b) else Kind.UNKNOWN
    return max(a, b) if Kind.CONSTANT in (a, b) else Kind.UNKNOWN


def _by_own_derivative(primitive: Any, params: Any, kinds: Kinds, ins: Any) -> list[int] | None:
    """Finds the linear operands of a primitive that is its own derivative.

    If the tangent of p(x, c) by x is p(t, c), by JAX's rule, then p is linear in x.  Operands that
    are zero may be part of x or of c.
    """
    if Kind.UNKNOWN in kinds:
        return None
    for active_kinds in ((Kind.ZERO, Kind.LINEAR), (Kind.LINEAR,)):
        active = [n for n, k in enumerate(kinds) if k in active_kinds and is_differentiable(ins[n])]
        if is_own_derivative(primitive, params, active, ins):
            return active
    return None


def is_own_derivative(primitive: Any, params: Any, active: Sequence[int], ins: Any) -> bool:
    """Returns whether a primitive's tangent by some operands is itself at their tangents."""
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in ins]

    def pushed(full: list[Any], tangents: list[Any]) -> Any:
        def call(*values: Any) -> Any:
            return _compat.bind(primitive, params, replaced(full, active, values))

        return jax.jvp(call, [full[n] for n in active], tangents)[1]

    try:
        closed = jax.make_jaxpr(pushed)(shapes, [shapes[n] for n in active])
    except Exception:  # another library's rule may raise anything
        return False
    jaxpr = _compat.open_jaxpr(closed)
    expected = replaced(jaxpr.invars[: len(ins)], active, jaxpr.invars[len(ins) :])
    applied: list[Any] = []

    def step(eqn: Any, ins: list[Any]) -> list[Any]:
        same = eqn.primitive is primitive and ins == expected
        if same and all(_equal(eqn.params.get(k), v) for k, v in params.items()):
            applied[:] = eqn.outvars
        source = _copied(eqn)
        return list(eqn.outvars) if source is None else [ins[source]]

    known = {v: v for v in (*jaxpr.invars, *jaxpr.constvars)}
    read = walk.run(jaxpr, known, step, lambda _: None)  # literals copy no variable
    pairs = [
        (v, applied[k])
        for k, v in enumerate(jaxpr.outvars)
        if applied and is_differentiable(v.aval)
    ]
    return bool(pairs) and all(read(v) is result for v, result in pairs)


def _copied(eqn: Any) -> int | None:
    """Returns the operand that an equation copies; None if it copies none."""
    known = facts(eqn.primitive.name)
    if known.form == "same" and known.result == "entries":
        return 0
    if known.result == "sum":
        zero = [walk.is_literal(v) and np.ndim(v.val) == 0 and v.val == 0 for v in eqn.invars]
        return 1 - zero.index(True) if True in zero else None
    return None


def _equal(a: Any, b: Any) -> bool:
    """Compares two parameters; tokens that only name themselves count as equal."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    if type(a) is type(b) and type(a).__eq__ is object.__eq__:
        return True
    try:
        return bool(a == b)
    except Exception:  # parameters need not be comparable
        return False
