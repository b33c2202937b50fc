"""Any other differentiable primitive: JAX's own linearisation of that one equation.

Every partial is an operator on all axes.  The partials of one equation share a `Joint`, so that
one transposed pass serves all operands and one forward pass all results.  Complex variables that
occur between real inputs and outputs are seen as real arrays with a last axis (real, imaginary):
derivatives need only be real-linear.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.dtypes import float0

from veenv import _compat
from veenv.linear.joint import Joint
from veenv.linear.linear_map import LinearMap
from veenv.rules.base import Pairs, Partial, Row, Site, Values
from veenv.rules.branches import taken
from veenv.rules.dtypes import is_complex, is_differentiable
from veenv.rules.modes import REFUSALS, goes_both_ways, has_vjp, only_backward
from veenv.rules.replay import remembered, replayed
from veenv.structure.structure import Link, dense, make

Several = tuple[Array, ...]
Linearise = Callable[[Site, Values], Joint]
"""(site, ins) → the linearisation by the active operands at these values."""


def real_shape(aval: Any, *, realify: bool) -> tuple[int, ...]:
    """Shape of a variable seen as real numbers."""
    return (*aval.shape, 2) if realify and is_complex(aval) else tuple(aval.shape)


def to_real(x: Array) -> Array:
    """A complex array as real numbers with a last axis of two; real arrays pass."""
    return jnp.stack([x.real, x.imag], axis=-1) if jnp.iscomplexobj(x) else x


def from_real(x: Array, aval: Any) -> Array:
    """The inverse of `to_real`, in the dtype of a variable."""
    if is_complex(aval) and not jnp.iscomplexobj(x):
        x = jax.lax.complex(x[..., 0], x[..., 1])
    return x.astype(aval.dtype)


def generic(site: Site, among: Sequence[int] | None = None) -> Sequence[Row]:
    """Partials of every result by every active operand, each an operator on all its axes.

    Where one side is a single number the operator is one row or column, stored densely.

    Args:
      site: the equation.
      among: the operands to differentiate by; None: all.
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
                return joint.map(at, which, diagonal)

            rows[k][i] = _partial(out, shape, link, diagonal, shared, taken(site, k, i))
    return rows


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


def _moving(site: Site, at: Values) -> tuple[list[int], list[Array], Callable[..., Several]]:
    """The operands of an equation that move, their values, and its results as a function of them.

    Only the results that are asked for are among them.
    """
    # Some rules (custom_linear_solve) need a tangent for every operand, zero or not.
    solve = site.primitive.name == "custom_linear_solve"
    moving = [
        n
        for n, a in enumerate(site.in_avals)
        if n in site.operands or (solve and is_differentiable(a))
    ]

    at = [jnp.asarray(x) if isinstance(x, np.ndarray) and x.dtype != float0 else x for x in at]

    def results_of(*values: Array) -> Several:
        full = list(at)
        for n, value in zip(moving, values, strict=True):
            full[n] = value
        every = _compat.bind(site.primitive, site.params, full)
        return tuple(every[k] for k in site.results)

    return moving, [jnp.asarray(at[n]) for n in moving], results_of


def pullback(site: Site, at: Values) -> Callable[..., Several]:
    """JAX's reverse mode of one equation, on real numbers if it is seen so.

    Args:
      site: the equation.
      at: the values of its operands.

    Returns:
      A function from cotangents of `site.results` (or of those of them that its second argument
      numbers) to cotangents of `site.operands`.
    """
    outs = [site.out_avals[k] for k in site.results]

    def pull(cotangents: Sequence[Array], of: Sequence[int] | None = None) -> Several:
        of = tuple(range(len(outs)) if of is None else of)
        back = functools.partial(_pulled, site, of)
        return replayed(site, ("pull", of), back, list(map(jnp.asarray, at)), list(cotangents))

    return pull


