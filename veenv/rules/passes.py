"""JAX's own two modes of one equation, on real numbers if it is seen so."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.dtypes import float0
from jax.extend import core

from veenv import _compat
from veenv.rules import walk
from veenv.rules.base import (
    Site,
    Values,
    from_real,
    is_differentiable,
    remembered,
    replaced,
    replayed,
    to_real,
)
from veenv.rules.table import facts

REFUSALS = (ValueError, NotImplementedError, TypeError)
"""What JAX raises where it lacks a mode."""


def goes_both_ways(name: str, params: Any) -> bool:
    """Returns whether JAX is known to have both modes of a primitive, without a trace.

    Examples:
      >>> goes_both_ways("sin", {}), goes_both_ways("custom_vjp_call", {})
      (True, False)
    """
    inner = (e.primitive.name for e in walk.inside(params))
    return all(facts(each).both for each in (name, *inner))


def only_backward(params: Any, fun: Callable[..., Any], primals: Sequence[Array]) -> bool:
    """Returns whether a custom vjp inside of an equation leaves it without a forward mode.

    JAX raises where the tangent of such a function is computed, which under jit is after this.
    """
    if not any(True for _ in _compat.bodies(params)):
        return False
    try:
        return not has_jvp(fun, primals)
    except REFUSALS:  # said where it is pushed forward, unless JAX said it as early as this
        inside = walk.inside(params)
        return any(_compat.own_rule(e.primitive, e.params) == "vjp" for e in inside)


def has_jvp(fun: Callable[..., Any], primals: Sequence[Any]) -> bool:
    """Returns whether JAX has the tangent of a function; raises what JAX raises in its trace."""
    pushed = jax.make_jaxpr(lambda p: jax.jvp(fun, p, p))(tuple(primals))
    return not (walk.holds(pushed, _compat.TANGENTS) or _compat.has_lost(pushed))


def has_vjp(fun: Callable[..., Any], primals: Sequence[Any]) -> bool:
    """Returns whether JAX can transpose a function's derivative (of a `while`, say, it cannot)."""

    def pull(*values: Array) -> Any:
        outs, back = jax.vjp(fun, *values)
        return back(outs)

    try:
        pulled = jax.make_jaxpr(pull)(*primals)
    except REFUSALS:
        return False
    return not _compat.has_lost(pulled)


Several = tuple[Array, ...]
Ways = Literal["both", "forward", "backward"]


class ActiveFunction(NamedTuple):
    """An equation as a function of its active operands."""

    numbers: list[int]  # which operands
    primals: list[Array]  # their values
    # from their values to the results that are asked for, and to all
    fun: Callable[..., tuple[Several, Sequence[Any]]]

    def requested(self, *values: Array) -> Several:
        """The results that are asked for."""
        return self.fun(*values)[0]


def active_function(site: Site, at: Values) -> ActiveFunction:
    """Returns an equation as a function of its active operands."""
    active = [
        n
        for n, a in enumerate(site.in_avals)
        if n in site.operands or (_is_solve(site) and is_differentiable(a))
    ]

    at = [jnp.asarray(x) if isinstance(x, np.ndarray) and x.dtype != float0 else x for x in at]

    def results_of(*values: Array) -> tuple[Several, list[Any]]:
        every = _compat.bind(site.primitive, site.params, replaced(at, active, values))
        return tuple(every[k] for k in site.results), every

    return ActiveFunction(active, [jnp.asarray(at[n]) for n in active], results_of)


def _is_solve(site: Site) -> bool:
    """Whether JAX's rule of a primitive needs a tangent for every operand, zero or not."""
    return facts(site.primitive.name).form == "solve"


