"""Proof that a function is linear: that a rule may be applied to anything but real cotangents.

Every variable of a program is zero, constant, linear in the inputs, or of unknown kind.  Only what
follows from the primitives is believed; anything else counts as unknown.  So does what is linear
but has another derivative, through a rule of its own or where gradients stop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from veenv import _compat
from veenv.graph.own_derivative import is_own_derivative
from veenv.graph.program import Equation, Literal, Program
from veenv.rules.base import find
from veenv.rules.dtypes import is_differentiable
from veenv.rules.table import facts


class Kind(IntEnum):
    """What is known of a variable: `LINEAR` is linear and homogeneous in the inputs."""

    ZERO = 0
    CONSTANT = 1
    LINEAR = 2
    UNKNOWN = 3


Kinds = Sequence[Kind]


def is_linear(program: Program) -> bool:
    """Whether all outputs of a program are provably linear in its inputs.

    Args:
      program: the program; its constants are constant.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from veenv.graph.program import trace
      >>> x = jax.ShapeDtypeStruct((3,), "float32")
      >>> is_linear(trace(lambda g: jnp.where(x.shape[0] > 2, 2 * g[::-1], 0), [x]))
      True
      >>> is_linear(trace(lambda g: jnp.clip(g, -1, 1), [x]))
      False
    """
    known: dict[int, Kind] = {
        variable: Kind.LINEAR if variable < program.num_inputs else Kind.CONSTANT
        for variable in range(program.num_inputs + len(program.constants))
    }

    def read(atom: Any) -> Kind:
        return _of_value(atom.value) if isinstance(atom, Literal) else known[atom]

    for e in program.equations:
        kinds = [read(a) for a in e.inputs]
        found = _results(e.primitive, e.params, kinds, e.in_avals, e.out_avals)
        for variable, kind in zip(e.outputs, found, strict=True):
            if variable is not None:
                known[variable] = kind
    return all(read(o) in (Kind.ZERO, Kind.LINEAR) for o in program.outputs)


def is_zero_at_zero(program: Program) -> bool:
    """Whether all outputs of a program are provably zero where its inputs are.

    Follows the variables that hold one known number everywhere.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from veenv.graph.program import trace
      >>> x = jax.ShapeDtypeStruct((3,), "float32")
      >>> is_zero_at_zero(trace(lambda g: jnp.clip(g, -1, 1), [x]))
      True
      >>> is_zero_at_zero(trace(lambda g: jnp.ones_like(g), [x]))
      False
    """
    known: dict[int, Any] = dict.fromkeys(range(program.num_inputs), 0.0)

    def read(atom: Any) -> Any:
        if not isinstance(atom, Literal):
            return known.get(atom)
        return atom.value if np.ndim(atom.value) == 0 else None

    for e in program.equations:
        value = _uniform(e, [read(a) for a in e.inputs])
        known.update({o: value for o in e.outputs if o is not None and value is not None})
    return all(read(o) is not None and not read(o) for o in program.outputs)


def _uniform(e: Equation, values: Sequence[Any]) -> Any:
    """The one number that an equation's results hold, by those of its operands; None: unknown."""
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
    return 0.0 if linear and not any(values[n] for n in linear) else _moved(name, values)


def _moved(name: str, values: Sequence[Any]) -> Any:
    """The number that a primitive which only moves entries leaves as it is."""
    return values[0] if name in ("broadcast_in_dim", "convert_element_type", "reshape") else None


def _of_value(value: Any) -> Kind:
    """The kind of a literal; a zero without a tangent space (float0) holds nothing to compare."""
    if np.ndim(value) or not isinstance(value, (int, float, np.ndarray, np.generic)):
        return Kind.CONSTANT
    empty = jnp.result_type(value) == jax.dtypes.float0
    return Kind.ZERO if empty or value == 0 else Kind.CONSTANT


def _join(a: Kind, b: Kind) -> Kind:
    """The kind of a sum: a linear and a constant part together are neither."""
    if Kind.ZERO in (a, b) or a == b:
        return max(a, b)
    return Kind.UNKNOWN


def _results(primitive: Any, params: Any, kinds: Kinds, ins: Any, outs: Any) -> list[Kind]:
    """The kinds of an equation's results by those of its operands."""
    name, count = primitive.name, len(outs)
    inner = _compat.inlinable_body(name, params)
    if inner is not None:
        return _walked(inner, kinds)
    if name in _BODIES:
        return _BODIES[name](params, kinds, ins, outs)
    if facts(name).bilinear:
        return [_product(kinds)] * count
    linear = _positions(name, params, len(kinds))
    if linear is None and Kind.ZERO in kinds and find(name) is None:
        linear = _by_own_derivative(primitive, params, kinds, ins)
    if max(kinds, default=Kind.ZERO) < Kind.LINEAR:
        every = linear and all(kinds[n] is Kind.ZERO for n in linear)
        return [Kind.ZERO if every else Kind.CONSTANT] * count
    if linear is None:
        linear = _by_own_derivative(primitive, params, kinds, ins)
    others = [k for n, k in enumerate(kinds) if n not in (linear or ())]
    if linear is None or max(others, default=Kind.ZERO) > Kind.CONSTANT:
        return [Kind.UNKNOWN] * count
    kind = reduce(_join, (kinds[n] for n in linear), Kind.ZERO)
    return [kind if is_differentiable(a) else Kind.UNKNOWN for a in outs]


