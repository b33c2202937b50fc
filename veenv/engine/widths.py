"""64-bit numbers where JAX's option `x64` is off: arrays made while it was on keep their dtype."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from veenv.graph.argnums import normalise_argnums
from veenv.graph.program import Program

_NUMBERS = (bool, int, float, complex)


class _WideError(Exception):
    """A function holds 64-bit numbers that are to be computed with while `x64` is off."""


def refuse_wide(program: Program) -> None:
    """Has `at_own_width` turn `x64` on where a program of 64-bit numbers was traced without."""
    kinds = {a.dtype for a in program.avals if isinstance(a.dtype, np.dtype)}
    if any(jax.dtypes.canonicalize_dtype(kind) != kind for kind in kinds):
        raise _WideError


def at_own_width(
    make: Callable[[Callable[..., Any]], Callable[..., Any]],
    fun: Callable[..., Any],
    argnums: int | Iterable[int],
) -> Callable[..., Any]:
    """A transformation of a function that has dtypes as JAX's own ones, `x64` on or off.

    What is computed with the traced function is computed with `x64` on where it has 64-bit numbers;
    the function itself sees the option as it is.

    Args:
      make: the transformation.
      fun: the function.
      argnums: by which arguments it is differentiated.
    """
    plain = make(fun)

    @functools.wraps(fun, updated=())
    def narrow(*args: Any, **kwargs: Any) -> Any:
        with jax.enable_x64(False):
            return jax.tree.map(_narrowed, fun(*args, **kwargs))

    @functools.wraps(plain, updated=())
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return plain(*args, **kwargs)
        except _WideError:
            own = set(normalise_argnums(argnums, len(args)))
            given = [jax.tree.map(_narrowed if a in own else _array, x) for a, x in enumerate(args)]
            others = jax.tree.map(_array, kwargs)
            with jax.enable_x64(True):
                return make(narrow)(*given, **others)

    return run


def _array(x: Any) -> Any:
    """An array of NumPy as JAX takes it with `x64` off."""
    return jnp.asarray(x) if isinstance(x, (np.ndarray, np.generic)) else x


def _narrowed(x: Any) -> Any:
    """The same, of Python's numbers too."""
    return jnp.asarray(x) if isinstance(x, _NUMBERS) else _array(x)
