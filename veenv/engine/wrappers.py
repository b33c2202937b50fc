"""Wraps a derived function so that it is valid under `x64`, on any mesh, and outside of jit.

Outside of jit JAX compiles a body by its identity, and each trace of a function makes a new body.
`equal_bodies_once` replaces a body by an equal one that was compiled before.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend.core import find_top_trace, set_current_trace
from jax.sharding import PartitionSpec

from veenv import _compat, limits
from veenv.engine.request import Request
from veenv.graph.program import HiddenAux, Program, hiding_aux, normalise_argnums
from veenv.graph.shardings import AsWritten, Specs, spec_of, with_automatic_axes
from veenv.rules import walk
from veenv.rules.base import is_complex, is_differentiable


def anywhere(
    make: Callable[[Callable[..., Any], AsWritten], Callable[..., Any]],
    fun: Callable[..., Any],
    request: Request,
) -> Callable[..., Any]:
    """Returns a transformation of a function for `x64` on or off and for arrays on any mesh.

    A block is sharded like its input, and a block of a gradient's Jacobian like the output. A
    sparse one has no sharding.
    """
    names, sparse = request.parts, request.blocks == "sparse"

    def typed(result: Any, args: Sequence[Any], returned: Specs) -> Specs:
        wanted = normalise_argnums(request.argnums, len(args))
        inputs = jax.tree.leaves([args[a] for a in wanted])
        specs: Specs = []
        for name, part in zip(names, result if len(names) > 1 else (result,), strict=True):
            count = jax.tree.structure(part).num_leaves
            if name == "gradient" and not sparse:
                specs += [
                    PartitionSpec(*of, *[None] * x.ndim)
                    for of, x in itertools.product(returned[: count // len(inputs)], inputs)
                ]
            elif name == "jacobian" and not sparse:
                specs += [spec_of(x) for _ in range(count // len(inputs)) for x in inputs]
            elif name in ("value", "aux"):
                specs += returned[len(returned) - count :]
            else:
                specs += [PartitionSpec()] * count
        return specs

    def on_any_mesh(fun: Callable[..., Any]) -> Callable[..., Any]:
        return with_automatic_axes(make, fun, typed)

    return _at_own_width(on_any_mesh, fun, request.argnums, request.has_aux)


class _CanonicalDtypeError(Exception):
    """Raised where 64-bit numbers are to be computed with while `x64` is off."""


def check_types(
    program: Program, inputs: dict[int, Any], *, holomorphic: bool, allow_int: bool
) -> None:
    """Refuses what `jax.jacrev` refuses: integers, and complex outputs where not holomorphic.

    Has `anywhere` turn `x64` on where a program of 64-bit numbers was traced without it. `inputs`:
    the arguments that are differentiated by.
    """
    children, node = program.out_tree.children(), program.out_tree.node_data()
    pair = node is not None and node[0] in (tuple, list) and len(children) == 2
    first = children[0].num_leaves if pair else 0
    inputs_avals = program.avals[: program.num_inputs]
    for kind, avals in (("argument", inputs_avals), ("output", program.out_avals)):
        either = kind == "argument" and not holomorphic
        wanted = "complex" if holomorphic else "floating-point" if either else "real"
        for number, aval in enumerate(avals):
            if is_differentiable(aval) and (either or is_complex(aval) == holomorphic):
                continue
            hint = ""
            if kind == "argument" and not is_differentiable(aval):
                if allow_int:
                    continue
                hint = (
                    "; pass floats (1.0, x.astype(float)), or allow_int=True for blocks of dtype "
                    "float0"
                )
            elif kind == "output" and is_complex(aval):
                hint = "; pass holomorphic=True if the function is holomorphic"
            elif kind == "output" and pair and number >= first and not is_differentiable(aval):
                hint = "; pass has_aux=True if the function returns (output, aux)"
            elif holomorphic:
                hint = " with holomorphic=True; pass complex numbers, or leave holomorphic away"
            elif not is_differentiable(aval):
                hint = "; return it beside the output, with has_aux=True"
            places = _places(inputs) if kind == "argument" else _places_in(program.out_tree)
            raise TypeError(
                f"jacve needs {wanted} {kind}s, got dtype {aval.dtype} of shape "
                f"{tuple(aval.shape)}{places[number]}{hint}"
            )
    kinds = {a.dtype for a in program.avals if isinstance(a.dtype, np.dtype)}
    if any(jax.dtypes.canonicalize_dtype(kind) != kind for kind in kinds):
        raise _CanonicalDtypeError


def _places(arguments: dict[int, Any]) -> list[str]:
    """Describes in words the place of each leaf of arguments; empty of one leaf alone."""
    descriptions = []
    for a, tree in arguments.items():
        for path, _ in jax.tree_util.tree_leaves_with_path(tree):
            where = f"argument {a}" * (len(arguments) > 1) + jax.tree_util.keystr(path)
            descriptions.append(" at " + where if where else "")
    return descriptions


def _places_in(tree: Any) -> list[str]:
    """Describes in words the place of each leaf of an output; empty of plain containers."""
    try:
        return _places({0: jax.tree.unflatten(tree, range(tree.num_leaves))})
    except Exception:  # a container's checks may raise anything
        return [""] * tree.num_leaves


def _at_own_width(
    make: Callable[[Callable[..., Any]], Callable[..., Any]],
    fun: Callable[..., Any],
    argnums: int | Iterable[int],
    has_aux: bool,
) -> Callable[..., Any]:
    """Returns a transformation with dtypes like JAX's transformations, `x64` on or off.

    Derivatives of a function with 64-bit numbers are computed with `x64` on; the function itself
    sees the option as it is set.
    """
    hidden = hiding_aux(fun, has_aux)
    plain = make(hidden)

    @functools.wraps(fun, updated=())
    def narrow(*args: Any, **kwargs: Any) -> Any:
        with jax.enable_x64(False):
            result = hidden(*args, **kwargs)
            if not has_aux:
                return jax.tree.map(_narrowed, result)
            out, aux = result
            return jax.tree.map(_narrowed, out), aux

    @functools.wraps(plain, updated=())
    def run(*args: Any, **kwargs: Any) -> Any:
        differentiated = normalise_argnums(argnums, len(args), kwargs)
        try:
            return _shown(plain(*args, **kwargs))
        except _CanonicalDtypeError:
            narrowed = [
                jax.tree.map(_narrowed if a in differentiated else _array, x)
                for a, x in enumerate(args)
            ]
            keywords = jax.tree.map(_array, kwargs)
            with jax.enable_x64(True):
                return _shown(make(narrow)(*narrowed, **keywords))

    return run


def _shown(result: Any) -> Any:
    """Unwraps an auxiliary output, which is on the first or second level of a result."""
    if isinstance(result, HiddenAux):
        return result.shown()
    return tuple(map(_shown, result)) if type(result) is tuple else result


def _array(x: Any) -> Any:
    """Converts an array of NumPy as JAX does with `x64` off."""
    return jnp.asarray(x) if isinstance(x, (np.ndarray, np.generic)) else x


def _narrowed(x: Any) -> Any:
    """Converts an array of NumPy or a Python number as JAX does with `x64` off."""
    return jnp.asarray(x) if isinstance(x, (bool, int, float, complex)) else _array(x)


def equal_bodies_once() -> AbstractContextManager[None]:
    """Has everything outside of any trace run the first of equal loops and branches.

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
            alike = walk.with_bodies(params, _first_of)
            return self._outside.process_primitive(primitive, args, alike)

    def process_custom_jvp_call(self, primitive: Any, fun: Any, /, *rest: Any, **_: Any) -> Any:
        *_rules, args = rest
        with set_current_trace(self):
            return fun.call_wrapped(*args)

    process_custom_vjp_call = process_custom_jvp_call

    def stage_value(self, val: Any) -> Any:
        return self._outside.stage_value(val)


