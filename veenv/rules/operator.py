"""Any other differentiable primitive: JAX's own linearisation of that one equation.

Every partial is an operator on all axes.  The partials of one equation share a `Joint`, so that
one transposed pass serves all operands and one forward pass all results.  Complex variables that
occur between real inputs and outputs are seen as real arrays with a last axis (real, imaginary):
derivatives need only be real-linear.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import jax.numpy as jnp
from jax import Array, lax
from jax.extend import core

from veenv import _compat
from veenv.linear.joint import Joint
from veenv.linear.linear_map import LinearMap
from veenv.rules import walk
from veenv.rules.base import Pairs, Partial, Row, Site, Values, real_shape, register
from veenv.rules.passes import REFUSALS, Several, active_function, has_vjp, passes_at
from veenv.rules.table import facts
from veenv.structure.structure import Link, dense, make

Linearise = Callable[[Site, Values], Joint]
"""(site, ins) → the linearisation by the active operands at these values."""


def generic(site: Site, among: Sequence[int] | None = None) -> Sequence[Row]:
    """Partials of every result by every active operand, each an operator on all its axes.

    Where one side is a single number the operator is one row or column, stored densely.
    """
    if among is not None:
        site = replace(site, active=tuple(a and i in among for i, a in enumerate(site.active)))
    return operators(site, _joint)


def diagonal_of(site: Site, result: int, operand: int) -> Pairs | None:
    """Axes along which a partial is diagonal, as far as it is known; None if it is zero."""
    return () if site.diagonal is None else site.diagonal(result, operand)


def operators(site: Site, linearised: Linearise) -> Sequence[Row]:
    """Operators on all axes, which share a linearisation by the active operands."""
    operands, results = site.operands, site.results

    def shared(ins: Values, _outs: Values) -> Joint:
        return linearised(site, ins)

    rows: list[list[Partial | None]] = [[None] * len(site.in_avals) for _ in site.out_avals]
    for at, k in enumerate(results):
        for which, i in enumerate(operands):
            diagonal = diagonal_of(site, k, i)
            if diagonal is None:
                continue
            out = real_shape(site.out_avals[k], realify=site.realify)
            shape = real_shape(site.in_avals[i], realify=site.realify)

            def link(
                _ins: Values,
                _outs: Values,
                joint: Joint,
                at: int = at,
                which: int = which,
                diagonal: Pairs = diagonal,
            ) -> LinearMap:
                return joint.map(at, which, diagonal, _counts(site.primitive.name))

            rows[k][i] = _partial(out, shape, link, diagonal, shared, branch_mask(site, k, i))
    return rows


def _counts(name: str) -> bool:
    """Returns whether partials of a primitive hold ones where entries go, and zeros elsewhere."""
    known = facts(name)
    moves = known.linear is not None and known.combine in (None, "add")
    return known.form == "sort" or (moves and known.form in ("take", "put"))


def _partial(
    out: Sequence[int],
    shape: Sequence[int],
    link: Callable[[Values, Values, Joint], LinearMap],
    diagonal: Pairs,
    shared: Callable[[Values, Values], Joint],
    mask: Callable[[Values], Array] | None,
) -> Partial | None:
    if not prod(out) or not prod(shape):
        return None
    if prod(out) == 1 or prod(shape) == 1:
        structure = dense(out, shape)
        ones = (1,) * len(structure.value_shape)
        there = None if mask is None else lambda ins, *_: mask(ins).reshape(ones)
        return Partial(
            structure, structure, lambda *of: _row_or_column(link(*of)), shared=shared, mask=there
        )
    unit = make(
        out,
        shape,
        unit=True,
        link=Link.OPERATOR,
        link_out=range(len(out)),
        link_in=range(len(shape)),
    )
    return Partial(unit, unit, link=link, diagonal=diagonal, shared=shared)


def _row_or_column(link: LinearMap) -> Array:
    """The dense entries of a map with a single number on one side."""
    wide = prod(link.out_shape) == 1
    shape = link.out_shape if wide else link.in_shape
    x = jnp.ones(shape, link.dtype)
    values = link.along(x, range(len(shape)), transposed=wide, key=("ones", wide))
    return values.reshape([n for n in values.shape if n != 1])


def _joint(site: Site, at: Values) -> Joint:
    """The linearisation of an equation at its operands' values, in both directions.

    A primitive with only one of the two modes (a loop of unknown length, a custom vjp) gets the
    other one from its dense Jacobian.
    """
    operands, results = site.operands, site.results
    outs = [site.out_avals[k] for k in results]
    ins = [site.in_avals[i] for i in operands]
    run = passes_at(site, at)

    def forward(which: int, t: Array) -> Several:
        try:
            return run.push(which, t)
        except REFUSALS as error:
            active = active_function(site, at)
            if has_vjp(active.requested, active.primals):  # a custom vjp inside
                return joint.without_forward().forward(which, t)
            raise NotImplementedError(
                f"primitive {site.primitive.name!r} has no derivative ({site.source}): {error}"
            ) from error

    told = _compat.sees_symbolic_zeros(site.primitive, site.params)

    def backward(result: int, g: Array) -> Several:
        if told:  # a rule that is told which results are not used at all
            zeros = [jnp.zeros(shape, dtype) for shape in out_shapes]
            return run.pull([*zeros[:result], g, *zeros[result + 1 :]])
        # JAX sees that the other results are not used; their zeros could meet infinity.
        return run.pull([g], [result])

    out_shapes = [real_shape(a, realify=site.realify) for a in outs]
    in_shapes = [real_shape(a, realify=site.realify) for a in ins]
    dtype = _compat.promoted(*[a.dtype for a in (*ins, *outs)])
    if site.realify:
        dtype = jnp.finfo(dtype).dtype
    joint = Joint(out_shapes, in_shapes, dtype, forward, backward, run.results)
    if run.ways == "both":
        return joint
    if run.ways == "backward":
        return joint.without_forward()
    return joint.without_backward(lambda at, which: diagonal_of(site, results[at], operands[which]))


def branch_mask(site: Site, result: int, operand: int) -> Callable[[Values], Array] | None:
    """Returns a mask: whether the branch that runs leads from an operand to a result.

    None if every branch does.
    """
    leads = [_leads(branch, operand - 1, result) for branch in walk.branches_of(site)]
    if all(leads):
        return None

    def mask(ins: Values) -> Array:
        which = jnp.clip(jnp.asarray(ins[0], jnp.int32), 0, len(leads) - 1)
        return lax.dynamic_index_in_dim(jnp.asarray(leads), which, keepdims=False)

    return mask


def _leads(branch: Any, operand: int, result: int) -> bool:
    """Returns whether a result of a closed jaxpr depends on an operand in any way."""
    jaxpr = _compat.open_jaxpr(branch)
    out = jaxpr.outvars[result]
    depending = walk.dependent(jaxpr, [jaxpr.invars[operand]])
    return not walk.is_literal(out) and out in depending


@register("linear_call")
def linear_call(site: Site) -> Sequence[Row]:
    """`jax.custom_derivatives.linear_call`: the function itself and the transpose it states.

    JAX has no batching rule for the primitive, but both functions can be batched.
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
