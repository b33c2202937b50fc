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
