"""Traces custom derivative rules to programs, and proves which of these are linear.

The tangent map of a `custom_jvp` call (or the cotangent map of a `custom_vjp` call) is a linear
program.  Its own graph, eliminated completely, gives the structure of the partials: an
elementwise rule stays elementwise, so that nothing about `relu` or a spike's surrogate gradient
becomes dense.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from veenv import _compat
from veenv.graph.linearity import is_linear, is_zero_at_zero
from veenv.graph.program import Equation, Literal, Program, trace
from veenv.rules import Site, walk
from veenv.rules.base import is_differentiable
from veenv.rules.passes import active_function
from veenv.rules.table import facts


@dataclass(frozen=True)
class Inner:
    """The program of a custom rule, on tangents or cotangents; linear only if `is_linear`."""

    # from tangents of the operands to tangents of the results; for a cotangent rule, from
    # cotangents of the results to cotangents of the operands. Its auxiliary output is the
    # function's value.
    program: Program
    operands: tuple[int, ...]  # the active operands
    results: tuple[int, ...]  # the differentiable results
    backward: bool  # whether it is a cotangent rule
    transposes: Callable[[], bool]  # whether JAX can transpose a tangent rule
    effects: bool  # whether the rule has effects

    @cached_property
    def is_linear(self) -> bool:
        """Whether the program is provably linear, not only the rule as JAX transposes it.

        Only then has it a derivative that is the same everywhere: an iterative solver, which
        stops at once for a right side of zeros, has another one there.
        """
        return is_linear(self.program)

    def zeros(self) -> list[Any]:
        """Returns zeros to evaluate the program at, where it is linear."""
        inputs = self.program.avals[: self.program.num_inputs]
        return [_compat.varying_as(jnp.zeros(a.shape, a.dtype), a) for a in inputs]


class CapturedValueError(jax.errors.UnexpectedTracerError):
    """A derivative rule closes over a value of a trace that has ended."""


class RuleShapeError(TypeError):
    """A derivative rule returns arrays of other shapes than its function's operands or results."""


def inner_program(site: Site) -> Inner | None:
    """Traces the rule of an equation with a custom rule; None for any other equation.

    That of a cotangent rule need not be linear (`cotangent_rules`).
    """
    operands, results = site.operands, site.results
    backward = (kind := _compat.own_rule(site.primitive, site.params)) == "vjp"
    if kind is None or not results:
        return None

    def pushed(tangents: list[Any], primals: list[Any]) -> Any:
        active = active_function(site, primals)
        return jax.jvp(active.fun, active.primals, tangents, has_aux=True)[1:]

    def pulled(cotangents: list[Any], primals: list[Any]) -> Any:
        active = active_function(site, primals)
        _, pull, outs = jax.vjp(active.fun, *active.primals, has_aux=True)
        return pull(tuple(cotangents)), outs

    def traced(run: Callable[..., Any], over: Sequence[Any]) -> Program:
        # JAX applies the rule to tangents and cotangents and does not differentiate it by them.
        args = [shape_of(a) for a in over], [shape_of(a) for a in site.in_avals]
        return trace(run, args, has_aux=True, plain=True)

    ins, outs = [site.in_avals[i] for i in operands], [site.out_avals[k] for k in results]
    program = None if backward else traced(pushed, ins)
    if program is None or walk.holds(program.equations, _compat.TANGENTS):  # a vjp inside of a jvp
        backward, program = True, traced(pulled, outs)
    if any(map(_compat.is_over, program.constants)):
        raise CapturedValueError(
            f"the derivative rule of {_compat.function_source(site.params)} ({site.source}) closes "
            "over a value that depends on the differentiated arguments, or on the loop or branch "
            "around it: make the value an argument of the function; see "
            "errors.html#capturedvalueerror"
        )
    _check_shapes(site, program, ins if backward else outs)

    def transposes() -> bool:
        try:
            jax.eval_shape(pulled, [*map(shape_of, outs)], [*map(shape_of, site.in_avals)])
        except Exception:  # an AssertionError of JAX, a TypeError of a primitive, …
            return False
        return True

    effects = any(e.effects for e in program.equations)
    program = program if backward else _without_tangents(program)
    return Inner(program, operands, results, backward, transposes, effects)


def _without_tangents(program: Program) -> Program:
    """Drops effects of a tangent rule that use only tangents, as JAX does when it transposes."""
    dependent = walk.dependent(program.equations, range(program.num_inputs))

    def goes(e: Equation) -> bool:
        alone = all(v is None for v in e.outvars)
        return bool(e.effects) and alone and not dependent.isdisjoint(walk.operands(e))

    return replace(program, equations=tuple(e for e in program.equations if not goes(e)))


