"""Any other differentiable primitive: JAX's own linearisation of that one equation."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from veenv import _compat
from veenv.linear import Action, LinearMap
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
    """∂(result k)/∂(operand i) as a linear map on full shapes, by JAX's jvp and vjp.

    A primitive with only one of the two modes (a loop of unknown length, a custom vjp) gets the
    other one from its dense Jacobian.
    """

    # Some rules (custom_linear_solve) need a tangent for every operand, zero or not.
    moving = [n for n, a in enumerate(site.in_avals) if n == i or _wants_tangent(site, n, a)]
    at = moving.index(i)

    def among(*values: Array) -> Array:
        ins = list(site.ins)
        for n, value in zip(moving, values, strict=True):
            ins[n] = value
        return _compat.bind(site.primitive, site.params, ins)[k]

    primals = [jnp.asarray(site.ins[n]) for n in moving]
    x, out = primals[at], site.out_avals[k]

    def forward(t: Array) -> Array:
        tangents = [jnp.zeros_like(p) for p in primals]
        tangents[at] = t.astype(x.dtype)
        return jax.jvp(among, tuple(primals), tuple(tangents))[1]

    def backward(g: Array) -> Array:
        return jax.vjp(among, *primals)[1](g.astype(out.dtype))[at]

    apply, transpose = forward, backward
    if site.primitive.name.startswith("custom_vjp_call"):
        apply = _by_columns(backward, out.shape, out.dtype)
    elif site.primitive.name == "while":
        transpose = _by_columns(forward, x.shape, x.dtype)
    return LinearMap(tuple(out.shape), tuple(x.shape), apply, transpose)


def _wants_tangent(site: Site, operand: int, aval: Any) -> bool:
    return site.primitive.name == "custom_linear_solve" and is_differentiable(aval)


def _by_columns(action: Action, shape: Sequence[int], dtype: Any) -> Action:
    """The transpose of a linear function, through its dense matrix."""

    def transposed(g: Array) -> Array:
        columns = jax.vmap(action)(jnp.eye(prod(shape), dtype=dtype).reshape((-1, *shape)))
        return jnp.tensordot(columns, g.astype(columns.dtype), axes=g.ndim).reshape(shape)

    return transposed


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
