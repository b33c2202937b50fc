"""What is known of a program when it is traced."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from veenv.engine.known import Known
from veenv.graph.program import trace


@pytest.mark.parametrize(
    ("dtype", "shape", "axis"),
    [("int32", (3, 4), 0), ("uint8", (2, 3, 4), 1), ("int32", (3, 0), 1), ("float32", (3,), 0)],
)
def test_counting(dtype, shape, axis):
    expected = lax.broadcasted_iota(dtype, shape, axis)
    fun = lambda x: lax.broadcasted_iota(dtype, shape, axis).astype(x.dtype) * x  # noqa: E731
    program = trace(fun, (jnp.ones(shape),))
    iota = next(e for e in program.equations if e.primitive.name == "iota")
    found = Known(program)(iota.outputs[0])
    assert found is not None
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_masks_of_triangles_and_diagonals_are_known_without_compiling(monkeypatch):
    monkeypatch.setattr("veenv._compat.bind", None)
    program = trace(lambda x: jnp.tril(x) + jnp.diag(x[0]), (jnp.ones((3, 3)),))
    selects = [e for e in program.equations if e.primitive.name == "select_n"]
    masks = [Known(program).quickly(e.inputs[0]) for e in selects]
    np.testing.assert_array_equal(masks, [np.tri(3), np.eye(3)])


FLOATS = ["float32", "bfloat16"]
NUMBERS = [0.0, 1.0, -1.5, 300.7, 16777217.0, 3e9, np.inf, np.nan, 1e-40]


@pytest.mark.parametrize("given", ["bool", "int32", "uint8", *FLOATS])
@pytest.mark.parametrize("wanted", ["bool", "int8", "float32", "bfloat16", "complex64"])
def test_conversions_are_those_of_jax(given, wanted, monkeypatch):
    """NumPy does those in which it rounds as JAX does, without compiling anything."""
    values = jnp.asarray(NUMBERS if given in FLOATS else [0, 1, 2, 200, 255]).astype(given)
    expected = np.asarray(lax.convert_element_type(values, wanted))
    program = trace(lambda x: (x, lax.convert_element_type(values, wanted)), (1.0,))
    if not ("bfloat16" in (given, wanted) or (given in FLOATS and wanted in ("bool", "int8"))):
        monkeypatch.setattr("veenv._compat.bind", None)
    found = Known(program)(program.outputs[1])
    assert found.dtype == expected.dtype
    wide = "complex64" if wanted == "bfloat16" else wanted
    np.testing.assert_array_equal(found.astype(wide), expected.astype(wide))
