"""Jacobians of Equinox modules, and comparisons of trees."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import assert_same


@pytest.fixture
def mlp():
    return eqx.nn.MLP(3, 2, width_size=4, depth=2, activation=jnp.tanh, key=jax.random.key(0))


@pytest.mark.kernels
@pytest.mark.parametrize("kernel", ["auto", "xla", "fused"])
def test_filter_jacve_as_one_kernel(mlp, kernel):
    x = jnp.array([0.3, -0.2, 0.9])

    def run(model, x):
        return model(x)

    jacobian = eqx.filter_jit(veenv.filter_jacve(run, kernel=kernel))
    assert ("veenv_fused" in jacobian.lower(mlp, x).as_text()) == (kernel != "xla")
    expected = eqx.filter_jacrev(run)(mlp, x)
    trees = [eqx.filter(tree, eqx.is_array) for tree in (jacobian(mlp, x), expected)]
    assert_same(*trees, 1e-5, atol=1e-6)


def test_filter_jacve_passes_aux_and_counts(mlp):
    x = jnp.ones(3)

    def run(model, x):
        y = model(x)
        return y, y.sum()

    jacobian, aux, counts = veenv.filter_jacve(run, has_aux=True, count_ops=True)(mlp, x)
    np.testing.assert_allclose(aux, mlp(x).sum(), rtol=1e-6)
    assert counts.multiplications > 0
    assert jacobian.layers[0].weight.shape == (2, 4, 3)


def test_tree_allclose():
    assert veenv.tree_allclose({"a": 1.0}, {"a": 1.0 + 1e-9})
    assert not veenv.tree_allclose({"a": 1.0}, {"b": 1.0})
    assert not veenv.tree_allclose({"a": jnp.ones(2)}, {"a": jnp.ones((2, 1))})
    assert not veenv.tree_allclose({"a": 1.0}, {"a": 1.1})
    assert veenv.tree_allclose((), ())
    assert veenv.tree_allclose([jnp.zeros((0, 2)), 3], [jnp.zeros((0, 2)), 3])
    assert not veenv.tree_allclose([3], [4])
    assert not veenv.tree_allclose(jnp.array([jnp.nan, jnp.inf]), jnp.array([1.0, jnp.inf]))


def test_correct_jacobians_are_close_and_wrong_entries_are_not():
    task = veenv.tasks.get("RoeFlux_1d")
    modes = (jax.jacfwd, jax.jacrev, lambda f, i: veenv.jacve(f, "reverse", argnums=i))
    with jax.enable_x64(False):
        calls = [jax.jit(mode(task.fun, task.argnums)) for mode in modes]
        for nearly in (1.0, 1.003, 0.97, 1.05):
            point = [jnp.float32(nearly**k * x) for k, x in enumerate(task.example_args())]
            forward, reverse, ours = (call(*point) for call in calls)
            assert veenv.tree_allclose(forward, reverse)
            assert veenv.tree_allclose(ours, reverse)
        leaves, tree = jax.tree.flatten(reverse)
        size = max(abs(float(leaf)) for leaf in leaves)
        large = [k for k, leaf in enumerate(leaves) if abs(float(leaf)) > 1e-3 * size]
        for k in large:
            wrong = jax.tree.unflatten(
                tree, [x * 1.01 if i == k else x for i, x in enumerate(leaves)]
            )
            assert not veenv.tree_allclose(wrong, reverse)
        assert len(large) > 10
