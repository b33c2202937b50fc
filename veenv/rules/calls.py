"""Calls that bring their own transpose."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array
from jax.extend import core

from veenv import _compat
from veenv.linear.joint import Joint
from veenv.rules.base import Row, Site, Values, register
from veenv.rules.operator import operators


@register("linear_call")
def linear_call(site: Site) -> Sequence[Row]:
    """`jax.custom_derivatives.linear_call`: the function itself and the transpose it states.

    JAX has no batching rule for the primitive, but both functions can be batched.

    Raises:
      NotImplementedError: if a residual is active; JAX does not differentiate by it either.
    """
    if any(site.active[: _num_fixed(site)]):
        raise NotImplementedError(
            "linear_call has no derivative by its residual arguments or by values that its "
            f"function captures, only by its linear arguments ({site.source})"
        )
    return operators(site, _stated)


def _num_fixed(site: Site) -> int:
    """Number of captured values and residuals, which stand before the linear operands."""
    return site.params["num_callee_consts"] + site.params["num_res"]


def _stated(site: Site, ins: Values) -> Joint:
    """The two functions of the call at their residuals."""
    operands, results = site.operands, site.results
    num_fixed = _num_fixed(site)
    residuals = ins[site.params["num_callee_consts"] : num_fixed]
    call = core.jaxpr_as_fun(site.params["callee"])
    linear = site.in_avals[num_fixed:]

    def forward(operand: int, t: Array) -> tuple[Array, ...]:
        tangents = [jnp.zeros(a.shape, a.dtype) for a in linear]
        at = operands[operand] - num_fixed
        tangents[at] = t.astype(linear[at].dtype)
        outs = call(*ins[:num_fixed], *tangents)
        return tuple(outs[k] for k in results)

    def backward(at: int, g: Array) -> tuple[Array, ...]:
        transpose, captured = site.params["transpose_thunk"]()
        cotangents = [jnp.zeros(a.shape, a.dtype) for a in site.out_avals]
        cotangents[results[at]] = g.astype(site.out_avals[results[at]].dtype)
        pulled = core.jaxpr_as_fun(transpose)(*captured, *residuals, *cotangents)
        return tuple(pulled[i - num_fixed] for i in operands)

    return Joint(
        [tuple(site.out_avals[k].shape) for k in results],
        [tuple(site.in_avals[i].shape) for i in operands],
        _compat.promoted(*(site.in_avals[i].dtype for i in operands)),
        forward,
        backward,
    )
