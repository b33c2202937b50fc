"""Refs (`jax.new_ref`): what happens between making them and reading them is one equation.

A ref is no value: its reads and writes have an order, and a partial of one alone means nothing.
So all equations on a ref, and those on a path between two of them, become one equation of the
values that go in and come out, which JAX itself differentiates.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from veenv import _compat
from veenv.graph.equations import Equation, Function, Literal, Var
from veenv.rules import walk


def _run(
    equations: Sequence[Equation], inputs: Sequence[Var], outputs: Sequence[Var], *args: Any
) -> list[Any]:
    """Runs equations on refs, of values to values."""

    def run(*args: Any) -> list[Any]:
        variables: dict[Var, Any] = dict(zip(inputs, map(jnp.asarray, args), strict=True))
        read = walk.run(equations, variables, walk.apply, lambda a: jnp.asarray(a.value))
        return [read(o) for o in outputs]

    # In jit no ref is ever made for real: JAX's rules bind the zero tangents of integers.
    return jax.jit(run)(*args)


def fold_refs(
    equations: Sequence[Equation], avals: Sequence[Any], results: Sequence[Var | Literal]
) -> list[Equation]:
    """Replaces all equations on refs by equations on values."""
    touching = [n for n, e in enumerate(equations) if _touches(e)]
    for equation in (equations[n] for n in touching):
        if walk.branches_of(equation) and any(map(_compat.is_ref, equation.in_avals)):
            raise NotImplementedError(
                "a ref that the branches of a cond read or write cannot be differentiated: JAX "
                f"cannot batch it; return the value from the branches ({equation.source})"
            )
    if not touching:
        return list(equations)
    folded: list[Equation] = []
    done = 0
    for first, last in _spans(equations, touching):
        folded += equations[done:first]
        folded += _fold(equations, range(first, last + 1), avals, results)
        done = last + 1
    return folded + list(equations[done:])


def _touches(equation: Equation) -> bool:
    """Whether an equation reads, writes or makes a ref, by itself or in a body."""
    if any(_compat.is_ref(a) for a in (*equation.in_avals, *equation.out_avals)):
        return True
    return any(_compat.is_ref(v.aval) for e in walk.inside(equation.params) for v in e.outvars)


def _spans(equations: Sequence[Equation], touching: Sequence[int]) -> list[tuple[int, int]]:
    """First and last equation of each group of refs, spans that overlap joined."""
    last: dict[Var, int] = {}
    for n in touching:
        for variable, aval in zip(equations[n].inputs, equations[n].in_avals, strict=True):
            if isinstance(variable, Var) and _compat.is_ref(aval):
                last[variable] = n
    spans: list[tuple[int, int]] = []
    for n in touching:
        ends = [n, *(last.get(s, n) for s in equations[n].outputs if s is not None)]
        if spans and n <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], *ends)
        else:
            spans.append((n, max(ends)))
    return spans


def _fold(
    equations: Sequence[Equation],
    span: range,
    avals: Sequence[Any],
    results: Sequence[Var | Literal],
) -> list[Equation]:
    """The equations of a span, those on refs and between them made one."""
    inside = _between(equations, span)
    members = [equations[n] for n in span if n in inside]
    own = {s for e in members for s in e.outputs if s is not None}
    after: set[Var] = set(own)  # results of the new equation and what depends on them
    before_them: list[Equation] = []
    behind_them: list[Equation] = []
    for n in span:
        if n in inside:
            continue
        e = equations[n]
        depends = any(isinstance(a, Var) and a in after for a in e.inputs)
        after.update(s for s in e.outputs if depends and s is not None)
        (behind_them if depends else before_them).append(e)
    outside = [*equations[: span.start], *before_them, *behind_them, *equations[span.stop :]]
    read = {a for e in outside for a in e.inputs if isinstance(a, Var)}
    read |= {a for a in results if isinstance(a, Var)}
    return [*before_them, _equation(members, own, read, avals), *behind_them]


def _between(equations: Sequence[Equation], span: range) -> set[int]:
    """Equations of a span that are on refs or on a path between two that are."""
    found = {n for n in span if _touches(equations[n])}

    def reached(order: Sequence[int], sources: str, targets: str) -> set[int]:
        variables: set[Var] = set()
        numbers = set()
        for n in order:
            if any(isinstance(s, Var) and s in variables for s in getattr(equations[n], sources)):
                numbers.add(n)
            if n in found or n in numbers:
                variables.update(s for s in getattr(equations[n], targets) if isinstance(s, Var))
        return numbers

    descendants = reached(span, "inputs", "outputs")
    return found | descendants & reached(span[::-1], "outputs", "inputs")


def _equation(
    members: Sequence[Equation], own: set[Var], read: set[Var], avals: Sequence[Any]
) -> Equation:
    inputs = tuple(
        dict.fromkeys(a for e in members for a in e.inputs if isinstance(a, Var) and a not in own)
    )
    outputs = tuple(sorted(own & read))
    source = next(e.source for e in members if _touches(e))
    if any(_compat.is_ref(avals[s]) for s in (*inputs, *outputs)):
        raise NotImplementedError(
            "a ref can only be differentiated through where the function makes it (jax.new_ref) "
            f"and keeps it; one comes from outside or is returned ({source})"
        )
    return Equation(
        Function("refs", functools.partial(_run, members, inputs, outputs)),
        {},
        inputs,
        outputs,
        tuple(avals[s] for s in inputs),
        tuple(avals[s] for s in outputs),
        source,
        frozenset().union(*(e.effects for e in members)),
    )
