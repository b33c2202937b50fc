"""What is known of a program when it is traced."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from veenv.engine.known import Known
from veenv.graph.program import trace

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
