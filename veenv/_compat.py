"""Differences between JAX versions, and what JAX has no public name for, in one place."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import jax.ref
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jax.extend import core, source_info_util

_CALLS = {"jit": "jaxpr", "closed_call": "call_jaxpr", "remat2": "jaxpr"}
"""Call primitives whose body is inlined, and the parameter that holds it."""

_FRAMES = 64
"""Lines of a traceback searched for the user's line: the engine is less deep."""
KERNEL = "veenv_fused"
"""Name of the primitive of a kernel."""
_RULED = {
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "linear_call": "callee",
}
"""Calls with a custom derivative rule, and the parameter that holds their body."""


_QUIET = {
    "NamedAxisEffect",
    "InternalMutableArrayEffect",
    "ReadEffect",
    "WriteEffect",
    "AccumEffect",
}
"""Effects of JAX that are not visible from outside."""
_FORMULAS = "igamma igammac igamma_grad_a regularized_incomplete_beta bessel_i0e".split()
"""Primitives that JAX lowers to formulas with loops, as compilers have no function for them."""
TANGENTS = ("custom_lin", "call_hi_primitive_linearized")
"""Primitives that stand for a missing tangent: JAX raises an error when they are computed."""
_KERNELS = {"mosaic", "mosaic_gpu", "triton"}
"""Kernel compilers that JAX lists as platforms."""


def barrier(tree: Any) -> Any:
    """Keeps the compiler from recomputing arrays in each place that uses them.

    XLA of before JAX 0.12 drops barriers ahead of fusion on CPUs: there a branch that is always
    taken is one. It takes as long to compile as all else, so not where speed is given up for that.
    """
    quick = jax.config.read("jax_disable_most_optimizations")
    if quick or jax.__version_info__ >= (0, 12):
        return lax.optimization_barrier(tree)
    leaves, structure = jax.tree.flatten(tree)
    return structure.unflatten(_barrier(leaves))


@custom_vmap
def _barrier(leaves: list[Any]) -> list[Any]:
    if not leaves or not leaves[0].size:
        return leaves

    def branch(*leaves: Any) -> list[Any]:
        first = leaves[0].reshape(-1)[0]
        if _is_float(first):
            first = lax.bitcast_convert_type(first, f"uint{8 * first.dtype.itemsize}")
        bits = lax.population_count(first.astype(jnp.int32) if first.dtype == bool else first)
        # No number has more than 64 bits set, so this is never true; the compiler does not know.
        return lax.cond(
            bits > 64, lambda *x: [-i if _is_float(i) else ~i for i in x], _same, *leaves
        )

    return lax.platform_dependent(
        *leaves, cpu=branch, default=lambda *x: list(lax.optimization_barrier(x))
    )


@_barrier.def_vmap
def _barrier_of_batch(size: int, batched: Any, leaves: list[Any]) -> tuple[list[Any], list[bool]]:
    """Batches the barrier with one branch: a condition for each would compute both sides."""
    del size
    [flags] = batched
    stored = iter(_barrier(list(itertools.compress(leaves, flags))))
    pairs = zip(leaves, flags, strict=True)
    return [next(stored) if is_batched else leaf for leaf, is_batched in pairs], flags


def _same(*leaves: Any) -> list[Any]:
    return list(leaves)


