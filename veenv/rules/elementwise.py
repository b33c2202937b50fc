"""Elementwise primitives: every axis of the operand is paired with the same axis of the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from veenv import _compat
from veenv.linear.barrier import pin
from veenv.rules.base import Partial, Row, Site, Values, find, is_complex, register
from veenv.rules.table import TABLE, facts, named
from veenv.structure.structure import Structure, diagonal, make, scaled

# Derivatives that share work with the result y = f(x); the others come from JAX.
_UNARY: dict[str, Callable[[Any, Any], Array]] = {
    "sin": lambda x, y: lax.cos(x),
    "cos": lambda x, y: -lax.sin(x),
    "exp": lambda x, y: y,
    "tanh": lambda x, y: 1 - y * y,
    "logistic": lambda x, y: y * (1 - y),
    "log": lambda x, y: 1 / x,
    "sqrt": lambda x, y: 0.5 / y,
    "rsqrt": lambda x, y: -0.5 * y / x,
    "square": lambda x, y: 2 * x,
}

_CHEAP_DERIVATIVE = frozenset(["div", "exp", "tanh", "logistic"])
"""Expensive functions whose derivative takes few cheap operations on what is there already."""


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
    return lax.reshape(x, [n for n in shape if n != 1])


def _valued(
    site: Site,
    i: int,
    derivative: Callable[..., Any],
    shared: Callable[[Values, Values], Any] | None = None,
) -> Partial:
    structure, _ = _align(site, i)
    shape = site.out_avals[0].shape
    name = site.primitive.name
    expensive = facts(name).expensive and name not in _CHEAP_DERIVATIVE

    def values(*of: Any) -> Array:
        value = _squeeze(derivative(*of), shape)
        return pin(value) if expensive else value

    return Partial(structure, structure, values, shared=shared)


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
    return [[_by_factor(site, i, lambda ins, _, i=i: ins[1 - i]) for i in range(2)]]


@register("div")
def div(site: Site) -> Sequence[Row]:
    """x / y."""

    def reciprocal(ins: Values, _outs: Values) -> Any:
        with np.errstate(all="ignore"):  # a constant divisor; NumPy would warn, JAX does not
            return pin(1 / ins[1])

    by_y = _valued(site, 1, lambda _, outs, inverse: -outs[0] * inverse, reciprocal)
    return [[_by_factor(site, 0, lambda *of: of[2], reciprocal), by_y]]


def _by_factor(
    site: Site,
    i: int,
    factor: Callable[..., Any],
    shared: Callable[[Values, Values], Any] | None = None,
) -> Partial:
    """Partial of a product by operand i; one number if the other is a constant scalar."""
    partial = _valued(site, i, factor, shared)
    other = 1 - i
    shape = site.out_avals[0].shape
    one_number = all(n == 1 for n in site.in_avals[other].shape)
    if site.active[other] or not one_number or site.in_avals[i].shape != shape:
        return partial
    number = lambda *of: jnp.asarray(factor(*of)).reshape(())  # noqa: E731
    return Partial(scaled(shape), partial.literature, number, shared=shared)


def _from_jax(site: Site, i: int) -> Callable[[Values, Values], Any]:
    """The derivative by operand i through JAX's own rule: the tangent of a tangent of ones."""

    def derivative(ins: Values, _outs: Values) -> Any:
        def alone(x: Array) -> Array:
            return _compat.bind(site.primitive, site.params, [*ins[:i], x, *ins[i + 1 :]])[0]

        x = jnp.asarray(ins[i])
        # The rule of pow promotes an integer exponent, a literal that gives way in the program.
        with jax.numpy_dtype_promotion("standard"):
            return jax.jvp(alone, (x,), (jnp.ones_like(x),))[1]

    return derivative


@register(*_UNARY)
def unary(site: Site) -> Sequence[Row]:
    """Functions of one operand whose derivative shares work with the value."""
    derivative = _UNARY[site.primitive.name]
    return [[_valued(site, 0, lambda ins, outs: derivative(ins[0], outs[0]))]]


