"""The arithmetic in a program: multiplications and additions of a jaxpr.

It knows nothing of structures, so that it checks what they predict.  What no order changes, the
evaluation of the function and of its elemental partials, has a price of its own here, in which
divisions and functions weigh what they take in a kernel (`veenv.kernel.weights`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp

from veenv.engine.evaluation import evaluate
from veenv.graph.argnums import normalise_argnums
from veenv.graph.linearisation import linearise
from veenv.graph.program import trace
from veenv.kernel.builder import Builder
from veenv.kernel.program import FREE, CannotFuseError
from veenv.kernel.rules_scalar import RULES
from veenv.kernel.weights import SHARED, weight

_MOVES = frozenset({"neg", "convert_element_type", "bitcast_convert_type", "reduce_precision"})
_NO_RULE = {"digamma": 60, "log2": 20}
"""Weights of functions that a kernel does not have; estimates."""


def multiplications_in(jaxpr: Any) -> int:
    """Scalar multiplications of a jaxpr: those of its products and contractions.

    Args:
      jaxpr: an open or closed jaxpr; those inside of its equations count too.

    Example:
      >>> multiplications_in(jax.make_jaxpr(lambda a, x: a @ x * 2)(jnp.ones((2, 3)), jnp.ones(3)))
      8
    """
    total = 0
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        size = prod(eqn.outvars[0].aval.shape) if eqn.outvars else 0
        if eqn.primitive.name == "mul":
            total += size
        elif eqn.primitive.name == "dot_general":
            contracted = eqn.params["dimension_numbers"][0][0]
            total += size * prod(eqn.invars[0].aval.shape[axis] for axis in contracted)
        total += sum(map(multiplications_in, _inner(eqn)))
    return total


def additions_in(jaxpr: Any) -> int:
    """Scalar additions of a jaxpr: those of its sums and contractions; of integers none.

    Args:
      jaxpr: an open or closed jaxpr; those inside of its equations count too.

    Example:
      >>> additions_in(jax.make_jaxpr(lambda a, x: a @ x - 2)(jnp.ones((2, 3)), jnp.ones(3)))
      6
    """
    total = 0
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        total += sum(map(additions_in, _inner(eqn)))
        if not eqn.outvars or not jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.inexact):
            continue
        size = prod(eqn.outvars[0].aval.shape)
        if eqn.primitive.name in ("add", "sub", "add_any"):
            total += size
        elif eqn.primitive.name == "reduce_sum":
            total += prod(eqn.invars[0].aval.shape) - size
        elif eqn.primitive.name == "dot_general":
            contracted = eqn.params["dimension_numbers"][0][0]
            total += size * (prod(eqn.invars[0].aval.shape[axis] for axis in contracted) - 1)
    return total


def _inner(eqn: Any) -> list[Any]:
    """The jaxprs inside of an equation."""
    return [x for x in jax.tree.leaves(eqn.params, is_leaf=_is_jaxpr) if _is_jaxpr(x)]


def _is_jaxpr(value: Any) -> bool:
    return hasattr(getattr(value, "jaxpr", value), "eqns")


def evaluation_operations(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, *, value: bool = False
) -> Callable[..., int]:
    """What evaluating a function's elemental partials costs, whatever the order, in operations.

    A Jacobian costs this and ``graph.cost(order, "operations")``; ratios of times go with ratios
    of that sum.

    Args:
      fun: a JAX-traceable function.
      argnums: which positional arguments to differentiate by.
      value: count the whole function too, not only what its partials need of it.

    Returns:
      A function of fun's arguments that gives the sum of the weights of what is computed.

    Raises:
      ValueError: (from the returned function) if `argnums` is out of range or repeats.

    Example:
      >>> evaluation_operations(lambda x: jnp.sin(x) * x)(1.0)  # the sine and its cosine
      23
    """

    def counted(*args: Any) -> int:
        lin = linearise(trace(fun, args, argnums=argnums))
        wanted = normalise_argnums(argnums, len(args))
        inputs = jax.tree.leaves(tuple(args[a] for a in wanted))

        def run(inputs: Sequence[Any]) -> list[Any]:
            found = evaluate(lin, inputs)
            partials = [e.values for e in found.edges.values() if e.values is not None]
            return [*(found.outputs if value else ()), *partials]

        return weight_of(jax.make_jaxpr(run)(inputs))

    return counted


def weight_of(jaxpr: Any) -> int:
    """Sum of the weights of what the outputs of a jaxpr need.

    A loop's body counts as often as it runs, once where that is not known; of several branches the
    heaviest counts. A sine and a cosine of one array share most of what they take.

    Args:
      jaxpr: an open or closed jaxpr.

    Example:
      >>> weight_of(jax.make_jaxpr(lambda x, y: (x / y + 1, jnp.sin(x) * 0)[0])(1.0, 2.0))
      5
    """
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    needed = {id(v) for v in jaxpr.outvars}
    total, angles = 0, set[tuple[str, int]]()
    for eqn in reversed(jaxpr.eqns):
        if any(id(v) in needed for v in eqn.outvars):
            needed |= {id(v) for v in eqn.invars}
            total += _weight(eqn)
            name = eqn.primitive.name
            if name in ("sin", "cos"):
                angle = id(eqn.invars[0])
                if ("cos" if name == "sin" else "sin", angle) in angles:
                    total -= SHARED * prod(getattr(eqn.outvars[0].aval, "shape", ()))
                angles.add((name, angle))
    return total


def _weight(eqn: Any) -> int:
    """What one equation weighs."""
    name, inner = eqn.primitive.name, [weight_of(x) for x in _inner(eqn)]
    if name == "cond":
        return max(inner)
    if inner:
        return sum(inner) * eqn.params.get("length", 1)
    size = prod(getattr(eqn.outvars[0].aval, "shape", ()))
    if not jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.inexact):
        return 0
    if name == "dot_general":
        contracted = eqn.params["dimension_numbers"][0][0]
        return size * (2 * prod(eqn.invars[0].aval.shape[axis] for axis in contracted) - 1)
    if name.startswith("reduce_"):
        return prod(eqn.invars[0].aval.shape) - size
    if name in ("cumsum", "cumprod", "cummax", "cummin"):
        return size
    return size * _elementwise(eqn)


def _elementwise(eqn: Any) -> int:
    """What one entry of a primitive's result weighs: the operations that a kernel makes of it."""
    name = eqn.primitive.name
    if name not in RULES or name in _MOVES:
        return _NO_RULE.get(name, 0)
    builder = Builder()
    dtypes = [str(v.aval.dtype) for v in eqn.invars]
    numbers = [builder.input(k, 0, dtype) for k, dtype in enumerate(dtypes)]
    try:
        RULES[name](builder, dtypes[0], str(eqn.outvars[0].aval.dtype), eqn.params, *numbers)
    except CannotFuseError:
        return 0
    return sum(weight(op.name, op.attr) for op in builder.ops if op.name not in FREE)
