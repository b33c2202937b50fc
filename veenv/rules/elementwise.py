"""Elementwise primitives: every axis of the operand is paired with the same axis of the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from veenv import _compat
from veenv.linear.barrier import DEAR, pin
from veenv.rules.base import Partial, Row, Site, register
from veenv.structure.structure import Structure, diagonal, make, scaled

ARITHMETIC = ("add", "add_any", "sub", "neg", "mul", "div")

Derivative = Callable[[Site], Array]

# Derivatives by the first operand that share work with the result; the others come from JAX.
_UNARY: dict[str, Derivative] = {
    "sin": lambda s: lax.cos(s.ins[0]),
    "cos": lambda s: -lax.sin(s.ins[0]),
    "exp": lambda s: s.outs[0],
    "tanh": lambda s: 1 - s.outs[0] * s.outs[0],
    "logistic": lambda s: s.outs[0] * (1 - s.outs[0]),
    "log": lambda s: 1 / s.ins[0],
    "sqrt": lambda s: 0.5 / s.outs[0],
    "rsqrt": lambda s: -0.5 * s.outs[0] / s.ins[0],
    "square": lambda s: 2 * s.ins[0],
    "integer_pow": lambda s: _power_derivative(s.ins[0], s.params["y"]),
}

_CHEAP_DERIVATIVE = frozenset(["div", "exp", "tanh", "logistic"])
"""Dear functions whose derivative takes few cheap operations on what is there already."""

_FROM_JAX = (
    "tan asin acos atan sinh cosh asinh acosh atanh log1p expm1 exp2 cbrt abs erf erfc erf_inv "
    "lgamma digamma polygamma igamma igammac igamma_grad_a random_gamma_grad bessel_i0e "
    "bessel_i1e regularized_incomplete_beta zeta logistic reduce_precision atan2 pow max min rem "
    "nextafter log2 one_minus_square polynomial real imag conj complex select_n"
).split()

ZERO = (
    "floor ceil round sign stop_gradient eq ne lt le gt ge is_finite and or not xor "
    "shift_left shift_right_logical shift_right_arithmetic population_count clz argmax argmin "
    "iota eq_to le_to lt_to random_bits random_seed random_wrap random_unwrap random_fold_in "
    "random_split threefry2x32 reduce_and reduce_or reduce_xor bitcast_convert_type "
    "rng_bit_generator rng_uniform"
).split()


ELEMENTWISE = frozenset([*ARITHMETIC, *_UNARY, *_FROM_JAX])
"""Names of the primitives that act on each entry alone."""


def _power_derivative(x: Any, y: int) -> Array:
    x = jnp.asarray(x)
    if y == 0:
        return jnp.zeros_like(x)
    return jnp.asarray(y, x.dtype) * lax.integer_pow(x, y - 1) if y != 2 else 2 * x


def _align(site: Site, i: int) -> tuple[Structure, Structure]:
    """Valued and unit structure of operand i's partial.

    Operands may be broadcast: a scalar along every axis, others along their axes of size one.
    """
    shape, out = site.in_avals[i].shape, site.out_avals[0].shape
    pairs = [(k, k) for k in range(len(shape)) if shape[k] == out[k]]
    return make(out, shape, pairs, out_values=range(len(out))), make(out, shape, pairs, unit=True)


def _squeeze(x: Any, shape: Sequence[int]) -> Array:
    """Values on the axes that are not of size one; a scalar is broadcast to `shape` first."""
    x = jnp.asarray(x)
    if x.shape != tuple(shape):
        x = jnp.broadcast_to(x, shape)
    return x.reshape([n for n in shape if n != 1])


def _valued(site: Site, i: int, derivative: Callable[[], Any]) -> Partial:
    structure, _ = _align(site, i)
    shape = site.out_avals[0].shape
    dear = site.primitive.name in DEAR - _CHEAP_DERIVATIVE

    def values() -> Array:
        value = _squeeze(derivative(), shape)
        return pin(value) if dear else value

    return Partial(structure, structure, values)


def _unit(site: Site, i: int, sign: int = 1) -> Partial:
    literature, unit = _align(site, i)
    return Partial(unit, literature, None, sign)


@register("add", "add_any", "sub")
def add(site: Site) -> Sequence[Row]:
    """x + y and x - y: ones, counted as stored by the literature."""
    signs = (1, -1 if site.primitive.name == "sub" else 1)
    return [[_unit(site, i, signs[i]) for i in range(2)]]


@register("neg")
def neg(site: Site) -> Sequence[Row]:
    """-x."""
    return [[_unit(site, 0, -1)]]


@register("mul")
def mul(site: Site) -> Sequence[Row]:
    """x · y: each factor's partial is the other factor."""
    return [[_by_factor(site, i, lambda i=i: site.ins[1 - i]) for i in range(2)]]


