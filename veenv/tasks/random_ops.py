"""The equations from which random functions are made: each is one equation of a jaxpr.

An operation knows itself three times: in JAX, in NumPy (to follow the values while a function is
made) and by its partial derivatives (to reject equations whose derivatives vanish or explode).
"""

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import lax

Values: TypeAlias = tuple[np.ndarray, ...]
Axes: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class RandomOp:
    """One kind of equation: its function in JAX, the same in NumPy, its partial derivatives.

    Attributes:
      run: the JAX function of the operands and the instruction's constant.
      value: the same in NumPy.
      partials: partial derivatives as an array for each operand; None for structural operations
        and products, whose partials are values that are checked anyway.
    """

    run: Callable[..., Any]
    value: Callable[..., np.ndarray]
    partials: Callable[..., Values] | None = None


def _logistic(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def _dot_value(a: np.ndarray, b: np.ndarray, axes: Axes) -> np.ndarray:
    return np.tensordot(a, b, axes)


def _dot_run(a: Any, b: Any, axes: Axes) -> Any:
    return lax.dot_general(a, b, ((axes[0], axes[1]), ((), ())))


def _expand_run(x: Any, size: int) -> Any:
    return lax.broadcast_in_dim(x, (size, *x.shape), tuple(range(1, x.ndim + 1)))


UNARY: Mapping[str, RandomOp] = MappingProxyType(
    {
        "sin": RandomOp(lambda x, _: lax.sin(x), lambda x, _: np.sin(x), lambda x, _: (np.cos(x),)),
        "cos": RandomOp(
            lambda x, _: lax.cos(x), lambda x, _: np.cos(x), lambda x, _: (-np.sin(x),)
        ),
        "exp": RandomOp(lambda x, _: lax.exp(x), lambda x, _: np.exp(x), lambda x, _: (np.exp(x),)),
        "log": RandomOp(lambda x, _: lax.log(x), lambda x, _: np.log(x), lambda x, _: (1 / x,)),
        "sqrt": RandomOp(
            lambda x, _: lax.sqrt(x), lambda x, _: np.sqrt(x), lambda x, _: (0.5 / np.sqrt(x),)
        ),
        "tanh": RandomOp(
            lambda x, _: lax.tanh(x), lambda x, _: np.tanh(x), lambda x, _: (1 - np.tanh(x) ** 2,)
        ),
        "logistic": RandomOp(
            lambda x, _: lax.logistic(x),
            lambda x, _: _logistic(x),
            lambda x, _: (_logistic(x) * (1 - _logistic(x)),),
        ),
        "square": RandomOp(
            lambda x, _: lax.integer_pow(x, 2), lambda x, _: x**2, lambda x, _: (2 * x,)
        ),
        "neg": RandomOp(lambda x, _: lax.neg(x), lambda x, _: -x),
        "scale": RandomOp(lambda x, c: jnp.multiply(x, c), lambda x, c: x * c),
        "shift": RandomOp(lambda x, c: jnp.add(x, c), lambda x, c: x + c),
    }
)

BINARY: Mapping[str, RandomOp] = MappingProxyType(
    {
        "add": RandomOp(lambda a, b, _: lax.add(a, b), lambda a, b, _: a + b),
        "sub": RandomOp(lambda a, b, _: lax.sub(a, b), lambda a, b, _: a - b),
        "mul": RandomOp(lambda a, b, _: lax.mul(a, b), lambda a, b, _: a * b),
        "div": RandomOp(
            lambda a, b, _: lax.div(a, b),
            lambda a, b, _: a / b,
            lambda a, b, _: (1 / b, -a / b**2),
        ),
        "atan2": RandomOp(
            lambda a, b, _: lax.atan2(a, b),
            lambda a, b, _: np.arctan2(a, b),
            lambda a, b, _: (b / (a**2 + b**2), -a / (a**2 + b**2)),
        ),
    }
)

# The constant: the axes contracted, the axis summed, reversed or joined, a size, a permutation.
ARRAY: Mapping[str, RandomOp] = MappingProxyType(
    {
        "dot": RandomOp(_dot_run, _dot_value),
        "sum": RandomOp(
            lambda x, axis: jnp.sum(x, axis=axis), lambda x, axis: np.sum(x, axis=axis)
        ),
        "expand": RandomOp(_expand_run, lambda x, n: np.broadcast_to(x, (n, *x.shape)).copy()),
        "transpose": RandomOp(lambda x, p: lax.transpose(x, p), lambda x, p: np.transpose(x, p)),
        "flatten": RandomOp(
            lambda x, _: lax.reshape(x, (x.size,)), lambda x, _: np.reshape(x, (x.size,))
        ),
        "reverse": RandomOp(
            lambda x, axis: lax.rev(x, (axis,)), lambda x, axis: np.flip(x, axis).copy()
        ),
        "concatenate": RandomOp(
            lambda a, b, axis: lax.concatenate((a, b), axis),
            lambda a, b, axis: np.concatenate((a, b), axis),
        ),
        "slice": RandomOp(lambda x, n: lax.slice_in_dim(x, 0, n), lambda x, n: np.asarray(x[:n])),
    }
)

OPERATIONS: Mapping[str, RandomOp] = MappingProxyType({**UNARY, **BINARY, **ARRAY})
