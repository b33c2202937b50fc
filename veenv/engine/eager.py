"""Outside of jit: loops and branches that are equal are compiled once.

JAX compiles what is run outside of jit by the identity of its body, which is another one each time
that a function is traced. A body that was seen before takes the place of an equal one here.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.core
import numpy as np
from jax.extend.core import find_top_trace, set_current_trace

from veenv import _compat

_KEPT = 4096  # as many bodies as JAX keeps compiled programs of single operations


def equal_bodies_once() -> AbstractContextManager[None]:
    """Has what is computed outside of any trace run the first of equal loops and branches.

    Examples:
      >>> with equal_bodies_once():
      ...     total = jax.lax.fori_loop(0, 3, lambda i, x: x + i, 0)
      >>> int(total)
      3
    """
    outside = find_top_trace(())
    if type(outside).__name__ != "EvalTrace":
        return nullcontext()
    return set_current_trace(_alike(outside))


class _Alike(jax.core.Trace):
    """Computes as the trace outside does, with the first of equal bodies."""

    def __init__(self, outside: Any):
        super().__init__()
        self._outside = outside

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outside, name)

    def process_primitive(self, primitive: Any, args: Any, params: Any, /) -> Any:
        with set_current_trace(self._outside):
            return self._outside.process_primitive(primitive, args, _first_of(params))

    def process_custom_jvp_call(
        self, primitive: Any, fun: Any, rule: Any, args: Any, /, **_: Any
    ) -> Any:
        with set_current_trace(self):
            return fun.call_wrapped(*args)

    def process_custom_vjp_call(
        self, primitive: Any, fun: Any, fwd: Any, bwd: Any, args: Any, /, **_: Any
    ) -> Any:
        with set_current_trace(self):
            return fun.call_wrapped(*args)

    def stage_value(self, val: Any) -> Any:
        return self._outside.stage_value(val)


_alike = functools.cache(_Alike)  # one object, by which JAX caches what it calls


def _first_of(params: Any) -> Any:
    """Parameters of an equation with the first of equal bodies."""
    if isinstance(params, dict):
        return {name: _first_of(x) for name, x in params.items()}
    if isinstance(params, (tuple, list)):
        return getattr(params, "_make", type(params))(map(_first_of, params))
    if not hasattr(_compat.open_jaxpr(params), "eqns"):
        return params
    try:
        return _first(_Body(params))
    except TypeError:  # something inside has no equality
        return params


class _Body:
    """A closed jaxpr that is equal to another one if both compute the same."""

    def __init__(self, closed: Any):
        self.closed, self._key = closed, tuple(_computed(closed))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Body) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@functools.lru_cache(_KEPT)
def _first(body: _Body) -> Any:
    return body.closed


def _computed(closed: Any) -> Iterator[Hashable]:
    """What decides what a jaxpr computes: all but names, lines and derivative rules."""
    jaxpr = _compat.open_jaxpr(closed)
    inputs = *jaxpr.invars, *jaxpr.constvars
    numbers = {v: n for n, v in enumerate(inputs)}
    yield tuple(map(_constant, getattr(closed, "consts", ())))
    yield type(closed), *(v.aval for v in inputs)
    for eqn in jaxpr.eqns:
        yield eqn.primitive, eqn.ctx, *(_atom(a, numbers) for a in eqn.invars)
        body = _compat.own_rule(eqn.primitive, eqn.params) and _compat.call_body(
            eqn.primitive.name, eqn.params
        )
        yield _plain(eqn.params if body is None else body)
        numbers.update((v, len(numbers) + k) for k, v in enumerate(eqn.outvars))
        yield tuple((v.aval, _compat.is_dropped(v)) for v in eqn.outvars)
    yield tuple(_atom(a, numbers) for a in jaxpr.outvars)


def _atom(atom: Any, numbers: dict[Any, int]) -> Hashable:
    if not hasattr(atom, "val"):
        return numbers[atom]
    return atom.aval, _constant(np.asarray(atom.val))


def _constant(value: Any) -> Hashable:
    """An array of JAX by itself, which the first body keeps; one of NumPy may have changed."""
    if isinstance(value, jax.Array):
        return id(value)
    return value.dtype, value.shape, value.tobytes()


def _plain(value: Any) -> Hashable:
    """A parameter as something with equality, in which 1, 1.0 and True are not the same."""
    if isinstance(value, dict):
        return tuple((name, _plain(x)) for name, x in sorted(value.items()))
    if isinstance(value, (tuple, list)):
        return type(value), *map(_plain, value)
    if hasattr(_compat.open_jaxpr(value), "eqns"):
        return tuple(_computed(value))
    return type(value), repr(value) if isinstance(value, (float, complex)) else value
