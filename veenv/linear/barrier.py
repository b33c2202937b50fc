"""Keeping the compiler from computing an expensive value more than once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Literal

import jax
import jax.numpy as jnp

from veenv import _compat

PinMode = Literal["auto"] | bool
PIN_MODES: tuple[PinMode, ...] = ("auto", True, False)

_pinning: ContextVar[bool] = ContextVar("_pinning", default=True)


def pin(value: Any) -> Any:
    """Keeps the compiler from computing a value again in each place that uses it.

    A Jacobian's many outputs become many fused loops, and the compiler would rather repeat a sine
    in each of them than store it.  Outside a trace there is nothing to keep.

    Args:
      value: an array of any shape and dtype.

    Returns:
      The same array.
    """
    if not _pinning.get():
        return value
    if _compat.is_traced(value) and jnp.issubdtype(value.dtype, jnp.inexact):
        return jax.lax.optimization_barrier(value)
    return value


def with_pins(fun: Callable[..., Any], mode: PinMode) -> Callable[..., Any]:
    """A function in which values are pinned, or none is.

    Args:
      fun: the function.
      mode: "auto" and True pin, False pins nothing.

    Returns:
      A function as `fun`.

    Raises:
      ValueError: if there is no such mode.
    """
    if not (isinstance(mode, bool) or mode == "auto"):
        raise ValueError(f'pin must be "auto", True or False, got {mode!r}')
    if mode is not False:
        return fun

    @functools.wraps(fun, updated=())
    def unpinned(*args: Any, **kwargs: Any) -> Any:
        with _pins(False):
            return fun(*args, **kwargs)

    return unpinned


def pins_as_written() -> AbstractContextManager[None]:
    """Inside, values are pinned as by default.

    A function is traced so, whatever becomes of its Jacobian: one that holds a Jacobian of its own
    has one graph.
    """
    return _pins(True)


@contextmanager
def _pins(kept: bool) -> Iterator[None]:
    token = _pinning.set(kept)
    try:
        yield
    finally:
        _pinning.reset(token)