def _positions(name: str, params: Any, count: int) -> Sequence[int] | None:
    """The operands that a primitive is linear in; None if that is not known of it."""
    if name == "integer_pow" and params["y"] == 1:
        return (0,)
    return facts(name).linear_in(count)


def _product(kinds: Kinds) -> Kind:
    a, b, *others = kinds
    if Kind.ZERO in (a, b) or max(others, default=Kind.ZERO) > Kind.CONSTANT:
        return Kind.ZERO if Kind.ZERO in (a, b) else Kind.UNKNOWN
    return max(a, b) if Kind.CONSTANT in (a, b) else Kind.UNKNOWN


def _by_own_derivative(primitive: Any, params: Any, kinds: Kinds, ins: Any) -> list[int] | None:
    """The linear operands of any other primitive whose derivative is the primitive itself.

    If the tangent of p(x, c) by x is p(t, c), by JAX's rule, then p is linear in x.  Operands that
    are zero may be part of x or of c.
    """
    if Kind.UNKNOWN in kinds:
        return None
    for moved in ((Kind.ZERO, Kind.LINEAR), (Kind.LINEAR,)):
        moving = [n for n, k in enumerate(kinds) if k in moved and is_differentiable(ins[n])]
        if is_own_derivative(primitive, params, moving, ins):
            return moving
    return None


def _walked(closed: Any, kinds: Kinds) -> list[Kind]:
    """The kinds of a closed jaxpr's results by those of its operands."""
    jaxpr = _compat.open_jaxpr(closed)
    known: dict[Any, Kind] = dict(zip(jaxpr.invars, kinds, strict=True))
    known |= dict.fromkeys(jaxpr.constvars, Kind.CONSTANT)

    def read(atom: Any) -> Kind:
        return _of_value(atom.val) if isinstance(atom, core.Literal) else known[atom]

    for eqn in jaxpr.eqns:
        ins, outs = [a.aval for a in eqn.invars], [v.aval for v in eqn.outvars]
        found = _results(eqn.primitive, eqn.params, [read(a) for a in eqn.invars], ins, outs)
        known.update(zip(eqn.outvars, found, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _repeated(run: Callable[[Kinds], list[Kind]], carry: Kinds) -> list[Kind]:
    """Kinds of the results when what is carried around a loop has settled.

    Args:
      run: kinds of what is carried → kinds of all results, those of what is carried first.
      carry: the kinds at the start.
    """
    while True:
        found = run(carry)
        joined = [_join(a, b) for a, b in zip(carry, found, strict=False)]
        if joined == list(carry):
            return found
        carry = joined


def _scan(params: Any, kinds: Kinds, ins: Any, outs: Any) -> list[Kind]:
    closed = params["jaxpr"]
    num_carry = _compat.num_alike(closed.out_avals, outs)
    end = _compat.num_alike(closed.in_avals, ins)
    start = end - num_carry
    around = lambda carry: _walked(closed, [*kinds[:start], *carry, *kinds[end:]])  # noqa: E731
    found = _repeated(around, kinds[start:end])
    return [*map(_join, kinds[start:end], found[:num_carry]), *found[num_carry:]]


def _while(params: Any, kinds: Kinds, ins: Any, outs: Any) -> list[Kind]:
    tested, consts = params["cond_nconsts"], params["body_nconsts"]
    start = tested + consts
    around = lambda carry: _walked(params["body_jaxpr"], [*kinds[tested:start], *carry])  # noqa: E731
    found = [*map(_join, kinds[start:], _repeated(around, kinds[start:]))]
    test = _walked(params["cond_jaxpr"], [*kinds[:tested], *found])
    return found if max(test) < Kind.LINEAR else [Kind.UNKNOWN] * len(outs)


def _cond(params: Any, kinds: Kinds, ins: Any, outs: Any) -> list[Kind]:
    if kinds[0] > Kind.CONSTANT:
        return [Kind.UNKNOWN] * len(outs)
    branches = [_walked(branch, kinds[1:]) for branch in params["branches"]]
    return [reduce(_join, of) for of in zip(*branches, strict=True)]


def _solve(params: Any, kinds: Kinds, ins: Any, outs: Any) -> list[Kind]:
    """A linear solve, which claims to be linear in its right side."""
    first = sum(params["const_lengths"])
    count = len(ins) - first
    if max(kinds[:first], default=Kind.ZERO) > Kind.CONSTANT:
        return [Kind.UNKNOWN] * len(outs)
    side = reduce(_join, kinds[first:], Kind.ZERO)
    extra = Kind.CONSTANT if side < Kind.LINEAR else Kind.UNKNOWN
    return [side] * count + [extra] * (len(outs) - count)


_BODIES: Mapping[str, Callable[[Any, Kinds, Any, Any], list[Kind]]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "custom_linear_solve": _solve,
}