def _pulled(site: Site, of: Sequence[int], at: Values, cotangents: Sequence[Array]) -> Several:
    """The cotangents of an equation's operands for those of some results."""
    moving, primals, results_of = _moving(site, at)
    outs = [site.out_avals[k] for k in site.results]
    given = [from_real(g, outs[k]) for g, k in zip(cotangents, of, strict=True)]
    # JAX pulls back without conjugation; as a real map the transpose conjugates twice.
    if site.realify:
        given = [g.conj() if jnp.iscomplexobj(g) else g for g in given]

    def asked(*values: Array) -> Several:
        every = results_of(*values)
        return tuple(every[k] for k in of)

    pulled = jax.vjp(asked, *primals)[1](tuple(given))
    chosen = [pulled[moving.index(i)] for i in site.operands]
    if not site.realify:
        return tuple(chosen)
    return tuple(to_real(x.conj() if jnp.iscomplexobj(x) else x) for x in chosen)


def _pushforward(site: Site, at: Values) -> Callable[[int, Array], Several]:
    """JAX's forward mode of one equation: (operand, its tangent) → the tangents of all results."""

    def forward(which: int, t: Array) -> Several:
        push = functools.partial(_pushed, site, which)
        return replayed(site, ("push", which), push, list(map(jnp.asarray, at)), t)

    return forward


def _pushed(site: Site, which: int, at: Values, t: Array) -> Several:
    """The tangents of an equation's results for that of one operand."""
    moving, primals, results_of = _moving(site, at)
    solve = site.primitive.name == "custom_linear_solve"
    own = moving.index(site.operands[which])
    tangents = [jnp.zeros_like(p) for p in primals]
    tangent = from_real(t, site.in_avals[site.operands[which]])
    tangents[own], _ = _compat.same_variance([tangent, primals[own]])
    # JAX sees that the other operands do not move; their zeros could meet infinity.
    some = range(len(moving)) if solve else [own]

    def moved(*values: Array) -> Several:
        full = list(primals)
        for n, value in zip(some, values, strict=True):
            full[n] = value
        return results_of(*full)

    here, towards = (tuple(x[n] for n in some) for x in (primals, tangents))
    pushed = jax.jvp(moved, here, towards)[1]
    return tuple(to_real(x) if site.realify else x for x in pushed)


def _joint(site: Site, at: Values) -> Joint:
    """The linearisation of an equation at its operands' values, in both directions.

    A primitive with only one of the two modes (a loop of unknown length, a custom vjp) gets the
    other one from its dense Jacobian.
    """
    operands, results = site.operands, site.results
    _, primals, results_of = _moving(site, at)
    pull, forward = pullback(site, at), _pushforward(site, at)
    outs = [site.out_avals[k] for k in results]
    ins = [site.in_avals[i] for i in operands]

    def forward_or_error(which: int, t: Array) -> Several:
        try:
            return forward(which, t)
        except REFUSALS as error:
            if has_vjp(results_of, primals):  # a custom vjp inside
                return joint.without_forward().forward(which, t)
            raise NotImplementedError(
                f"primitive {site.primitive.name!r} has no derivative ({site.source}): {error}"
            ) from error

    told = _compat.sees_symbolic_zeros(site.primitive, site.params)

    def backward(result: int, g: Array) -> Several:
        if told:  # a rule that is told which results are not used at all
            zeros = [jnp.zeros(shape, dtype) for shape in out_shapes]
            return pull([*zeros[:result], g, *zeros[result + 1 :]])
        # JAX sees that the other results are not used; their zeros could meet infinity.
        return pull([g], [result])

    out_shapes = [real_shape(a, realify=site.realify) for a in outs]
    in_shapes = [real_shape(a, realify=site.realify) for a in ins]
    dtype = _compat.promoted(*[a.dtype for a in (*ins, *outs)])
    if site.realify:
        dtype = jnp.finfo(dtype).dtype
    joint = Joint(out_shapes, in_shapes, dtype, forward_or_error, backward)
    if goes_both_ways(site.primitive.name, site.params) and _compat.vary_alike(primals):
        return joint
    own = _compat.own_rule(site.primitive, site.params)
    if own == "vjp" or only_backward(site.params, results_of, primals):
        return joint.without_forward()
    # Reverse mode of JAX sums over the devices where only some of the operands differ among them.
    both = remembered(site, "both", lambda: has_vjp(results_of, primals), primals)
    both = has_vjp(results_of, primals) if both is None else both
    if both and _compat.vary_alike(primals):
        return joint
    return joint.without_backward(lambda at, which: diagonal_of(site, results[at], operands[which]))