_alike = functools.cache(_Alike)  # JAX caches calls by this object


def _first_of(body: Any) -> Any:
    """Returns the first of equal bodies."""
    try:
        return _first(_Body(body))
    except TypeError:  # a parameter has no equality
        return body


class _Body:
    """A closed jaxpr that is equal to another one if both compute the same."""

    def __init__(self, closed: Any):
        self.closed, self._key = closed, tuple(_computed(closed))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Body) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@functools.lru_cache(limits.REMEMBERED)
def _first(body: _Body) -> Any:
    return body.closed


def _computed(closed: Any) -> Iterator[Hashable]:
    """Yields what decides what a jaxpr computes: all but names, lines and derivative rules."""
    jaxpr = _compat.open_jaxpr(closed)
    inputs = *jaxpr.invars, *jaxpr.constvars
    numbers = {v: n for n, v in enumerate(inputs)}
    yield tuple(map(_constant, getattr(closed, "consts", ())))
    yield type(closed), *(v.aval for v in inputs)
    for eqn in jaxpr.eqns:
        yield eqn.primitive, eqn.ctx, *(_atom(a, numbers) for a in eqn.invars)
        rule = _compat.own_rule(eqn.primitive, eqn.params)
        body = rule and _compat.call_body(eqn.primitive.name, eqn.params)
        yield _plain(eqn.params if body is None else body)
        numbers.update((v, len(numbers) + k) for k, v in enumerate(eqn.outvars))
        yield tuple((v.aval, _compat.is_dropped(v)) for v in eqn.outvars)
    yield tuple(_atom(a, numbers) for a in jaxpr.outvars)


def _atom(atom: Any, numbers: dict[Any, int]) -> Hashable:
    if not hasattr(atom, "val"):
        return numbers[atom]
    return atom.aval, _constant(np.asarray(atom.val))


def _constant(value: Any) -> Hashable:
    """Returns a key of a constant: the identity of a JAX array, the bytes of a NumPy array."""
    if isinstance(value, jax.Array):
        return id(value)
    return value.dtype, value.shape, value.tobytes()


def _plain(value: Any) -> Hashable:
    """Returns a parameter as something with equality, in which 1, 1.0 and True differ."""
    if isinstance(value, dict):
        return tuple((name, _plain(x)) for name, x in sorted(value.items()))
    if isinstance(value, (tuple, list)):
        return type(value), *map(_plain, value)
    if hasattr(_compat.open_jaxpr(value), "eqns"):
        return tuple(_computed(value))
    return type(value), repr(value) if isinstance(value, (float, complex)) else value
