"""Complex variables between real inputs and outputs, as pairs of real numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from veenv import _compat
from veenv.linear.linear_map import canonical
from veenv.rules import walk
from veenv.rules.base import (
    Partial,
    Row,
    Rule,
    Site,
    Values,
    find,
    is_complex,
    is_differentiable,
    real_shape,
    replayed,
    to_real,
)
from veenv.rules.operator import generic
from veenv.rules.shape import selected
from veenv.rules.table import facts
from veenv.structure.structure import FREE, Structure, make

_PARTS = {"real": (0,), "imag": (1,), "complex": (0, 1), "convert_element_type": (0,)}
"""Primitives that take or put parts of numbers, and which those of their operands are."""


def complex_rule(site: Site) -> Rule | None:
    """The rule of an equation that touches complex variables; None if its own one will do."""
    name = site.primitive.name
    known = facts(name)
    if known.flat:
        return None
    operands = [a for a, active in zip(site.in_avals, site.active, strict=True) if active]
    if known.by_parts and all(map(is_complex, [*operands, *site.out_avals])):
        return _alike
    if name == "conj" and is_complex(site.in_avals[0]):
        return _conjugate
    if name in _HOLOMORPHIC and all(map(is_complex, (*site.in_avals, *site.out_avals))):
        return _holomorphic
    if any(a.shape != site.out_avals[0].shape for a in operands):  # sizes of one are broadcast, too
        return generic
    return _parts if name in _PARTS else _elementwise if known.elementwise else generic


def are_analytic(equations: Iterable[Any]) -> bool:
    """Returns whether all of these equations surely have derivatives by complex numbers."""
    return all(map(_is_analytic, equations))


def _is_analytic(equation: Any) -> bool:
    """Whether an equation surely has derivatives by complex numbers: no part or conjugate is taken.

    Real numbers are constants where that is so of all equations.
    """
    name, params = equation.primitive.name, equation.params
    if not any(map(is_complex, walk.in_avals(equation))):
        return True
    if bodies := [*_compat.bodies(params)]:
        return name in _OF_BODIES and all(are_analytic(body.eqns) for body in bodies)
    known = facts(name)
    if known.flat:
        return True
    if name in _NOT_ANALYTIC or params.get("conjugate_a"):
        return False
    known_analytic = known.by_parts or known.elementwise or name in _ANALYTIC
    outs = filter(is_differentiable, walk.out_avals(equation))
    return known_analytic and all(map(is_complex, outs))


_HOLOMORPHIC = frozenset("mul div dot_general exp log sin cos tanh logistic sqrt rsqrt square "
                         "integer_pow".split())  # fmt: skip
"""Primitives of complex numbers whose rule for real ones gives the derivative."""
_ANALYTIC = frozenset("dot_general conv_general_dilated fft reduce_prod cumprod scatter_mul lu "
                      "triangular_solve".split())  # fmt: skip
"""Primitives of more than entries that are analytic; those of entries are, but for two."""
_NOT_ANALYTIC = "conj", "sign"
_OF_BODIES = frozenset("jit closed_call remat2 scan while cond custom_linear_solve".split())
"""Primitives that are analytic where their bodies are."""


def _alike(site: Site) -> Sequence[Row]:
    """The rule of real arrays, for both parts: they are one axis more, which stays diagonal."""
    real = replace(
        site,
        in_avals=[_of_parts(a) for a in site.in_avals],
        out_avals=[_of_parts(a) for a in site.out_avals],
    )
    return _by_rule(real, _paired)


def _holomorphic(site: Site) -> Sequence[Row]:
    """The rule of real arrays, each number as the matrix of a multiplication by it."""
    return _by_rule(site, _as_matrices)


def _by_rule(site: Site, adapted: Callable[[Partial], Partial]) -> Sequence[Row]:
    """The rule of real arrays, each of its partials adapted to complex ones."""
    rule = find(site.primitive.name)
    assert rule is not None
    return [[None if p is None else adapted(p) for p in row] for row in rule(site)]


def _as_matrices(p: Partial) -> Partial:
    """A partial of complex numbers: (real, imaginary) of the result by those of the operand."""
    executed, literature = (_with_parts(s, alike=False) for s in (p.executed, p.literature))
    axis, values_of = sum(p.executed.out_values), p.values
    assert values_of is not None

    def values(*of: Any) -> Array:
        z = values_of(*of)
        z = lax.expand_dims(z, (z.ndim,))
        real, imag = lax.real(z), lax.imag(z)
        every = lax.concatenate([real, -imag, imag, real], z.ndim - 1)
        matrix = lax.reshape(every, (*z.shape[:-1], 2, 2))
        order = [*range(axis), z.ndim - 1, *range(axis, z.ndim - 1), z.ndim]
        return matrix if axis == z.ndim - 1 else lax.transpose(matrix, order)

    return replace(p, executed=executed, literature=literature, values=values)


def _with_parts(s: Structure, *, alike: bool) -> Structure:
    """A structure with an axis of parts behind the out axes and one behind the in axes.

    These are diagonal if both parts are treated `alike`, else values vary along them.
    """
    return replace(
        s,
        out_shape=(*s.out_shape, 2),
        in_shape=(*s.in_shape, 2),
        pairs=(*s.pairs, len(s.in_shape) if alike else FREE),
        out_values=(*s.out_values, not alike),
        in_values=(*s.in_values, not alike),
    )


def _parts(site: Site) -> Sequence[Row]:
    """Parts as pieces of the last axis."""
    out = real_shape(site.out_avals[0], realify=True)
    row: list[Partial | None] = []
    for aval, part in zip(site.in_avals, _PARTS[site.primitive.name], strict=True):
        shape = real_shape(aval, realify=True)
        pairs = [(k, k) for k in range(len(aval.shape))]
        if len(out) > len(shape):
            place = canonical(2, 1, part, 1, 0, 1, 1)
        else:
            place = canonical(1, 2, 0, 1, part, 1, 1)
        row.append(selected(out, shape, pairs, place))
    return [row]


def _conjugate(site: Site) -> Sequence[Row]:
    """The imaginary part changes its sign."""
    shape = real_shape(site.out_avals[0], realify=True)
    pairs = [(k, k) for k in range(len(shape))]
    structure = make(shape, shape, pairs, out_values=[len(shape) - 1])

    def values(_ins: Values, outs: Values) -> Array:
        return jnp.array([1.0, -1.0], jnp.finfo(outs[0].dtype).dtype)

    return [[Partial(structure, structure, values)]]


def _of_parts(aval: Any) -> Any:
    if not is_complex(aval):
        return aval
    return jax.ShapeDtypeStruct(aval.shape, jnp.finfo(aval.dtype).dtype)


def _paired(p: Partial) -> Partial:
    """A partial with one diagonal axis more, behind all others."""
    executed, literature = (_with_parts(s, alike=True) for s in (p.executed, p.literature))
    return replace(p, executed=executed, literature=literature)


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
        row[i] = Partial(structure, structure, _matrix(site, i))
    return [row]


def _matrix(site: Site, i: int) -> Callable[[Values, Values], Array]:
    """Values: entry axes, then (real, imaginary) of the result, then of the operand."""

    def values(ins: Values, _outs: Values) -> Array:
        return replayed(site, ("matrix", i), matrix, list(map(jnp.asarray, ins)))

    def matrix(ins: Values) -> Array:
        x = ins[i]

        def alone(v: Array) -> Array:
            return _compat.bind(site.primitive, site.params, [*ins[:i], v, *ins[i + 1 :]])[0]

        directions = [1.0, 1.0j] if is_complex(site.in_avals[i]) else [1.0]
        columns = [to_real(jax.jvp(alone, (x,), (jnp.full_like(x, d),))[1]) for d in directions]
        shape = site.out_avals[0].shape
        block = jnp.stack(columns, axis=-1) if len(columns) > 1 else columns[0]
        sizes = [n for n in shape if n != 1]
        return block.reshape([*sizes, *block.shape[len(shape) :]])

    return values