def _check_shapes(site: Site, program: Program, expected: Sequence[Any]) -> None:
    """Refuses a rule whose derivatives differ in shape from their operands or results.

    JAX lets a few pass: where its check is switched off, and of a function that is constant
    under `vmap` while its tangent is not, outside of jit.
    """
    for output, aval in zip(program.outputs, expected, strict=True):
        shape = np.shape(output.val) if isinstance(output, Literal) else program.avals[output].shape
        if tuple(shape) != tuple(aval.shape):
            raise RuleShapeError(
                f"the derivative rule of {_compat.function_source(site.params)} ({site.source}) "
                f"gives an array of shape {tuple(shape)} where one of shape {tuple(aval.shape)} "
                "is expected; see errors.html#ruleshapeerror"
            )


@dataclass(frozen=True)
class Cotangents:
    """Proven properties of the cotangent rules of an equation and in its bodies."""

    linear: bool = True  # they are linear
    zero: bool = True  # they map zero cotangents to zero
    forward: bool = False  # a tangent rule is not linear, so that JAX cannot transpose it
    effects: bool = False  # one has effects

    def __and__(self, other: Cotangents) -> Cotangents:
        """Returns the properties that hold of both."""
        return Cotangents(
            self.linear and other.linear,
            self.zero and other.zero,
            self.forward or other.forward,
            self.effects or other.effects,
        )


LINEAR = Cotangents()
"""Properties of linear rules, or of no rule at all."""


def cotangent_rules(site: Site) -> Cotangents:
    """Proves properties of the cotangent rules of an equation and in its bodies."""
    kind = _compat.own_rule(site.primitive, site.params)
    if kind is not None:  # JAX differentiates its rule, not its body
        inner = inner_program(site)
        return LINEAR if inner is None else proven(inner)
    activity = _Activity(site.realify)
    activity.equation(site, list(site.active))
    return activity.proven


def proven(inner: Inner) -> Cotangents:
    """Proves properties of one rule.

    A tangent rule that JAX transposes counts as linear, a cotangent rule that does more than
    compute does not: it is run as reverse mode runs it.
    """
    proven = inner.is_linear or (not inner.backward and inner.transposes())
    linear = proven and not (inner.backward and inner.effects)
    zero = proven or is_zero_at_zero(inner.program)
    return Cotangents(linear, zero, not linear and not inner.backward, inner.effects)


class _Activity(walk.Flags):
    """Activity analysis: marks values with a tangent, and collects properties of the rules met.

    A user's rule may refuse, with any exception, to be differentiated by what is constant where it
    stands: an operand of a body moves only where something that moves comes to it.
    """

    def __init__(self, realify: bool):
        self.proven, self._realify = LINEAR, realify
        self._known: dict[tuple[int, ...], Cotangents] = {}

    def primitive(self, equation: Any, ins: list[bool]) -> list[bool]:
        """Marks the results of an equation, and proves properties of its rule."""
        outs = walk.out_avals(equation)
        pairs = zip(ins, walk.in_avals(equation), strict=True)
        active = [moves and is_differentiable(aval) for moves, aval in pairs]
        if not any(active) or facts(equation.primitive.name).flat:
            return [False] * len(outs)
        key = (id(equation), *active)
        if key not in self._known:
            self._known[key] = self._rules(equation, active)
            self.proven &= self._known[key]
        return list(map(is_differentiable, outs))

    def _rules(self, equation: Any, active: list[bool]) -> Cotangents:
        """Proves properties of an equation's rule, or of its bodies with all operands active."""
        if _compat.own_rule(equation.primitive, equation.params) is not None:
            avals = walk.in_avals(equation), walk.out_avals(equation)
            source = getattr(equation, "source", None) or _compat.source_line(equation)
            try:
                return cotangent_rules(
                    Site(equation.primitive, equation.params, *avals, active, source, self._realify)
                )
            except CapturedValueError:
                raise
            except Exception:  # nothing can be proved of it
                return Cotangents(linear=False, zero=False)
        inner = _Activity(self._realify)
        for body in _compat.bodies(equation.params):
            inner.results(body, dict.fromkeys((*body.invars, *body.constvars), True), ())
        return inner.proven


def definition(site: Site) -> Hashable:
    """Names the function an equation calls, so that its rule is recognised inside itself."""
    return site.primitive.name, _compat.function_source(site.params)


def shape_of(aval: Any) -> Any:
    """Returns an argument to trace with, of the shape and dtype of a variable."""
    if aval.dtype == jax.dtypes.float0:
        return np.zeros(aval.shape, aval.dtype)
    return _compat.abstract(aval)
