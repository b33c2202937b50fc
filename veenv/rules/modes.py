"""Which of JAX's two modes a primitive has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import Array

from veenv import _compat
from veenv.rules import walk
from veenv.rules.table import facts

REFUSALS = (ValueError, NotImplementedError, TypeError)
"""What JAX raises where it lacks a mode."""


def goes_both_ways(name: str, params: Any) -> bool:
    """Whether JAX is known to have both modes of a primitive, which need not be traced for that.

    Args:
      name: the primitive's name.
      params: its parameters; what is in their jaxprs counts too.

    Example:
      >>> goes_both_ways("sin", {}), goes_both_ways("while", {})
      (True, False)
    """
    inner = (e.primitive.name for e in walk.inside(params))
    return all(facts(each).both for each in (name, *inner))


def only_backward(params: Any, fun: Callable[..., Any], primals: Sequence[Array]) -> bool:
    """Whether a custom vjp inside of an equation leaves it without a forward mode.

    JAX raises where the tangent of such a function is computed, which under jit is after this.
    """
    if not any(True for _ in _compat.bodies(params)):
        return False
    try:
        return not has_jvp(fun, primals)
    except REFUSALS:
        return False  # said where it is pushed forward


def has_jvp(fun: Callable[..., Any], primals: Sequence[Any]) -> bool:
    """Whether JAX has the tangent of a function; what it cannot trace it raises."""
    pushed = jax.make_jaxpr(lambda p: jax.jvp(fun, p, p))(tuple(primals))
    return not (walk.holds(pushed, ("custom_lin",)) or _compat.has_lost(pushed))


def has_vjp(fun: Callable[..., Any], primals: Sequence[Any]) -> bool:
    """Whether JAX can transpose a function's derivative (it cannot for a `while`, say)."""

    def pull(*values: Array) -> Any:
        outs, back = jax.vjp(fun, *values)
        return back(outs)

    try:
        pulled = jax.make_jaxpr(pull)(*primals)
    except REFUSALS:
        return False
    return not _compat.has_lost(pulled)
