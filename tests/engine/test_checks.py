"""Calls where JAX checks its own work (`jax_enable_checks`), as some users let it do always."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.scipy import special, stats

import veenv
from tests.engine.corpus.custom import doubled
from tests.oracles.jacobians import assert_same, quick_jit

X = np.array([0.3, 1.4, 0.8])
A = np.array([[2.0, 0.3, 0.1], [0.3, 3.0, 0.2], [0.1, 0.2, 1.5]])

FUNCTIONS = {
    "log_ndtr": special.log_ndtr,
    "logcdf": lambda x: stats.norm.logcdf(x * x) * x,
    "logsf": lambda x: stats.norm.logsf(jnp.sin(x)),
    "under vmap": lambda x: jax.vmap(special.log_ndtr)(x) * x,
    "activations": lambda x: jax.nn.gelu(x) + jax.nn.relu(x) + jax.nn.log_softmax(x),
    "cotangent rule": doubled,
}
SLOW = {
    "moves": lambda x: jnp.sort(x).at[1].multiply(x[2])[::-1] + jnp.cumsum(x),
    "logpdf": lambda x: stats.t.logpdf(x, 3.0) + stats.truncnorm.logpdf(x, 0.0, 2.0),
    "logsumexp": lambda x: special.logsumexp(jnp.outer(x, x), 0),
    "solve": lambda x: jnp.linalg.solve(A + jnp.diag(x), x),
    "cholesky": lambda x: jnp.linalg.cholesky(A + jnp.diag(x)),
    "scan": lambda x: lax.scan(lambda c, y: (jnp.tanh(c + y), c * doubled(y)), 0.0, x),
    "cond": lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
    "root": lambda x: lax.custom_root(
        lambda y: y**3 - x, x, _newton, lambda g, y: y / g(jnp.ones_like(y))
    ),
}


def _newton(f, y):
    return lax.fori_loop(0, 20, lambda _, y: y - f(y) / (3 * y**2 + 1e-3), y)


@pytest.fixture
def checks(x64):
    with jax.enable_checks(True):
        yield


@pytest.mark.usefixtures("checks")
@pytest.mark.parametrize(
    "name", [*FUNCTIONS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_checks_of_jax_pass(name):
    """Eagerly as JAX's modes do; in jit, too, where they fail at JAX's own rule of `log_ndtr`."""
    fun = {**FUNCTIONS, **SLOW}[name]
    expected = jax.jacrev(fun)(X)
    for order in "auto", "forward", "reverse":
        jacobian = veenv.jacve(fun, order)
        assert_same(jacobian(X), expected)
        assert_same(quick_jit(jacobian)(X), expected)
