"""JAX's own modes as kernels, where the elimination is too long for one or computes more."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import assert_compiled_same

pytestmark = pytest.mark.kernels
RNG = np.random.default_rng(3)
STOICHIOMETRY = RNG.integers(-1, 2, (8, 14)).astype(float)
POWERS = RNG.integers(0, 2, (14, 8)).astype(float)


def rosenbrock(y, k):
    """Three stages of an implicit step of eight species."""

    def rates(y):
        return STOICHIOMETRY @ (k * jnp.exp(POWERS @ jnp.log(y)))

    system = jnp.eye(8) - 0.003 * jax.jacfwd(rates)(y)
    first = jnp.linalg.solve(system, rates(y))
    second = jnp.linalg.solve(system, rates(y + 0.01 * first) - 2 * first)
    return y + 0.01 * (first + second)


def network(weights, y):
    """Five steps of Heun's method of a network of two layers."""

    def slope(y):
        for w, b in weights[:-1]:
            y = jnp.tanh(w @ y + b)
        return weights[-1][0] @ y

    def step(y, _):
        first = slope(y)
        return y + 0.05 * (first + slope(y + 0.1 * first)), None

    return jax.lax.scan(step, y, None, length=5)[0]


def layers(*sizes):
    return [(RNG.normal(size=(n, m)), RNG.normal(size=n)) for m, n in itertools.pairwise(sizes)]


def sums(x, y):
    """Elements of a mesh, each of which is a product of small matrices."""
    a = jnp.sin(x.reshape(12, 2, 3) @ y)
    return jnp.sum(a @ jnp.tanh(a).transpose(0, 2, 1), 0)


FUNCTIONS = {
    "rosenbrock": (rosenbrock, (RNG.uniform(0.3, 1, 8), RNG.uniform(0.3, 1, 14)), 0),
    "deep": (network, (layers(3, 6, 6, 6, 3), RNG.normal(size=3)), (0, 1)),
    "mesh": (sums, (RNG.normal(size=72), RNG.normal(size=(3, 3))), 1),
}


def near(args):
    return jax.tree.map(lambda x: np.stack([x, x * 1.1, x * 0.9]), args)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_they_are_one_kernel_and_exact(x64, name):
    fun, args, argnums = FUNCTIONS[name]
    jacobian = jax.vmap(veenv.jacve(fun, argnums=argnums))
    assert "veenv_fused" in jax.jit(jacobian).lower(*near(args)).as_text()
    assert_compiled_same([(jacobian, jax.vmap(jax.jacrev(fun, argnums)))], *near(args))
