"""Reductions and dot products: partials that leave whole axes paired or constant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from veenv import _compat
from veenv.linear.linear_map import drop_ones
from veenv.rules import walk
from veenv.rules.axes import Product
from veenv.rules.base import Partial, Row, Site, Values, register
from veenv.rules.operator import generic
from veenv.structure.structure import dense, make


def _unreduced(site: Site, operand: int = 0) -> tuple[list[tuple[int, int]], list[int]]:
    """Returns the (out axis, in axis) pairs that a reduction leaves, and the axes it reduces."""
    axes = sorted(site.params["axes"])
    rest = [j for j in range(len(site.in_avals[operand].shape)) if j not in axes]
    return list(enumerate(rest)), axes


@register("reduce_sum")
def reduce_sum(site: Site) -> Sequence[Row]:
    """Sum over axes: ones along them, counted as stored by the literature."""
    return [[_sum(site, 0)]]


@register("psum")
def psum(site: Site) -> Sequence[Row]:
    """Sums over axes that `vmap` has made of a named one; over devices, an operator."""
    positional = all(isinstance(axis, int) for axis in site.params["axes"])
    if not positional or site.params["axis_index_groups"] is not None:
        return generic(site)
    numbers = range(len(site.in_avals))
    return [[_sum(site, k) if i == k else None for i in numbers] for k in numbers]


def _sum(site: Site, number: int) -> Partial:
    """The sum of one of several operands, each of which has a result."""
    out, shape = site.out_avals[number].shape, site.in_avals[number].shape
    pairs, axes = _unreduced(site, number)
    executed = make(out, shape, pairs, unit=True)
    summed = [j for j in axes if shape[j] != 1]
    literature = make(out, shape, pairs, in_values=summed) if summed else executed
    return Partial(executed, literature)


@register("reduce_max", "reduce_min", "reduce_prod")
def reduce_other(site: Site) -> Sequence[Row]:
    """Maximum, minimum and product over axes; ties as JAX's rule resolves them."""
    pairs, axes = _unreduced(site)
    out, shape = site.out_avals[0].shape, site.in_avals[0].shape
    structure = make(out, shape, pairs, out_values=range(len(out)), in_values=axes)

    def values(ins: Values, _outs: Values) -> Array:
        def run(x: Array) -> Array:
            return _compat.bind(site.primitive, site.params, [x])[0]

        x = jnp.asarray(ins[0])
        y, pull = jax.vjp(run, x)
        by_x = pull(jnp.ones_like(y))[0]
        order = [j for _, j in pairs] + axes
        return by_x.transpose(order).reshape([shape[j] for j in order if shape[j] != 1])

    return [[Partial(structure, structure, values)]]


@register("dot_general")
def dot_general(site: Site) -> Sequence[Row]:
    """Dot products with batch axes: each operand's partial is the other operand."""
    return [[_by_operand(site, 0), _by_operand(site, 1)]]


def _by_operand(site: Site, i: int) -> Partial:
    """∂out/∂operand i: batch and i's own axes paired, contracted and other's axes valued."""
    axes, other = Product.of(site), 1 - i
    structure = make(
        site.out_avals[0].shape,
        site.in_avals[i].shape,
        axes.pairs(i),
        out_values=[k for k, _ in axes.pairs(other)],
        in_values=list(axes.summed[i]),
    )

    def values(ins: Values, _outs: Values) -> Array:
        summed = [j for _, j in sorted(zip(axes.summed[i], axes.summed[other], strict=True))]
        order = [*axes.batch[other], *axes.free[other], *summed]
        x = lax.transpose(jnp.asarray(ins[other]), order)
        return lax.reshape(x, drop_ones(x.shape))

    return Partial(structure, structure, values)


@register("reduce", "reduce_window")
def reduction(site: Site) -> Sequence[Row]:
    """JAX's own rule by the operands; by an initial value, zero where it is the identity.

    Called with such a value, JAX takes the reduction without one (a sum, say), so its derivative
    by it is zero; it has none by another value.
    """
    count = len(site.in_avals) // 2
    rows = [list(row) for row in generic(site, range(count))]
    for i in (i for i in range(count, len(site.in_avals)) if site.active[i]):
        for k, aval in enumerate(site.out_avals):
            structure = dense(aval.shape, ())
            rows[k][i] = Partial(structure, structure, _zero(site, i), mask=_nowhere(site, k))
    return rows


def _zero(site: Site, i: int) -> Callable[[Values, Values], Array]:
    """Zeros, if operand i is the identity of the reduction."""

    def values(ins: Values, _outs: Values) -> Array:
        identity = _identity(site)
        start = ins[i]
        if identity is None or _compat.is_traced(start) or np.asarray(start) != identity:
            raise NotImplementedError(
                f"primitive {site.primitive.name!r} has no derivative by its initial value, other "
                f"than the identity of a sum, product, maximum or minimum ({site.source})"
            )
        return jnp.zeros([n for n in site.out_avals[0].shape if n != 1], site.out_avals[0].dtype)

    return values


def _nowhere(site: Site, k: int) -> Callable[[Values, Values], Array]:
    return lambda ins, outs: jnp.zeros([1 for n in site.out_avals[k].shape if n != 1], bool)


def _identity(site: Site) -> Any:
    """The identity of a reduction of one operand by one primitive; None for any other."""
    inner = [equation.primitive.name for equation in walk.every(site.params["jaxpr"])]
    if len(site.in_avals) != 2 or len(inner) != 1:
        return None
    return {"add": 0, "mul": 1, "max": -np.inf, "min": np.inf}.get(inner[0])
