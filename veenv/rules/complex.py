"""Complex variables between real inputs and outputs, as pairs of real numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array

from veenv import _compat
from veenv.rules.base import Partial, Row, Rule, Site, Values
from veenv.rules.dtypes import is_complex
from veenv.rules.elementwise import ELEMENTWISE, ZERO, case
from veenv.rules.operator import generic, real_shape, to_real
from veenv.structure.structure import Structure, make


def complex_rule(site: Site) -> Rule | None:
    """The rule of an equation that touches complex variables; None if its own one will do."""
    if site.primitive.name in ZERO:
        return None
    same = all(a.shape == site.out_avals[0].shape for a in site.in_avals)
    return _elementwise if site.primitive.name in ELEMENTWISE and same else generic


def _elementwise(site: Site) -> Sequence[Row]:
    """A small matrix, real by real, for each entry."""
    row: list[Partial | None] = [None] * len(site.in_avals)
    out = real_shape(site.out_avals[0], realify=True)
    rank = len(site.out_avals[0].shape)
    for i, active in enumerate(site.active):
        if not active:
            continue
        shape = real_shape(site.in_avals[i], realify=True)
        structure = make(
            out,
            shape,
            [(k, k) for k in range(rank)],
            out_values=range(len(out)),
            in_values=range(rank, len(shape)),
        )
        row[i] = Partial(structure, structure, _matrix(site, i), mask=_mask(site, i, structure))
    return [row]


def _mask(site: Site, i: int, structure: Structure) -> Callable[[Values, Values], Array] | None:
    """Where a select takes its operand i: for both parts alike."""
    if site.primitive.name != "select_n":
        return None

    def mask(ins: Values, _outs: Values) -> Array:
        on, rank = case(ins, i), len(structure.value_shape)
        kept = [n for n in on.shape if n != 1]
        return on.reshape([*kept, *[1] * (rank - len(kept))])

    return mask


def _matrix(site: Site, i: int) -> Callable[[Values, Values], Array]:
    """Values: entry axes, then (real, imaginary) of the result, then of the operand."""

    def values(ins: Values, _outs: Values) -> Array:
        x = jnp.asarray(ins[i])

        def alone(v: Array) -> Array:
            return _compat.bind(site.primitive, site.params, [*ins[:i], v, *ins[i + 1 :]])[0]

        directions = [1.0, 1.0j] if is_complex(site.in_avals[i]) else [1.0]
        columns = [to_real(jax.jvp(alone, (x,), (jnp.full_like(x, d),))[1]) for d in directions]
        shape = site.out_avals[0].shape
        block = jnp.stack(columns, axis=-1) if len(columns) > 1 else columns[0]
        kept = [n for n in shape if n != 1]
        return block.reshape([*kept, *block.shape[len(shape) :]])

    return values
