"""Runs traced programs with NumPy, equation by equation: nothing is compiled.

A program that a test runs once costs milliseconds so, where XLA takes a second to compile it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

from veenv.rules import walk

ELEMENTWISE: dict[str, Callable[..., Any]] = {
    **{"add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply},
    **{"div": np.divide, "neg": np.negative, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos},
    **{"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal},
    **{"gt": np.greater, "ge": np.greater_equal, "and": np.bitwise_and, "or": np.bitwise_or},
    **{"not": np.bitwise_not, "max": np.maximum, "min": np.minimum, "exp": np.exp},
    **{"log": np.log, "tanh": np.tanh, "square": np.square, "copy": np.asarray},
    **{"rsqrt": lambda x: 1 / np.sqrt(x), "convert_element_type": np.asarray},
    **{"abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "rem": np.fmod},
    **{"exp2": np.exp2, "expm1": np.expm1, "log1p": np.log1p, "pow": np.power, "cbrt": np.cbrt},
    **{"tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan},
    **{"sinh": np.sinh, "cosh": np.cosh, "atan2": np.arctan2, "logistic": scipy.special.expit},
    **{"erf": scipy.special.erf, "is_finite": np.isfinite, "real": np.real, "imag": np.imag},
    **{"conj": np.conj, "complex": lambda x, y: _complex(x, y), "stop_gradient": np.asarray},
    **{"clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high)},
    **{"veenv_batch_barrier": np.asarray},
}
LONG = 100
"""Steps above which it takes less time to compile a loop."""
CALLS = "jit", "remat2"
REDUCED: dict[str, Callable[..., Any]] = {
    **{"reduce_sum": np.sum, "reduce_max": np.max, "reduce_min": np.min, "reduce_prod": np.prod},
    **{"reduce_or": np.any, "reduce_and": np.all},
}


def traced(fun: Callable[..., Any], *args: Any) -> Callable[..., Any]:
    """A function of JAX, traced at some arguments, as one of NumPy."""
    closed, shape = jax.make_jaxpr(fun, return_shape=True)(*args)
    tree = jax.tree.structure(shape)

    def call(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return jax.tree.unflatten(
                tree, _run(closed.jaxpr, closed.consts, jax.tree.leaves(args))
            )

    return call


def run(fun: Callable[..., Any], *args: Any) -> Any:
    """What a function of JAX gives, as arrays of NumPy."""
    return traced(fun, *args)(*args)


COMPILES = os.environ.get("HYPOTHESIS_PROFILE") in ("full", "long")
"""Whether `evaluated` is `jax.jit`, which decides more when it lowers a program."""


def evaluated(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A function in a trace, as `jax.jit` has it, whose program is run once: by NumPy.

    It is compiled where it calls the host, draws keys or is on several devices.
    """

    @functools.wraps(fun)
    def call(*args: Any, **more: Any) -> Any:
        leaves = jax.tree.leaves((args, more))
        if COMPILES or any(isinstance(x, jax.core.Tracer) for x in leaves):
            return (jax.jit(fun) if COMPILES else fun)(*args, **more)
        whole = lambda args, more: fun(*args, **more)  # noqa: E731
        closed, shape = jax.make_jaxpr(whole, return_shape=True)(args, more)
        equations = [*walk.every(closed)]
        known = [v.aval for e in equations for v in e.outvars] + closed.in_avals
        foreign = any(jax.dtypes.issubdtype(a.dtype, jax.dtypes.extended) for a in known)
        if foreign or closed.effects or any(e.primitive.name == "shard_map" for e in equations):
            return jax.jit(fun)(*args, **more)
        with np.errstate(all="ignore"):
            found = _run(closed.jaxpr, closed.consts, leaves)
        kept = [x if x.dtype == jax.dtypes.float0 else jnp.asarray(x) for x in found]
        return jax.tree.unflatten(jax.tree.structure(shape), kept)

    return call


