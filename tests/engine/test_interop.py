"""The entry points for users of Equinox and graphax."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.sampling import spared


@pytest.fixture
def mlp():
    return eqx.nn.MLP(3, 2, width_size=4, depth=2, activation=jnp.tanh, key=jax.random.key(0))


@pytest.mark.parametrize("order", spared(["forward", "reverse", "markowitz"], "markowitz"))
def test_filter_jacve_of_an_equinox_mlp(mlp, order):
    x = jnp.array([0.3, -0.2, 0.9])

    def run(model, x):
        return model(x)

    @eqx.filter_jit
    def both(model, x):
        return eqx.filter_jacrev(run)(model, x), veenv.filter_jacve(run, order)(model, x)

    expected, found = both(mlp, x)
    assert jax.tree.structure(eqx.filter(found, eqx.is_array)) == jax.tree.structure(
        eqx.filter(expected, eqx.is_array)
    )
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert veenv.eqx_jacve is veenv.filter_jacve


@pytest.mark.kernels
@pytest.mark.parametrize("kernel", ["auto", "xla", "fused"])
def test_filter_jacve_as_one_kernel(mlp, kernel):
    x = jnp.array([0.3, -0.2, 0.9])

    def run(model, x):
        return model(x)

    jacobian = eqx.filter_jit(veenv.filter_jacve(run, kernel=kernel))
    assert ("veenv_fused" in jacobian.lower(mlp, x).as_text()) == (kernel != "xla")
    expected = eqx.filter_jacrev(run)(mlp, x)
    for a, b in zip(jax.tree.leaves(jacobian(mlp, x)), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_filter_jacve_passes_aux_and_counts(mlp):
    x = jnp.ones(3)

    def run(model, x):
        y = model(x)
        return y, y.sum()

    jacobian, aux, counts = veenv.filter_jacve(run, has_aux=True, count_ops=True)(mlp, x)
    np.testing.assert_allclose(aux, mlp(x).sum(), rtol=1e-6)
    assert counts.multiplications > 0
    assert jacobian.layers[0].weight.shape == (2, 4, 3)


def test_vertex_elimination_jaxpr():
    scale = jnp.array([1.0, 2.0])

    def f(x, y):
        return scale * x * jnp.sin(y), x.sum()

    args = (jnp.array([0.5, 1.5]), jnp.array([0.2, 0.4]))
    closed = jax.make_jaxpr(f)(*args)
    expected = jax.jacrev(f, argnums=(0, 1))(*args)
    for jaxpr, consts in ((closed, ()), (closed.jaxpr, closed.consts)):
        found = veenv.vertex_elimination_jaxpr(jaxpr, "reverse", consts, *args)
        assert veenv.tree_allclose(list(found), list(expected))
    one, counts = veenv.vertex_elimination_jaxpr(
        closed, "reverse", (), *args, argnums=(1,), count_ops=True
    )
    assert veenv.tree_allclose(one, [(expected[0][1],), (expected[1][1],)])
    assert counts.executed >= 0


def test_tree_allclose():
    assert veenv.tree_allclose({"a": 1.0}, {"a": 1.0 + 1e-9})
    assert not veenv.tree_allclose({"a": 1.0}, {"b": 1.0})
    assert not veenv.tree_allclose({"a": jnp.ones(2)}, {"a": jnp.ones((2, 1))})
    assert not veenv.tree_allclose({"a": 1.0}, {"a": 1.1})
