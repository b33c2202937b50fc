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
      site: the equation; one with a body, or parameters without equality, is not remembered.
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
    if known is None or any(_compat.bodies(site.params)):
        return None
    leaves, tree = jax.tree.flatten(args)
    try:
        key = (
            site.primitive, tuple(sorted(site.params.items())), tuple(site.active),
            site.wanted and tuple(site.wanted), site.realify, what, tree,
            tuple(map(jax.typeof, leaves)),
        )  # fmt: skip
        hash(key)
    except TypeError:
        return None
    if key not in known:
        known[key] = make()
    return known[key]
