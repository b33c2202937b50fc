"""Any other differentiable primitive: JAX's own linearisation of that one equation."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import jax
import jax.numpy as jnp
from jax import Array

from veenv import _compat
from veenv.linear import LinearMap
from veenv.rules.base import Partial, Row, Site
from veenv.structure import Link, dense, make
from veenv.trace import is_differentiable


def generic(site: Site) -> Sequence[Row]:
    """Partials of every result by every active operand, each an operator on all its axes.

    Where one side is a single number the operator is one row or column, stored densely.
    """
    return [
        [
            _partial(site, k, i) if active and is_differentiable(out) else None
            for i, active in enumerate(site.active)
        ]
        for k, out in enumerate(site.out_avals)
    ]


def _map(site: Site, k: int, i: int) -> LinearMap:
    """∂(result k)/∂(operand i) as a linear map on full shapes; its transpose is JAX's vjp."""

    def alone(x: Array) -> Array:
        ins = list(site.ins)
        ins[i] = x
        return _compat.bind(site.primitive, site.params, ins)[k]

    x = jnp.asarray(site.ins[i])
    out = site.out_avals[k]
    _, pull = jax.vjp(alone, x)

    def transpose(g: Array) -> Array:
        return pull(g.astype(out.dtype))[0]

    def apply(t: Array) -> Array:
        shape = jax.ShapeDtypeStruct(out.shape, out.dtype)
        return jax.linear_transpose(transpose, shape)(t.astype(x.dtype))[0]

    return LinearMap(tuple(out.shape), tuple(x.shape), apply, transpose)


def _partial(site: Site, k: int, i: int) -> Partial | None:
    out, shape = site.out_avals[k].shape, site.in_avals[i].shape
    if not prod(out) or not prod(shape):
        return None
    if prod(out) == 1 or prod(shape) == 1:
        structure = dense(out, shape)
        return Partial(structure, structure, lambda: _row_or_column(site, k, i))
    outs = [n for n in out if n != 1]
    ins = [n for n in shape if n != 1]

    def link() -> LinearMap:
        full = _map(site, k, i)
        return LinearMap(
            tuple(outs),
            tuple(ins),
            lambda t: full.apply(t.reshape(shape)).reshape(outs),
            lambda g: full.transpose(g.reshape(out)).reshape(ins),
        )

    unit = make(
        out, shape, unit=True, link=Link.OPERATOR,
        link_out=range(len(out)), link_in=range(len(shape)),
    )
    return Partial(unit, unit, link=link)


def _row_or_column(site: Site, k: int, i: int) -> Array:
    full = _map(site, k, i)
    out = site.out_avals[k]
    if prod(out.shape) == 1:
        values = full.transpose(jnp.ones(out.shape, out.dtype))
    else:
        values = full.apply(jnp.ones(full.in_shape, jnp.asarray(site.ins[i]).dtype))
    return values.reshape([n for n in values.shape if n != 1])
