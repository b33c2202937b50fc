"""A barrier is the identity in each of its forms: JAX's own, and the branch for older versions."""

import jax
import numpy as np
import pytest

from veenv._compat import barrier

VALUES = {
    "floats": np.array([[np.nan, -0.0, np.inf], [1e-45, -1.5, 3e38]], np.float32),
    "doubles": np.array([-np.inf, 5e-324]),
    "long": np.array([-1, 2**63 - 1]),
    "words": np.array([2**32 - 1, 0], np.uint32),
    "bits": np.array([True, False]),
    "number": np.int32(-1),
    "empty": np.zeros((0, 3), np.float32),
}


def assert_same_bits(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


@pytest.fixture(params=["quick", "optimised"])
def form(request):
    if request.param == "optimised":
        request.getfixturevalue("optimised")
    return jax.jit(lambda tree: barrier(tree))  # of its own, which no other setting has traced


@pytest.mark.parametrize("first", VALUES)
def test_every_value_comes_back(form, first, x64):
    """The branch is chosen by the bits of the first array."""
    tree = VALUES[first], {"floats": VALUES["floats"], "bits": VALUES["bits"]}
    assert_same_bits(form(tree), tree)
    assert form([]) == []


def test_of_a_batch_only_what_varies_has_an_axis(form):
    x, y = np.arange(6, dtype=np.float32).reshape(3, 2), np.arange(4, dtype=np.int32)
    for tree in ((x, y), (y, x)):
        axes = tuple(0 if leaf is x else None for leaf in tree)
        found = jax.jit(jax.vmap(lambda *leaves: form(leaves), axes, axes))(*tree)
        assert_same_bits(found, tree)
