"""Equations seen before: what JAX's derivative rules make of one serves all that equal it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import jax.core

from veenv import _compat
from veenv.rules.base import Site

_known: ContextVar[dict[Hashable, tuple[Any, Any]] | None] = ContextVar("seen", default=None)


@contextmanager
def equal_ones_once() -> Iterator[None]:
    """Has functions of equal equations traced once, as long as one trace lasts."""
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def replayed(site: Site, what: Hashable, fun: Callable[..., Any], *args: Any) -> Any:
    """``fun(*args)``, traced once for equations of one primitive, parameters, shapes and dtypes.

    Args:
      site: the equation; one with effects, or parameters without equality, is not remembered.
      what: what the function is of the equation.
      fun: a function of pytrees of arrays that depends on the equation and them alone.
      *args: the arrays.
    """

    def traced() -> tuple[Any, Any]:
        closed, out = jax.make_jaxpr(fun, return_shape=True)(*jax.tree.map(_compat.shape_of, args))
        return closed, jax.tree.structure(out)

    found = remembered(site, what, traced, *args)
    if found is None:
        return fun(*args)
    closed, out = found
    leaves = jax.core.eval_jaxpr(_compat.open_jaxpr(closed), closed.consts, *jax.tree.leaves(args))
    return jax.tree.unflatten(out, leaves)


def remembered(site: Site, what: Hashable, make: Callable[[], Any], *args: Any) -> Any:
    """What is made once for such equations; None where nothing is remembered of this one."""
    known = _known.get()
    own = None if known is None or site.effects else signature(site)
    if known is None or own is None:
        return None
    leaves, tree = jax.tree.flatten(args)
    key = own, what, tree, tuple(map(jax.typeof, leaves))
    if key not in known:
        known[key] = make()
    return known[key]


def signature(site: Site) -> Hashable:
    """What decides the derivative of an equation; None of parameters without equality."""
    key = (
        site.primitive, tuple(sorted(site.params.items())), tuple(site.in_avals),
        tuple(site.out_avals), tuple(site.active), site.wanted and tuple(site.wanted),
        site.realify, site.effects,
    )  # fmt: skip
    try:
        hash(key)
    except TypeError:
        return None
    return key