def _complex(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The sum x + iy, whose parts may be infinite."""
    whole: Any = np.empty(np.broadcast_shapes(x.shape, y.shape), np.result_type(x, np.complex64))
    whole.real, whole.imag = x, y
    return whole


def _run(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[np.ndarray]:
    given = zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True)
    values = {variable: np.asarray(x) for variable, x in given}

    def value(atom: Any) -> np.ndarray:
        return np.asarray(atom.val) if hasattr(atom, "val") else values[atom]

    for equation in jaxpr.eqns:
        outs = _equation(equation, [value(atom) for atom in equation.invars])
        for variable, x in zip(equation.outvars, outs, strict=True):
            assert x.shape == variable.aval.shape, equation
            dtype = variable.aval.dtype
            real = x.dtype.kind == "c" and dtype.kind != "c"  # as JAX casts
            values[variable] = (np.real(x) if real else x).astype(dtype)
    return [value(atom) for atom in jaxpr.outvars]


def _equation(equation: Any, ins: list[np.ndarray]) -> Sequence[np.ndarray]:
    name, params = equation.primitive.name, equation.params
    inner = params.get("jaxpr") if name in CALLS else params.get("call_jaxpr")
    if branches := walk.branches_of(equation):
        inner, ins = branches[int(np.clip(ins[0], 0, len(branches) - 1))], ins[1:]
    if inner is not None:
        return _run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), ins)
    loop = walk.loop_of(equation)
    if loop is not None and (loop.length or 0) <= LONG:
        return _loop(loop, ins, [v.aval for v in equation.outvars])
    if name == "optimization_barrier":
        return ins
    if name in ELEMENTWISE:
        return [np.asarray(ELEMENTWISE[name](*ins))]
    if name in REDUCED:
        return [np.asarray(REDUCED[name](ins[0], axis=tuple(params["axes"])))]
    if name == "split":
        return np.split(ins[0], np.cumsum(params["sizes"])[:-1], params["axis"])
    if name == "unstack":
        return [*np.moveaxis(ins[0], params["axis"], 0)]
    found = _moved(name, params, ins, equation.outvars[0].aval.shape)
    if found is not None:
        return [found]
    outs = equation.primitive.bind(*map(jnp.asarray, ins), **params)  # the few left, by JAX
    return [np.asarray(x) for x in (outs if equation.primitive.multiple_results else [outs])]


def _loop(loop: walk.LoopParts, ins: Sequence[np.ndarray], outs: Sequence[Any]) -> list[np.ndarray]:
    tested, consts, carry, stacks = loop.split(ins)

    def call(closed: Any, *args: Any) -> list[np.ndarray]:
        return _run(closed.jaxpr, closed.consts, args)

    if loop.test is not None:
        while (goes_on := call(loop.test, *tested, *carry)[0]).any():  # each row for itself
            found = call(loop.body, *consts, *carry)
            shapes = [goes_on.shape + (1,) * (x.ndim - goes_on.ndim) for x in carry]
            pairs = zip(found, carry, shapes, strict=True)
            carry = [np.where(goes_on.reshape(shape), new, old) for new, old, shape in pairs]
        return carry
    made = [np.zeros(aval.shape, aval.dtype) for aval in outs[len(carry) :]]
    for turn in loop.turns:
        found = call(loop.body, *consts, *carry, *(x[turn] for x in stacks))
        carry = found[: len(carry)]
        for stack, row in zip(made, found[len(carry) :], strict=True):
            stack[turn] = row
    return [*carry, *made]


def _moved(
    name: str, params: Any, ins: list[np.ndarray], shape: tuple[int, ...]
) -> np.ndarray | None:
    x = ins[0] if ins else np.zeros(())
    match name:
        case "broadcast_in_dim":
            full = np.ones(len(shape), int)
            full[list(params["broadcast_dimensions"])] = x.shape
            return np.broadcast_to(x.reshape(full), shape)
        case "reshape" if params["dimensions"] is None:
            return x.reshape(shape)
        case "squeeze" | "expand_dims":
            return x.reshape(shape)
        case "transpose":
            return x.transpose(params["permutation"])
        case "rev":
            return np.flip(x, params["dimensions"])
        case "concatenate":
            return np.concatenate(ins, params["dimension"])
        case "stack":
            return np.stack(ins, params["axis"])
        case "slice":
            steps = params["strides"] or (1,) * x.ndim
            cut = zip(params["start_indices"], params["limit_indices"], steps, strict=True)
            return x[tuple(slice(*c) for c in cut)]
        case "pad":
            return _padded(x, ins[1], params["padding_config"], shape)
        case "cumsum":
            back = slice(None, None, -1 if params["reverse"] else 1)
            turned = np.moveaxis(x, params["axis"], 0)[back]
            return np.moveaxis(turned.cumsum(0)[back], 0, params["axis"])
        case "dynamic_slice":
            return x[_window(x.shape, ins[1:], shape)]
        case "dynamic_update_slice":
            result = x.copy()
            result[_window(x.shape, ins[2:], ins[1].shape)] = ins[1]
            return result
        case "iota":
            return np.indices(shape)[params["dimension"]]
        case "select_n":
            return np.choose(np.broadcast_to(x.astype(int), shape), ins[1:], mode="clip")
        case "integer_pow":
            return x ** params["y"]
        case "dot_general":
            return _dot(x, ins[1], *params["dimension_numbers"])
        case "gather" if x.size and ins[1].size:
            return _gathered(x, ins[1], params, shape)
    return None


def _gathered(x: np.ndarray, starts: np.ndarray, params: Any, shape: Sequence[int]) -> np.ndarray:
    numbers, sizes, own = params["dimension_numbers"], params["slice_sizes"], np.indices(shape)
    batch = [own[d] for d in range(len(shape)) if d not in numbers.offset_dims]
    gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    windows = iter(numbers.offset_dims)
    at = [np.zeros(shape, int) if d in gone else own[next(windows)] for d in range(x.ndim)]
    for d, k in zip(
        numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True
    ):
        at[d] = batch[k]
    there = np.ones(shape, bool)
    for k, d in enumerate(numbers.start_index_map):
        start, most = starts[(*batch, k)].astype(int), x.shape[d] - sizes[d]
        there &= (start >= 0) & (start <= most)
        at[d] = at[d] + np.clip(start, 0, most)
    found = x[tuple(at)]
    if params["fill_value"] is None or "FILL" not in str(params["mode"]):
        return found
    return np.where(there, found, np.asarray(params["fill_value"]).astype(x.dtype))


def _window(shape: Sequence[int], starts: Sequence[Any], sizes: Sequence[int]) -> Any:
    first = [
        min(max(int(at), 0), n - size) for n, at, size in zip(shape, starts, sizes, strict=True)
    ]
    return tuple(slice(at, at + size) for at, size in zip(first, sizes, strict=True))


def _padded(x: np.ndarray, fill: np.ndarray, config: Any, shape: tuple[int, ...]) -> np.ndarray:
    result, places = np.full(shape, fill[()]), []
    for size, wide, (low, _, gap) in zip(x.shape, shape, config, strict=True):
        at = low + (gap + 1) * np.arange(size)
        places.append((at, (at >= 0) & (at < wide)))
    inside = np.ix_(*(at[there] for at, there in places))
    result[inside] = x[np.ix_(*(there for _, there in places))]
    return result


def _dot(x: np.ndarray, y: np.ndarray, contracted: Any, batch: Any) -> np.ndarray:
    left, right = [*range(x.ndim)], [*range(x.ndim, x.ndim + y.ndim)]
    for numbers in (contracted, batch):
        for m, n in zip(*numbers, strict=True):
            right[n] = m
    own = [m for m in left if m not in (*contracted[0], *batch[0])]
    other = [n for n in right if n >= x.ndim]
    return np.einsum(x, left, y, right, [*batch[0], *own, *other])
