"""Barriers that keep the compiler from recomputing an expensive value, always or in batches only.

The batch that a function will be mapped over is unknown while it is traced.  Storing a value costs
the start of one loop for any batch; what it saves grows with the batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.extend import core
from jax.interpreters import ad, batching, mlir

from veenv import _compat
from veenv._support import setting

PinMode = Literal["auto"] | bool

_pinning: ContextVar[bool] = ContextVar("_pinning", default=True)


def pin(value: Any) -> Any:
    """Keeps the compiler from recomputing a value in each place that uses it.

    A Jacobian's many outputs become many fused loops, and the compiler would rather repeat a sine
    in each of them than store it.  Outside a trace there is nothing to keep.
    """
    if not _pinning.get():
        return value
    if _compat.is_traced(value) and jnp.issubdtype(value.dtype, jnp.inexact):
        return jax.lax.optimization_barrier(value)
    return value


def with_pins(fun: Callable[..., Any], mode: PinMode) -> Callable[..., Any]:
    """Wraps a function so that its values are pinned as by default, or none is."""
    if not (isinstance(mode, bool) or mode == "auto"):
        raise ValueError(f'pin must be "auto", True or False, got {mode!r}')
    if mode is not False:
        return fun

    @functools.wraps(fun, updated=())
    def unpinned(*args: Any, **kwargs: Any) -> Any:
        with setting(_pinning, False):
            return fun(*args, **kwargs)

    return unpinned


def pins_as_written() -> AbstractContextManager[None]:
    """Returns a context in which values are pinned as by default.

    Functions are traced in it whatever their own `pin` is, so that a function that contains a
    Jacobian always has the same graph.
    """
    return setting(_pinning, True)


batch_barrier_p = core.Primitive("veenv_batch_barrier")
"""Identity of one array that becomes a barrier once it is mapped over at least `points` points."""

BARRIERS = frozenset(["optimization_barrier", batch_barrier_p.name])
"""Primitives that keep a value from being recomputed."""


def barrier_from(points: int, value: Any) -> Any:
    """Keeps the compiler from recomputing a value in batches of so many points or more.

    Examples:
      >>> import jax.numpy as jnp
      >>> double = lambda x: 2.0 * barrier_from(8, jnp.sin(x))
      >>> few, many = (jax.jit(jax.vmap(double)).lower(jnp.ones(n)) for n in (7, 8))
      >>> "optimization_barrier" in few.as_text(), "optimization_barrier" in many.as_text()
      (False, True)
    """
    if points <= 1:
        return jax.lax.optimization_barrier(value)
    return batch_barrier_p.bind(value, points=points)


def _batch(args: tuple[Any], dims: tuple[int], *, points: int) -> tuple[Any, int]:
    """Batches the barrier; a batch of unknown size (`jax.export`) counts as a large one."""
    size = args[0].shape[dims[0]]
    left = -(-points // max(1, size)) if isinstance(size, int) else 1
    return barrier_from(left, args[0]), dims[0]


def _jvp(primals: tuple[Any], tangents: tuple[Any], *, points: int) -> tuple[Any, Any]:
    return barrier_from(points, primals[0]), tangents[0]


batch_barrier_p.def_impl(lambda value, *, points: value)
batch_barrier_p.def_abstract_eval(lambda aval, *, points: aval)
batching.primitive_batchers[batch_barrier_p] = _batch
ad.primitive_jvps[batch_barrier_p] = _jvp
ad.primitive_transposes[batch_barrier_p] = lambda cotangent, _, **__: [cotangent]
mlir.register_lowering(batch_barrier_p, lambda _, operand, *, points: [operand])
