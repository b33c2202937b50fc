"""Functions of which JAX has one mode only, as those see that trace the other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import assert_same

pytestmark = pytest.mark.kernels

POINT = np.array([2.0, 3.0], np.float32), np.array([0.3, 0.4, 0.5], np.float32)


def solver_of_ones_own(p, q):
    """A root whose linear systems are solved by a loop of unknown length."""

    def damped(g, y):
        return jax.lax.while_loop(
            lambda c: c[1] < 60, lambda c: (c[0] + 0.1 * (y - g(c[0])), c[1] + 1), (y, 0)
        )[0]

    def solve(f, x):
        return jax.lax.fori_loop(0, 30, lambda _, x: x - 0.2 * f(x), x)

    return jax.lax.custom_root(lambda u: p[0] * u + u**3 - q, jnp.zeros_like(q), solve, damped)


@jax.custom_batching.custom_vmap
def batched_by_hand(x):
    return jnp.sin(x)


@batched_by_hand.def_vmap
def _(_, in_batched, x):
    return jnp.sin(x), in_batched[0]


FUNCTIONS = {
    "custom_root": solver_of_ones_own,
    "custom_vmap": lambda p, q: batched_by_hand(q) * p[0] + jnp.linalg.inv(jnp.diag(q)) @ q,
}


@pytest.mark.parametrize("options", [{}, {"order": "auto"}, {"order": "auto", "kernel": "auto"}])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_mode_is_not_compared(name, options):
    fun = FUNCTIONS[name]
    with pytest.raises(ValueError, match=r"Reverse-mode|Linearization failed"):
        jax.jacrev(fun, argnums=(0, 1))(*POINT)
    jacobian = jax.jit(veenv.jacve(fun, argnums=(0, 1), **options))(*POINT)
    assert_same(jacobian, jax.jacfwd(fun, argnums=(0, 1))(*POINT), tol=1e-5)
