"""Folds all equations on refs (`jax.new_ref`), from the first to the last, into one equation.

A ref is no value: its reads and writes have an order, and a partial of one alone means nothing.
So all equations from the first on a ref to the last become one equation of the values that go in
and come out, which JAX itself differentiates.
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
    """Runs equations on refs as a function of values."""

    def run(*args: Any) -> list[Any]:
        variables: dict[Var, Any] = dict(zip(inputs, map(jnp.asarray, args), strict=True))
        read = walk.run(equations, variables, walk.apply, lambda a: jnp.asarray(a.val))
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
    first, end = touching[0], touching[-1] + 1
    outside = [*equations[:first], *equations[end:]]
    read = {a for e in outside for a in e.invars if isinstance(a, Var)}
    read |= {a for a in results if isinstance(a, Var)}
    folded = _equation(equations[first:end], read, avals)
    return [*equations[:first], folded, *equations[end:]]


def _touches(equation: Equation) -> bool:
    """Returns whether an equation reads, writes or makes a ref, itself or in a body."""
    if any(_compat.is_ref(a) for a in (*equation.in_avals, *equation.out_avals)):
        return True
    return any(_compat.is_ref(v.aval) for e in walk.inside(equation.params) for v in e.outvars)


def _equation(members: Sequence[Equation], read: set[Var], avals: Sequence[Any]) -> Equation:
    """Combines equations into one, with the results that other equations read."""
    produced = {s for e in members for s in e.outvars if s is not None}
    inputs = tuple(
        dict.fromkeys(
            a for e in members for a in e.invars if isinstance(a, Var) and a not in produced
        )
    )
    outputs = tuple(sorted(produced & read))
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
