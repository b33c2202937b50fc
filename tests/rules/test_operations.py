"""Scalar operations: what one record says is what every backend computes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.oracles.scalar_program import run
from veenv.kernel.fusing import fuse, trace_point
from veenv.rules import operations

POINT = np.array([0.31, 0.74, 0.93, 0.52], np.float32)
WHOLE = np.array([7, -3, 2, 1], np.int32)


def values(fun, *args):
    """What NumPy and LLVM compute."""
    program = trace_point(fun, args, {}, range(len(args))).program()
    batch = [np.stack([x, x]) for x in args]
    return [run(program, *args)[0], np.asarray(jax.vmap(fuse(fun))(*batch))[1]]


@pytest.mark.parametrize("name", [op.name for op in operations.OPERATIONS.values() if op.function])
def test_functions(name):
    function = getattr(lax, name, None)
    if function is None:
        pytest.skip("not a primitive of this version of JAX")
    count = operations.OPERATIONS[name].c.count("{") - 1  # and the suffix
    args = [POINT + (name == "acosh"), POINT[::-1].copy()][:count]
    for found in values(function, *args):
        np.testing.assert_allclose(found, function(*args), rtol=1e-5, atol=1e-6)


OF_WHOLE = "add sub mul div rem max min eq ne lt le gt ge and or xor".split()
OF_BOOLS = "and or xor not eq lt max".split()


@pytest.mark.parametrize(
    ("name", "bools"), [*((n, False) for n in OF_WHOLE), *((n, True) for n in OF_BOOLS)]
)
def test_operations_of_integers_and_bools(name, bools):
    function = getattr(lax, name, None) or getattr(lax, f"bitwise_{name}")

    def fun(x, y):
        if not bools:
            return function(x, y)
        return jnp.where(function(x > 2) if name == "not" else function(x > 2, y > 2), x, y)

    for found in values(fun, WHOLE, WHOLE[::-1].copy()):
        np.testing.assert_array_equal(found, fun(WHOLE, WHOLE[::-1]))


def test_sums_of_products_of_bools():
    def fun(x, y):
        return jnp.where(jnp.dot(x > 0, y > 0), 1.0, 2.0)

    for found in values(fun, POINT, POINT):
        np.testing.assert_array_equal(found, 1.0)