def pullback(site: Site, at: Values) -> Callable[..., Several]:
    """JAX's reverse mode of one equation, on real numbers if it is seen so.

    From cotangents of `site.results`, or of those that the second argument numbers, to those of
    `site.operands`.
    """

    def pull(cotangents: Sequence[Array], of: Sequence[int] | None = None) -> Several:
        of = tuple(range(len(site.results)) if of is None else of)
        back = functools.partial(_pulled, site, of)
        return replayed(site, ("pull", of), back, list(map(jnp.asarray, at)), list(cotangents))

    return pull


def _pulled(site: Site, of: Sequence[int], at: Values, cotangents: Sequence[Array]) -> Several:
    return _back(site, active_function(site, at), cotangents, of)


def _back(
    site: Site, active: ActiveFunction, cotangents: Sequence[Array], of: Sequence[int] | None = None
) -> Several:
    """Pulls cotangents of some results of an equation back to its operands."""
    of = range(len(site.results)) if of is None else of

    def asked(*values: Array) -> Several:
        requested = active.requested(*values)
        return tuple(requested[k] for k in of)

    pulled = jax.vjp(asked, *active.primals)[1](_to_jax(site, of, cotangents))
    return _from_jax(site, active, pulled)


def _to_jax(site: Site, of: Sequence[int], cotangents: Sequence[Array]) -> Several:
    """Converts cotangents of some results to what JAX's reverse mode takes."""
    outs = [site.out_avals[site.results[k]] for k in of]
    converted = [from_real(g, out) for g, out in zip(cotangents, outs, strict=True)]
    # JAX pulls back without conjugation; as a real map the transpose conjugates twice.
    return tuple(g.conj() if site.realify and jnp.iscomplexobj(g) else g for g in converted)


def _from_jax(site: Site, active: ActiveFunction, pulled: Sequence[Array]) -> Several:
    """Converts what JAX's reverse mode returns to cotangents of the operands."""
    chosen = [pulled[active.numbers.index(i)] for i in site.operands]
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
    return _along(site, active_function(site, at), which, t)


def _along(site: Site, active: ActiveFunction, which: int, t: Array) -> Several:
    """Pushes the tangent of one operand forward to the results of an equation."""
    primals = active.primals
    position = active.numbers.index(site.operands[which])
    tangents = [jnp.zeros_like(p) for p in primals]
    tangent = from_real(t, site.in_avals[site.operands[which]])
    tangents[position], _ = _compat.same_variance([tangent, primals[position]])
    # JAX sees that the other operands are constant; their zeros could meet infinity. A rule that is
    # told what is zero is told what is active at all.
    told = _compat.sees_symbolic_zeros(site.primitive, site.params)
    varied = range(len(primals)) if told or _is_solve(site) else [position]

    def along(*values: Array) -> Several:
        return active.requested(*replaced(primals, varied, values))

    here, towards = (tuple(x[n] for n in varied) for x in (primals, tangents))
    pushed = jax.jvp(along, here, towards)[1]
    return tuple(to_real(x) if site.realify else x for x in pushed)


def results_and_pullback(site: Site, at: Values) -> tuple[Sequence[Any], Callable[..., Several]]:
    """The results of an equation and its `pullback`, both from one run."""
    active = active_function(site, at)
    requested, back, every = jax.vjp(active.fun, *active.primals, has_aux=True)

    def pull(cotangents: Sequence[Array], of: Sequence[int] | None = None) -> Several:
        of = range(len(requested)) if of is None else of
        zeros = [jnp.zeros_like(x) for x in requested]
        full = replaced(zeros, of, _to_jax(site, of, cotangents))
        return _from_jax(site, active, back(tuple(full)))

    return every, pull


def _linear(active: ActiveFunction) -> tuple[Sequence[Any], ActiveFunction]:
    """The results of an equation and its derivative, a function of tangents, both from one run."""
    zeros = [jnp.zeros_like(p) for p in active.primals]
    _, lin, every = jax.linearize(active.fun, *active.primals, has_aux=True)
    push = core.jaxpr_as_fun(_silent(jax.make_jaxpr(lin)(*zeros)))
    return every, active._replace(primals=zeros, fun=lambda *t: (push(*t), []))