@register("div")
def div(site: Site) -> Sequence[Row]:
    """x / y."""
    made: list[Any] = [None, None]

    def reciprocal() -> Any:
        """1 / y, once for both operands; a site may be evaluated again at other values."""
        if made[0] is not site.ins:
            made[:] = site.ins, pin(1 / site.ins[1])
        return made[1]

    by_y = _valued(site, 1, lambda: -site.outs[0] * reciprocal())
    return [[_by_factor(site, 0, reciprocal), by_y]]


def _by_factor(site: Site, i: int, factor: Callable[[], Any]) -> Partial:
    """Partial of a product by operand i; one number if the other is a constant scalar."""
    partial = _valued(site, i, factor)
    other = 1 - i
    shape = site.out_avals[0].shape
    one_number = all(n == 1 for n in site.in_avals[other].shape)
    if site.active[other] or not one_number or site.in_avals[i].shape != shape:
        return partial
    return Partial(scaled(shape), partial.literature, lambda: jnp.asarray(factor()).reshape(()))


def _from_jax(site: Site, i: int) -> Callable[[], Any]:
    """The derivative by operand i through JAX's own rule: the tangent of a tangent of ones."""

    def derivative() -> Any:
        def alone(x: Array) -> Array:
            ins = list(site.ins)
            ins[i] = x
            return _compat.bind(site.primitive, site.params, ins)[0]

        x = jnp.asarray(site.ins[i])
        return jax.jvp(alone, (x,), (jnp.ones_like(x),))[1]

    return derivative


@register(*_UNARY)
def unary(site: Site) -> Sequence[Row]:
    """Functions of one operand whose derivative shares work with the value."""
    return [[_valued(site, 0, lambda: _UNARY[site.primitive.name](site))]]


@register(*_FROM_JAX)
def elementwise(site: Site) -> Sequence[Row]:
    """Any other elementwise function, of any number of operands."""
    return [
        [
            _valued(site, i, _from_jax(site, i)) if active else None
            for i, active in enumerate(site.active)
        ]
    ]


@register("clamp")
def clamp(site: Site) -> Sequence[Row]:
    """max(low, min(x, high)) with array or scalar bounds; JAX's own rule wants arrays."""

    def reaches(i: int) -> Array:
        low, x, high = map(jnp.asarray, site.ins)
        chosen = [(low > x) & (low < high), (x > low) & (x < high), high < x][i]
        return chosen.astype(site.out_avals[0].dtype)

    return [[_valued(site, i, lambda i=i: reaches(i)) for i in range(3)]]


@register(*ZERO)
def zero(site: Site) -> Sequence[Row]:
    """Functions whose derivative is zero wherever it exists."""
    return [[None] * len(site.in_avals) for _ in site.out_avals]


@register(
    "convert_element_type",
    "copy",
    "device_put",
    "copy_p",
    "pvary",
    "pbroadcast",
    "optimization_barrier",
    "reshard",
    "sharding_constraint",
    "name",
)
def same(site: Site) -> Sequence[Row]:
    """The operands themselves: free under both counts."""
    rows = []
    for k, aval in enumerate(site.out_avals):
        unit = diagonal(aval.shape, valued=False)
        rows.append([Partial(unit, unit) if i == k else None for i in range(len(site.in_avals))])
    return rows