@register("integer_pow")
def integer_pow(site: Site) -> Sequence[Row]:
    """x ** y with y an int."""
    return [[_valued(site, 0, lambda ins, _: _power_derivative(ins[0], site.params["y"]))]]


@register("pow")
def power(site: Site) -> Sequence[Row]:
    """x ** y; the slope by x has an exponent that is known where y is."""
    of_jax = _from_jax(site, 0)

    def by_base(ins: Values, outs: Values) -> Any:
        x, y = ins
        if _compat.is_traced(y) or np.ndim(y) or jnp.result_type(y) != jnp.result_type(x):
            return of_jax(ins, outs)
        y = np.asarray(y)
        return y * lax.pow(x, y - np.ones_like(y))

    slopes = by_base, _from_jax(site, 1)
    return [[_valued(site, i, slopes[i]) if site.active[i] else None for i in range(2)]]


def any_elementwise(site: Site) -> Sequence[Row]:
    """Any other elementwise function, of any number of operands."""
    return [
        [
            _valued(site, i, _from_jax(site, i)) if active else None
            for i, active in enumerate(site.active)
        ]
    ]


@register("select_n")
def select_n(site: Site) -> Sequence[Row]:
    """One of several cases: each passes where it is selected and is shut out elsewhere."""
    return [[None, *(_masked(site, i, lambda ins, i=i: case(ins, i)) for i in cases(site))]]


def cases(site: Site) -> range:
    """Operands of a select that are cases; the first one says which."""
    return range(1, len(site.in_avals))


def case(ins: Values, i: int) -> Array:
    """Returns where a select takes operand i, booleans, from the values of its operands."""
    which = jnp.asarray(ins[0])
    if len(ins) == 2:  # the only one
        return jnp.ones_like(which, bool)
    if which.dtype == bool:
        return which if i == 2 else ~which
    return lax.eq(which, jnp.full_like(which, i - 1))


def _masked(site: Site, i: int, chosen: Callable[[Values], Array]) -> Partial:
    """One where an entry of operand i is chosen (by an array or by one boolean), else masked."""
    structure, _ = _align(site, i)
    shape = site.out_avals[0].shape

    def values(ins: Values, _outs: Values) -> Array:
        return _squeeze(chosen(ins), shape).astype(site.out_avals[0].dtype)

    def mask(ins: Values, _outs: Values) -> Array:
        on = chosen(ins)
        return _squeeze(on, shape) if on.shape else on.reshape([1 for n in shape if n != 1])

    return Partial(structure, structure, values, mask=mask)


@register("clamp")
def clamp(site: Site) -> Sequence[Row]:
    """max(low, min(x, high)) with array or scalar bounds: a select, as in JAX."""

    def reaches(i: int, ins: Values) -> Array:
        low, x, high = map(jnp.asarray, ins)
        return [(low > x) & (low < high), (x > low) & (x < high), high < x][i]

    return [[_masked(site, i, lambda ins, i=i: reaches(i, ins)) for i in range(3)]]


@register(*named(flat=True))
def zero(site: Site) -> Sequence[Row]:
    """Functions whose derivative is zero wherever it exists."""
    return [[None] * len(site.in_avals) for _ in site.out_avals]


@register("sign")
def sign(site: Site) -> Sequence[Row]:
    """±1, flat; of complex numbers z / |z|, not holomorphic: `jax.jacrev`'s number stands."""
    if not is_complex(site.in_avals[0]):
        return zero(site)

    def pulled(ins: Values, _outs: Values) -> Any:
        x = jnp.asarray(ins[0])
        _, pull = jax.vjp(lambda v: _compat.bind(site.primitive, site.params, [v])[0], x)
        return pull(jnp.ones_like(x))[0]

    return [[_valued(site, 0, pulled)]]


@register(*named(form="same", by_parts=True))
def same(site: Site) -> Sequence[Row]:
    """The operands themselves: free under both counts."""
    rows = []
    for k, aval in enumerate(site.out_avals):
        unit = diagonal(aval.shape, valued=False)
        rows.append([Partial(unit, unit) if i == k else None for i in range(len(site.in_avals))])
    return rows


register(*(name for name, p in TABLE.items() if p.elementwise and find(name) is None))(
    any_elementwise
)