def _silent(value: Any) -> Any:
    """Returns a jaxpr without its effects."""
    body = _compat.open_jaxpr(value)
    if not _compat.effects_of(body):
        return value

    def step(equation: Any, ins: list[Any]) -> Sequence[Any]:
        if not _compat.effects_of(equation):
            return walk.apply(equation, ins)
        if all(map(_compat.is_dropped, equation.outvars)):
            return [None] * len(equation.outvars)
        return _compat.bind(equation.primitive, walk.with_bodies(equation.params, _silent), ins)

    consts, shapes = getattr(value, "consts", ()), (_compat.abstract(v.aval) for v in body.invars)
    return jax.make_jaxpr(lambda *args: walk.results(body, (*consts, *args), step))(*shapes)


class Passes(NamedTuple):
    """JAX's modes of an equation at the values of its operands."""

    ways: Ways  # those that it has
    # (operand, its tangent) → the tangents of the results that are asked for
    push: Callable[[int, Array], Several]
    pull: Callable[..., Several]  # as of `pullback`
    results: Sequence[Any] | None = None  # all results, if they are of the same run


def passes_at(site: Site, at: Values) -> Passes:
    """JAX's modes of an equation at the values of its operands.

    One that does more than compute runs once: its results and its derivative are of that run.
    """
    active = active_function(site, at)
    ways = _ways(site, active)
    every, push, pull = None, _pushforward(site, at), pullback(site, at)
    if not site.effects:
        return Passes(ways, push, pull)
    if ways == "backward":
        every, pull = results_and_pullback(site, at)
        return Passes(ways, push, pull, every)
    silent = replace(site, params=walk.with_bodies(site.params, _silent), effects=False)
    if ways == "forward" or _is_silent(silent, at):
        every = _compat.bind(site.primitive, site.params, at)
        return Passes(ways, _pushforward(silent, at), pullback(silent, at), every)
    every, linear = _linear(active)
    push, pull = functools.partial(_along, site, linear), functools.partial(_back, site, linear)
    return Passes(ways, push, pull, every)


def is_forward_only(site: Site) -> bool:
    """Returns whether an equation has effects that only forward mode runs once."""
    forward_only: list[bool] = []

    def at(*values: Any) -> None:
        ways = _ways(site, active_function(site, values))
        silent = replace(site, params=walk.with_bodies(site.params, _silent))
        forward_only.append(ways == "forward" and not _is_silent(silent, values))

    with suppress(*REFUSALS):  # said where it is pushed forward
        jax.eval_shape(at, *map(_compat.abstract, site.in_avals))
    return any(forward_only)


def _is_silent(site: Site, at: Values) -> bool:
    """Whether an equation and its derivative only compute, whatever its derivative rules are."""
    inside = walk.inside(site.params)
    if any(_compat.own_rule(e.primitive, e.params) and _compat.effects_of(e) for e in inside):
        return False
    active = active_function(site, at)
    pushed = jax.make_jaxpr(lambda p: jax.jvp(active.requested, p, p))(active.primals)
    return not _compat.effects_of(pushed)


def _ways(site: Site, active: ActiveFunction) -> Ways:
    """Returns the modes that JAX has of an equation."""
    alike = _compat.vary_alike(active.primals)
    if goes_both_ways(site.primitive.name, site.params) and alike:
        return "both"
    custom_rule = _compat.own_rule(site.primitive, site.params)
    if custom_rule == "vjp" or only_backward(site.params, active.requested, active.primals):
        return "backward"
    # Reverse mode of JAX sums over the devices where only some of the operands differ among them.
    both = remembered(
        site, "both", lambda: has_vjp(active.requested, active.primals), active.primals
    )
    both = has_vjp(active.requested, active.primals) if both is None else both
    return "both" if both and alike else "forward"
