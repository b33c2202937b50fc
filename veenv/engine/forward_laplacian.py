"""The forward Laplacian: value, first derivatives and Laplacian of each variable of a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from veenv import _compat
from veenv.engine.known import Known
from veenv.engine.slopes import Slopes, aligned, joined, moved, sources, summed
from veenv.graph.equations import Equation
from veenv.graph.program import Program
from veenv.rules import walk
from veenv.rules.dtypes import is_differentiable
from veenv.rules.table import facts


@dataclass(frozen=True)
class Jet:
    """A variable with its derivatives.

    Attributes:
      value: the variable.
      slopes: its derivatives by the numbers differentiated by that it depends on.
      laplacian: sum of its second derivatives, of its shape.
    """

    value: Array
    slopes: Slopes
    laplacian: Array


def laplacians(program: Program, inputs: Sequence[Any]) -> list[Array]:
    """Laplacians of a program's outputs.

    Args:
      program: traced by the argument whose leaves are `inputs`.
      inputs: floating-point arrays.
    """
    variables: dict[int, Any] = dict(enumerate(_seeds(inputs)))
    variables.update({program.num_inputs + i: c for i, c in enumerate(program.constants)})

    known = Known(program)
    step = lambda equation, ins: _step(equation, ins, known)  # noqa: E731
    read = walk.run(program.equations, variables, step)
    outputs = [read(o) for o in program.outputs]
    return [
        o.laplacian if isinstance(o, Jet) else jnp.zeros(aval.shape, aval.dtype)
        for o, aval in zip(outputs, program.out_avals, strict=True)
    ]


def _seeds(inputs: Sequence[Any]) -> list[Jet]:
    sizes = [prod(jnp.shape(x)) for x in inputs]
    total, start, jets = sum(sizes), 0, []
    for x, size in zip(map(jnp.asarray, inputs), sizes, strict=True):
        numbers = np.arange(start, start + size, dtype=np.int32).reshape(1, *x.shape)
        slopes = Slopes(jnp.ones((1, *x.shape), x.dtype), total, numbers)
        jets.append(Jet(x, slopes, jnp.zeros_like(x)))
        start += size
    return jets


def _step(equation: Equation, ins: Sequence[Any], known: Known) -> list[Any]:
    """The results of an equation: jets where they depend on what is differentiated by."""
    active = [
        i
        for i, (x, aval) in enumerate(zip(ins, equation.in_avals, strict=True))
        if isinstance(x, Jet) and is_differentiable(aval)
    ]
    plain = [x.value if isinstance(x, Jet) else x for x in ins]

    def run(*values: Any) -> list[Any]:
        full = list(plain)
        for i, value in zip(active, values, strict=True):
            full[i] = value
        return _compat.bind(equation.primitive, equation.params, full)

    inert = not any(map(is_differentiable, equation.out_avals))  # comparisons and the like
    if not active or inert or equation.primitive.name == "stop_gradient":
        return run(*(plain[i] for i in active))
    jets = [ins[i] for i in active]
    known_of = facts(equation.primitive.name)
    if known_of.form == "entry" and known_of.linear is None and len(ins) == 1:
        return [_unary(lambda x: run(x)[0], jets[0])]
    if known_of.name == "reduce_sum":
        [jet], axes = jets, equation.params["axes"]
        [value], [laplacian] = run(jet.value), run(jet.laplacian)
        return [Jet(value, summed(jet.slopes, axes), laplacian)]
    values = [j.value for j in jets]
    slopes, numbers = _met(
        equation, dict(zip(active, (j.slopes for j in jets), strict=True)), known
    )

    def push(tangents: Any) -> tuple[Any, Any]:
        return jax.jvp(run, values, list(tangents))

    outs, forward = push([j.laplacian for j in jets])
    pushed, total = jax.vmap(lambda t: push(t)[1])(slopes), jets[0].slopes.total
    carried = [Slopes(s, total, n) for s, n in zip(pushed, numbers, strict=True)]
    linear = {*active} <= {*(known_of.linear_in(len(ins)) or ())}
    linear |= known_of.bilinear and len(active) == 1
    if known_of.bilinear and len(active) == 2:
        twice = jax.vmap(lambda a, b: run(a, b))(*slopes)
        second = [2 * s.sum(axis=0) for s in twice]
    elif not linear:
        second = _second(run, values, slopes)
    else:
        second = [0] * len(outs)
    return [
        Jet(o, s, f + q) if is_differentiable(aval) else o
        for o, s, f, q, aval in zip(outs, carried, forward, second, equation.out_avals, strict=True)
    ]


def _met(
    equation: Equation, by_operand: dict[int, Slopes], known: Known
) -> tuple[list[Array], list[np.ndarray | None]]:
    """The slopes of an equation's operands by the same numbers, and the numbers of its results.

    Where it is not known which numbers a result depends on, the slopes are by all.

    Args:
      equation: the equation.
      by_operand: the slopes of its operands that have any.
      known: the variables of the program that are known.
    """
    several, shape = list(by_operand.values()), equation.out_avals[0].shape
    name = equation.primitive.name
    if facts(name).form in ("entry", "same") and all(s.shape == shape for s in several):
        several = aligned(several)
        return [s.values for s in several], [several[0].numbers]
    if name == "concatenate":
        shapes, axis = [a.shape for a in equation.in_avals], equation.params["dimension"]
        found = joined([by_operand.get(i) for i in range(len(shapes))], shapes, axis)
        if found is not None:
            return found[0], [found[1]]
    numbers = several[0].numbers
    if list(by_operand) == [0] and numbers is not None:
        taken = sources(equation, known)
        if taken is not None:
            return [several[0].values], [moved(numbers, some) for some in taken]
    return [s.dense().values for s in several], [None] * len(equation.out_avals)


def _unary(fun: Any, x: Jet) -> Jet:
    """An elementwise function of one variable."""
    one = jnp.ones_like(x.value)

    def slope(v: Array) -> tuple[Array, Array]:
        return jax.jvp(fun, (v,), (one,))[::-1]

    (first, value), (second, _) = jax.jvp(slope, (x.value,), (one,))
    squares = jnp.square(x.slopes.values).sum(axis=0)
    slopes = replace(x.slopes, values=first[None] * x.slopes.values)
    return Jet(value, slopes, first * x.laplacian + second * squares)


def _second(run: Any, values: Sequence[Array], slopes: Sequence[Array]) -> list[Array]:
    """Sum of the second directional derivatives of an equation along the slopes."""

    def along(tangents: Sequence[Array]) -> list[Array]:
        def moved(*at: Array) -> Any:
            return jax.jvp(run, list(at), list(tangents))[1]

        return jax.jvp(moved, list(values), list(tangents))[1]

    found = jax.vmap(along)(list(slopes))
    return [s if s.dtype == jax.dtypes.float0 else s.sum(axis=0) for s in found]
