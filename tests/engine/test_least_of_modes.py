"""JAX's own modes are not traced where they certainly lose: what they do at least."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.multiplications import count_multiplications
from veenv.engine import candidates, choose
from veenv.graph.linearisation import linearise
from veenv.graph.program import trace

pytestmark = pytest.mark.kernels

X = np.linspace(0.3, 1.2, 24).astype(np.float32)


def attracted(x):
    """Forces between bodies in the plane."""
    x = x.reshape(-1, 2)
    apart = x[:, None] - x[None]
    cubed = (jnp.sum(apart * apart, -1) + 0.1) ** -1.5
    return jnp.sum(apart * cubed[..., None], 1)


@jax.custom_jvp
def factored(x, y):
    return jnp.exp(x) * y


@factored.defjvp
def _(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    return factored(x, y), jnp.exp(x) * (dy + y * dx)


WIDE = np.random.default_rng(0).normal(size=(64, 24)).astype(np.float32)
FUNCTIONS = {
    "attracted": attracted,
    "stencil": lambda x: x * jnp.roll(x, 1) * jnp.roll(x, 2),
    "one_output": lambda x: jnp.sum(jnp.exp(-x * x)),
    "cumulative": lambda x: jnp.cumsum(x) * jnp.cumprod(x),
    "matrices": lambda x: x.reshape(4, 6) @ jnp.sin(x).reshape(6, 4),
    "sorted": lambda x: jnp.sort(x) * x,
    "softmax": lambda x: jax.nn.softmax(x) * x,
    "sum_of_scaled": lambda x: jnp.sum(2.5 * x[:, None] * x[None, :], 1),
    "transposed": lambda x: jnp.outer(x[:5], x[5:]).T,
    "where": lambda x: jnp.where(x > 0.5, x * x, jnp.sin(x)) * x,
    "cases": lambda x: jax.lax.select_n(jnp.int32(3 * x) % 12, *(x * k for k in range(12))) * x,
    "complex": lambda x: jnp.real(jnp.exp(jax.lax.complex(x, -x)) * jax.lax.complex(x, x)),
    "spectrum": lambda x: jnp.abs(jnp.fft.rfft(x)) ** 2 * x[:13],
    "own_rule": lambda x: factored(x, x * x),
    "linear_first": lambda x: jnp.sin(WIDE @ (WIDE.T @ (WIDE @ x))),
    "linear_last": lambda x: jnp.sum(WIDE * (WIDE @ jnp.sin(x))[:, None], 0),
    "taken_in_part": lambda x: jnp.sin(x[:, None] * x[None, :] * x[0])[0],
    "network": lambda x: jnp.tanh(WIDE @ jnp.tanh(x)),
}
NOT_KNOWN = {"taken_in_part"}
"""Functions of which nothing is counted."""


MORE = "div", "integer_pow", "pow", "select_n"
"""Primitives that multiply, besides products."""


def modes_of(fun, x):
    """JAX's own modes of a function that are compared with an elimination."""
    lin = linearise(trace(fun, (x,)))
    return list(candidates.other_modes(lin, "auto", 0, has_aux=False).values())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_mode_multiplies_less(name):
    found = modes_of(FUNCTIONS[name], X)
    assert found
    for mode in found:
        jaxpr = jax.make_jaxpr(lambda x, mode=mode: mode.run(x)[1])(X)
        done = count_multiplications(jaxpr, MORE, of_complex=4)
        assert mode.operations <= done
        assert (mode.operations == 0) == (name in NOT_KNOWN)


def test_modes_that_certainly_lose_are_not_traced(monkeypatch):
    def refused(self):
        assert not self.modes
        return iter(())

    monkeypatch.setattr(choose._Modes, "traced", refused)
    assert modes_of(attracted, np.tile(X, 3))
    jacobian = jax.jit(jax.vmap(veenv.jacve(attracted, kernel="xla")))
    points = np.stack([np.tile(X, 3), np.tile(X[::-1], 3) + np.repeat(X[:3], 24)])
    expected = jax.vmap(jax.jacrev(attracted))(points)
    assert veenv.tree_allclose(jacobian(points), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(AssertionError):  # a mode may be the faster one
        jax.jit(veenv.jacve(lambda x: jnp.tanh(jnp.roll(x, 1)) * x, kernel="xla"))(X)


def test_a_program_may_be_lowered_under_another_width_of_floats(monkeypatch):
    monkeypatch.setattr(choose, "kernel_size", lambda equations: 0)
    program = jax.jit(veenv.jacve(attracted)).trace(X)
    with jax.enable_x64(True):
        run = program.lower().compile()
    assert veenv.tree_allclose(run(X), jax.jacrev(attracted)(X), rtol=1e-3, atol=1e-3)