def _is_float(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def open_jaxpr(jaxpr: Any) -> Any:
    """Returns the jaxpr inside a closed jaxpr; newer versions have one class for both."""
    return getattr(jaxpr, "jaxpr", jaxpr)


def closed_jaxpr(jaxpr: Any, consts: Sequence[Any]) -> Any:
    """Closes a jaxpr over the values of its constants."""
    return core.ClosedJaxpr(jaxpr, consts)  # pyright: ignore[reportPrivateImportUsage]


def inlinable(eqn: Any) -> Any | None:
    """Returns the body of an equation that is a plain call, None for every other equation.

    That of a kernel is what it is for XLA.
    """
    if eqn.primitive.name == KERNEL:
        return eqn.params["kernel"].jaxpr([v.aval for v in eqn.invars])
    return inlinable_body(eqn.primitive.name, eqn.params)


def inlinable_body(name: str, params: Mapping[str, Any]) -> Any | None:
    """Returns the body of a plain call by its primitive's name and parameters, else None."""
    key = _CALLS.get(name)
    return None if key is None else params.get(key)


def call_body(name: str, params: Mapping[str, Any]) -> Any | None:
    """Returns the body of a call, with a custom derivative rule or without; else None."""
    return params.get(_RULED[name]) if name in _RULED else inlinable_body(name, params)


def formula(eqn: Any) -> Any | None:
    """Returns the program by which JAX computes a special function; None for other equations.

    It is in no public module: where a version has it elsewhere, there is none.
    """
    name = eqn.primitive.name
    if name not in _FORMULAS or eqn.outvars[0].aval.dtype not in (np.float32, np.float64):
        return None
    aval = eqn.outvars[0].aval
    return _formula(name, aval.dtype, aval.shape, *(v.aval.shape for v in eqn.invars))


@functools.lru_cache(maxsize=64)
def _formula(name: str, dtype: np.dtype, shape: tuple[int, ...], *shapes: tuple[int, ...]) -> Any:
    try:
        from jax._src.lax import special
    except ImportError:
        return None
    run = getattr(special, f"{name}_impl", None)
    if run is None:
        return None
    if name != "bessel_i0e":
        run = functools.partial(run, dtype=dtype)
    return jax.make_jaxpr(lambda *operands: run(*(jnp.broadcast_to(x, shape) for x in operands)))(
        *(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes)
    )


def default_branch(eqn: Any) -> Any | None:
    """Returns the branch of a choice by platform that is not for kernels; None for others.

    `jnp.diagonal` has one of its own for kernels of Pallas, a sum over all of a masked array.
    """
    platforms = eqn.params.get("branches_platforms") if eqn.primitive.name == "cond" else None
    if platforms is None or {p for group in platforms for p in group or ()} - _KERNELS:
        return None
    branches = zip(eqn.params["branches"], platforms, strict=True)
    return next((branch for branch, group in branches if group is None), None)


def num_alike(inside: Sequence[Any], outside: Sequence[Any]) -> int:
    """Counts the variables of a loop that are not stacked (have the same rank outside)."""
    pairs = zip(inside, outside, strict=True)
    return sum(len(a.shape) == len(b.shape) for a, b in pairs)


def effects_of(of: Any) -> frozenset[Any]:
    """Returns the effects of an equation or a jaxpr, with its bodies: callbacks, checks."""
    direct = (e for e in of.effects if type(e).__name__ not in _QUIET)
    within = [of] if hasattr(of, "params") else open_jaxpr(of).eqns
    inside = (body for eqn in within for body in bodies(eqn.params))
    return frozenset(direct).union(*map(effects_of, inside))


def bodies(params: Mapping[str, Any]) -> Iterator[Any]:
    """Yields the jaxprs among the parameters of an equation, branches and the like included."""
    return map(open_jaxpr, _bodies(params))


def _bodies(params: Mapping[str, Any]) -> Iterator[Any]:
    """Yields the jaxprs among the parameters of an equation, closed or open as they are."""
    values = list(params.values())
    while values:
        value = values.pop()
        if isinstance(value, (tuple, list)):
            values += value
        elif hasattr(open_jaxpr(value), "eqns"):
            yield value


def constants_within(params: Iterable[Mapping[str, Any]]) -> Iterator[Any]:
    """Yields the constants of the jaxprs among equations' parameters, in any depth."""
    for body in (body for one in params for body in _bodies(one)):
        yield from getattr(body, "consts", ())
        yield from constants_within(eqn.params for eqn in open_jaxpr(body).eqns)


def own_rule(primitive: Any, params: Mapping[str, Any]) -> str | None:
    """Returns the kind of a function's custom derivative rule, "jvp" or "vjp"; else None.

    JAX is about to write such functions as "hi" primitives (`jax_custom_vjp3`), which users can
    make themselves, too (`jax.experimental.hijax`).
    """
    if primitive.name in ("custom_jvp_call", "custom_vjp_call"):
        return primitive.name[7:10]
    hi = _own(params)
    if not hasattr(hi, "vjp_fwd"):
        return None
    if hasattr(hi, "bwd"):  # of `jax.custom_vjp`, with a forward mode that raises
        return "vjp"
    return "vjp" if hi.jvp.__qualname__ == "HiPrim.jvp" else "jvp"


def _own(params: Mapping[str, Any]) -> Any:
    """Returns the "hi" primitive that an equation calls, without the batches around it."""
    hi: Any = params.get("_prim")
    while hasattr(getattr(hi, "prim", None), "vjp_fwd"):  # before JAX 0.12
        hi = hi.prim
    return hi


def sees_symbolic_zeros(primitive: Any, params: Mapping[str, Any]) -> bool:
    """Returns whether an equation calls, in any depth, a rule that is told of zeros."""
    if own_rule(primitive, params) is not None:
        hi = _own(params)
        return bool(
            params.get("symbolic_zeros") if hi is None else getattr(hi, "symbolic_zeros", True)
        )
    eqns = (eqn for body in bodies(params) for eqn in body.eqns)
    return any(sees_symbolic_zeros(eqn.primitive, eqn.params) for eqn in eqns)


def function_source(params: Mapping[str, Any]) -> str | None:
    """Returns name, file and line of the function behind a call with a derivative rule."""
    hi = _own(params)
    body = params.get("call_jaxpr")
    if hi is not None:
        body = getattr(getattr(hi, "traced", None), "jaxpr", None)
    source = getattr(getattr(open_jaxpr(body), "debug_info", None), "func_src_info", None)
    return type(hi).__name__ if hi is not None and source is None else source


def is_ref(aval: Any) -> bool:
    """Whether a variable is a ref (`jax.new_ref`), which has contents instead of a value."""
    return isinstance(aval, jax.ref.AbstractRef)


def is_dropped(var: Any) -> bool:
    """Whether an equation's output variable is unused (printed as ``_``)."""
    return isinstance(var, core.DropVar)


_HERE = str(Path(__file__).parent)
"""Folder of this package, whose lines tell a user nothing."""


def source_line(eqn: Any) -> str:
    """Returns the user's file and line that made an equation, for errors; empty if unknown."""
    try:
        lines = source_info_util.summarize(eqn.source_info, _FRAMES).splitlines()
    except Exception:  # a missing summary must not hide the real error
        return "unknown source"
    return next((line for line in reversed(lines) if _HERE not in line), "")


def bind(primitive: Any, params: dict[str, Any], args: Any) -> list[Any]:
    """Applies a primitive with the parameters of a traced equation; always a list of results."""
    with jax.enable_checks(False):  # JAX's rule of `log_ndtr`, for one, fails them in jit
        out = primitive.bind(*args, **primitive.get_bind_params(params))
    return list(out) if primitive.multiple_results else [out]


def promoted(*dtypes: Any) -> Any:
    """Returns the dtype to which JAX promotes several by default, whatever the user's settings.

    Inside the engine values of several precisions meet where the user's program converts between
    them; what is said here is followed by an explicit conversion.
    """
    if all(dtype == dtypes[0] for dtype in dtypes[1:]):
        return jnp.dtype(dtypes[0])
    with jax.numpy_dtype_promotion("standard"):
        return jnp.result_type(*map(_promotable, dtypes))


def _promotable(dtype: Any) -> Any:
    """Returns a dtype, or bfloat16 for floats of 4 to 8 bits: it holds them all."""
    narrow = jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 16
    return jnp.bfloat16 if narrow else dtype


def as_weak_as(aval: Any, x: Any) -> Any:
    """Returns an array, weakly typed if a variable is: it gives way to any dtype it meets."""
    if not getattr(aval, "weak_type", False) or getattr(x, "weak_type", True):
        return x
    return lax.convert_element_type_p.bind(x, new_dtype=x.dtype, weak_type=True, sharding=None)


def generator(dtype: Any) -> Any:
    """Returns the generator of random numbers (with `random_bits`) of a key dtype."""
    return dtype._impl


def is_traced(value: Any) -> bool:
    """Whether a value stands for one that a compiled program will compute."""
    return isinstance(value, jax.core.Tracer)


def is_over(value: Any) -> bool:
    """Whether a value belongs to a trace that has ended."""
    trace = core.find_top_trace(()) if is_traced(value) else None
    while trace is not None and value._trace is not trace:
        trace = getattr(trace, "parent_trace", None)
    return is_traced(value) and trace is None


def has_lost(closed: Any) -> bool:
    """Whether a closed jaxpr has a constant, in any depth, of a trace that has ended."""
    inside = constants_within(eqn.params for eqn in open_jaxpr(closed).eqns)
    return any(map(is_over, (*getattr(closed, "consts", ()), *inside)))


def shape_of(x: Any) -> jax.ShapeDtypeStruct:
    """Returns shape, dtype, weakness and sharding of an array, without its values."""
    return abstract(jax.typeof(x))


def abstract(aval: Any) -> jax.ShapeDtypeStruct:
    """Returns shape, dtype and weakness of a variable, and in what it differs among devices."""
    varying = {k: getattr(aval, k) for k in ("manual_axis_type", "sharding") if variance_of(aval)}
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type, **varying)


