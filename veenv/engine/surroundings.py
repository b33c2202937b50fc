"""Transformations of functions as JAX's own are: with `x64` on or off, of arrays on any mesh."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from veenv.graph.program import HiddenAux, Program, hiding_aux, normalise_argnums
from veenv.graph.shardings import AsWritten, Specs, spec_of, with_automatic_axes


def anywhere(
    make: Callable[[Callable[..., Any], AsWritten], Callable[..., Any]],
    fun: Callable[..., Any],
    argnums: int | Iterable[int],
    names: Sequence[str],
    *,
    has_aux: bool,
    sparse: bool,
) -> Callable[..., Any]:
    """A transformation of a function, for `x64` on or off and for arrays on any mesh.

    `names` are what its result is made of. A block has the sharding of a row, which lies as the
    input does, and of a gradient's Jacobian that of a column; a sparse one has none.
    """

    def typed(result: Any, args: Sequence[Any], returned: Specs) -> Specs:
        wanted = normalise_argnums(argnums, len(args))
        inputs = jax.tree.leaves([args[a] for a in wanted])
        found: Specs = []
        for name, part in zip(names, result if len(names) > 1 else (result,), strict=True):
            count = jax.tree.structure(part).num_leaves
            if name == "gradient" and not sparse:
                found += [
                    PartitionSpec(*of, *[None] * x.ndim)
                    for of, x in itertools.product(returned[: count // len(inputs)], inputs)
                ]
            elif name == "jacobian" and not sparse:
                found += [spec_of(x) for _ in range(count // len(inputs)) for x in inputs]
            elif name in ("value", "aux"):
                found += returned[len(returned) - count :]
            else:
                found += [PartitionSpec()] * count
        return found

    def on_any_mesh(fun: Callable[..., Any]) -> Callable[..., Any]:
        return with_automatic_axes(make, fun, typed)

    return _at_own_width(on_any_mesh, fun, argnums, has_aux)


class _WideError(Exception):
    """A function holds 64-bit numbers that are to be computed with while `x64` is off."""


def refuse_wide(program: Program) -> None:
    """Has `anywhere` turn `x64` on where a program of 64-bit numbers was traced without."""
    kinds = {a.dtype for a in program.avals if isinstance(a.dtype, np.dtype)}
    if any(jax.dtypes.canonicalize_dtype(kind) != kind for kind in kinds):
        raise _WideError


def _at_own_width(
    make: Callable[[Callable[..., Any]], Callable[..., Any]],
    fun: Callable[..., Any],
    argnums: int | Iterable[int],
    has_aux: bool,
) -> Callable[..., Any]:
    """A transformation of a function that has dtypes as JAX's own ones, `x64` on or off.

    What is computed with the traced function is computed with `x64` on where it has 64-bit numbers;
    the function itself sees the option as it is.
    """
    hidden = hiding_aux(fun, has_aux)
    plain = make(hidden)

    @functools.wraps(fun, updated=())
    def narrow(*args: Any, **kwargs: Any) -> Any:
        with jax.enable_x64(False):
            found = hidden(*args, **kwargs)
            if not has_aux:
                return jax.tree.map(_narrowed, found)
            out, aux = found
            return jax.tree.map(_narrowed, out), aux

    @functools.wraps(plain, updated=())
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return _shown(plain(*args, **kwargs))
        except _WideError:
            own = set(normalise_argnums(argnums, len(args)))
            given = [jax.tree.map(_narrowed if a in own else _array, x) for a, x in enumerate(args)]
            others = jax.tree.map(_array, kwargs)
            with jax.enable_x64(True):
                return _shown(make(narrow)(*given, **others))

    return run


def _shown(found: Any) -> Any:
    """A result with its auxiliary output, which is on its first or second level, as it was."""
    if isinstance(found, HiddenAux):
        return found.shown()
    return tuple(map(_shown, found)) if type(found) is tuple else found


def _array(x: Any) -> Any:
    """An array of NumPy as JAX takes it with `x64` off."""
    return jnp.asarray(x) if isinstance(x, (np.ndarray, np.generic)) else x


def _narrowed(x: Any) -> Any:
    """The same, of Python's numbers too."""
    return jnp.asarray(x) if isinstance(x, (bool, int, float, complex)) else _array(x)
