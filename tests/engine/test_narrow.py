"""Floats of 4 and 8 bits, which JAX promotes to nothing, between others."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import veenv
from tests.oracles.jacobians import assert_same
from tests.sampling import spared

NARROW = [n for n in dir(jnp) if n.startswith(("float8_e3", "float8_e4", "float8_e5", "int4"))]
"""Others, of 4 bits or without zero, make NaN of JAX's own cotangents."""
X = jnp.array([0.5, 0.75, 1.5])


def cast(x: Any, dtype: Any) -> Any:
    return x.astype(dtype).astype(x.dtype)


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "product": lambda x, d: cast(x, d) * x,
    "within a function": lambda x, d: jnp.sin(cast(2 * x, d)),
    "by bfloat16": lambda x, d: (cast(x.astype(jnp.bfloat16), d) * 2).astype(x.dtype) * x,
    "sum": lambda x, d: cast(x, d).sum() * x + cast(x, jnp.bfloat16),
    "matrix": lambda x, d: jnp.outer(x, x) @ cast(x, d),
    "loop": lambda x, d: jax.lax.fori_loop(0, 2, lambda _, c: jnp.sin(cast(c, d) * c), x),
    "result": lambda x, d: (x * x).astype(d if jnp.issubdtype(d, jnp.floating) else x.dtype),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    spared(itertools.product(PROGRAMS, NARROW), ("product", "float8_e4m3fn"),
        ("loop", "float8_e4m3fn"), ("sum", "int4"), ("by bfloat16", "float8_e4m3fn"),
        ("result", "float8_e5m2")),
)  # fmt: skip
def test_jacobians(name: str, dtype: str, precision: str):
    """In every order they are JAX's, to rounding in the narrow dtype."""
    fun = lambda x: PROGRAMS[name](x, jnp.dtype(dtype))  # noqa: E731
    x = X.astype(precision)
    wanted = jax.jacrev(fun)(x)
    ours = [veenv.jacve(fun, order) for order in ("reverse", "forward")]
    for jacobian in (*ours, jax.jit(veenv.jacve(fun))):
        assert_same(jacobian(x), wanted, 0.15, atol=0.1)
