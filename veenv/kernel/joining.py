"""A product and a sum in one instruction of a GPU: XLA compiles those of Triton apart."""

from __future__ import annotations

from typing import Any

import jax
from jax.extend import core
from jax.extend.mlir.dialects import math
from jax.interpreters import mlir

from veenv._compat import lower_in_triton
from veenv.kernel.expansions import negative

multiply_add_p = core.Primitive("veenv_multiply_add")


def multiply_add(x: jax.Array, y: jax.Array, z: jax.Array, name: str, at: int) -> jax.Array:
    """The operation `name`, add or sub, of ``x * y`` as argument `at` and of z as the other."""
    if name == "sub":
        x, z = (negative(x), z) if at else (x, negative(z))
    return multiply_add_p.bind(x, y, z) if _JOINS else _rounded(x, y, z)


def _rounded(x: Any, y: Any, z: Any) -> Any:
    """In two instructions, where kernels are interpreted."""
    return x * y + z


multiply_add_p.def_impl(_rounded)
multiply_add_p.def_abstract_eval(lambda x, *_: x)
mlir.register_lowering(multiply_add_p, mlir.lower_fun(_rounded, multiple_results=False))
_JOINS = lower_in_triton(multiply_add_p, lambda _, x, y, z: math.fma(x, y, z))