def variance(x: Any) -> frozenset[Any]:
    """Returns the mesh axes along which an array differs, inside of `jax.shard_map`."""
    return variance_of(jax.typeof(x))


def variance_of(aval: Any) -> frozenset[Any]:
    """Returns the mesh axes along which a variable differs, inside of `jax.shard_map`."""
    axis_type = getattr(aval, "manual_axis_type", None)
    return getattr(aval, "vma", frozenset()) if axis_type is None else axis_type.varying


def vary_alike(args: Any) -> bool:
    """Returns whether arrays all differ along the same mesh axes, inside of `jax.shard_map`."""
    return len(set(map(variance, args))) <= 1


def is_export(ctx: Any) -> bool:
    """Whether a lowering is for `jax.export`."""
    parameters = getattr(ctx.module_context, "lowering_parameters", None)
    return bool(getattr(parameters, "for_export", False))


def is_partitioned(ctx: Any) -> bool:
    """Whether XLA divides what is lowered among several devices."""
    return getattr(ctx.module_context.axis_context, "num_devices", 1) > 1


def compilation_cache() -> tuple[str, float]:
    """Returns JAX's compilation cache folder and its size limit; empty without one.

    What is not on this machine's disk is none, too.
    """
    settings: Any = jax.config
    folder, most = settings.jax_compilation_cache_dir, settings.jax_compilation_cache_max_size
    if not folder or "://" in str(folder) or not settings.jax_enable_compilation_cache:
        return "", 0
    return str(folder), inf if most < 0 else most


def settings() -> dict[str, Any]:
    """Returns all settings of JAX as they are here, inside of context managers, too."""
    known: Any = jax.config.values
    return {name: getattr(jax.config, name, value) for name, value in known.items()}


def keep_alive(ctx: Any, value: Any) -> None:
    """Keeps an object alive as long as the program being lowered, or its executable."""
    add = getattr(ctx.module_context, "add_keepalive", None)
    if add is not None:
        add(value)


def same_variance(args: Any) -> list[Any]:
    """Makes arguments of one primitive vary along the same mesh axes, in `jax.shard_map`."""
    if vary_alike(args):
        return list(args)
    varying = [variance(x) for x in args]
    together = frozenset().union(*varying)
    return [_varying(x, together - v) for x, v in zip(args, varying, strict=True)]


def varying_as(x: Any, aval: Any) -> Any:
    """Makes an array differ along all mesh axes along which a variable does."""
    return _varying(x, variance_of(aval) - variance(x))


def _varying(x: Any, axes: frozenset[Any]) -> Any:
    return lax.pcast(x, tuple(axes), to="varying") if axes else x
