"""Runs traced programs with NumPy, equation by equation: nothing is compiled.

A program that a test runs once costs milliseconds so, where XLA takes a second to compile it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

ELEMENTWISE: dict[str, Callable[..., Any]] = {
    **{"add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply},
    **{"div": np.divide, "neg": np.negative, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos},
    **{"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal},
    **{"gt": np.greater, "ge": np.greater_equal, "and": np.bitwise_and, "or": np.bitwise_or},
    **{"not": np.bitwise_not, "max": np.maximum, "min": np.minimum, "exp": np.exp},
    **{"log": np.log, "tanh": np.tanh, "square": np.square, "copy": np.asarray},
    **{"rsqrt": lambda x: 1 / np.sqrt(x), "convert_element_type": np.asarray},
    **{"veenv_batch_barrier": np.asarray},
}
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


def _run(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[np.ndarray]:
    given = zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True)
    values = {variable: np.asarray(x) for variable, x in given}

    def value(atom: Any) -> np.ndarray:
        return np.asarray(atom.val) if hasattr(atom, "val") else values[atom]

    for equation in jaxpr.eqns:
        outs = _equation(equation, [value(atom) for atom in equation.invars])
        for variable, x in zip(equation.outvars, outs, strict=True):
            assert x.shape == variable.aval.shape, equation
            values[variable] = x.astype(variable.aval.dtype)
    return [value(atom) for atom in jaxpr.outvars]


def _equation(equation: Any, ins: list[np.ndarray]) -> Sequence[np.ndarray]:
    name, params = equation.primitive.name, equation.params
    inner = params.get("jaxpr") if name in ("jit", "pjit") else params.get("call_jaxpr")
    if inner is not None:
        return _run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), ins)
    if name == "optimization_barrier":
        return ins
    if name in ELEMENTWISE:
        return [np.asarray(ELEMENTWISE[name](*ins))]
    if name in REDUCED:
        return [np.asarray(REDUCED[name](ins[0], axis=tuple(params["axes"])))]
    if name == "split":
        return np.split(ins[0], np.cumsum(params["sizes"])[:-1], params["axis"])
    found = _moved(name, params, ins, equation.outvars[0].aval.shape)
    if found is not None:
        return [found]
    outs = equation.primitive.bind(*ins, **params)  # the few that are left, by JAX
    return [np.asarray(x) for x in (outs if equation.primitive.multiple_results else [outs])]


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
    return None


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
