"""Values that are expensive are not computed again, and what is stored changes no result."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import assert_compiled_same
from tests.sampling import spared

X = np.linspace(0.3, 1.2, 6)


def stencil(x):
    """Cheap operations only."""
    u, v = x
    ring = jnp.roll(u, 1) - 2.0 * u + jnp.roll(u, -1)
    return jnp.stack([u * u * v + 0.5 * ring, 3.0 * u - u * u * v])


def deep(x):
    """A chain of sines whose derivative scales a whole matrix."""
    y = x
    for _ in range(3):
        y = jnp.sin(y) * y
    return jnp.outer(y, y)


DEEP = veenv.jacve(deep, "forward", kernel="xla")


@pytest.mark.parametrize("fun", [stencil, deep])
def test_they_change_no_value(x64, fun):
    x = np.stack([X, X + 1.0]) if fun is stencil else X
    ways = [veenv.jacve(fun, pin=pin) for pin in ("auto", True, False)]
    assert_compiled_same([(way, jax.jacrev(fun)) for way in ways], x, tol=1e-12)
    points = np.linspace(0.2, 1.4, 2 * 300 * x.size).reshape(2, 300, *x.shape)
    pair = veenv.jacve(fun, "forward", kernel="xla"), jax.jacrev(fun)
    assert_compiled_same([[jax.vmap(jax.vmap(f)) for f in pair]], points, tol=1e-12)
    with pytest.raises(ValueError, match='pin must be "auto", True or False'):
        veenv.jacve(fun, pin="never")


@pytest.mark.usefixtures("optimised")
def test_a_dense_sum_that_is_an_output_is_written_once():
    x = jnp.asarray(np.stack([X, X + 1.0])[None] * np.ones((50, 1, 1)), jnp.float32)
    compiled = jax.jit(jax.vmap(veenv.jacve(stencil))).lower(x).compile()
    memory = compiled.memory_analysis()
    assert memory.temp_size_in_bytes < 0.1 * memory.output_size_in_bytes


@pytest.mark.parametrize("options", [{"pin": False}, {"kernel": "fused"}], ids=str)
def test_a_jacobian_within_the_function(options):
    slope = veenv.jacve(lambda x: jnp.sin(x) * jnp.exp(jnp.sin(x)), pin=True)
    order = veenv.make_graph(slope)(0.5).reverse()
    got = jax.jit(veenv.jacve(slope, order, **options))(0.5)
    np.testing.assert_allclose(got, jax.jacrev(slope)(0.5), rtol=1e-5)


@pytest.mark.skipif(jax.__version_info__ < (0, 12), reason="XLA drops barriers ahead of fusion")
@pytest.mark.usefixtures("optimised")
def test_no_sine_of_a_chain_is_computed_twice():
    def sines(pin, length=6):
        def chain(x):
            for _ in range(length):
                x = jnp.sin(x) * jnp.roll(x, 1)
            return x

        jacobian = jax.jit(veenv.jacve(chain, "reverse", kernel="xla", pin=pin))
        return jacobian.lower(jnp.ones(32)).compile().cost_analysis()["transcendentals"]

    assert sines("auto") <= 2 * 32 * 6 < sines(False)  # a sine and a cosine a step


def test_a_program_is_the_same_each_time():
    first, again = (repr(jax.make_jaxpr(veenv.jacve(deep, "forward"))(X)) for _ in range(2))
    assert first == again


SECOND = {
    "grad": jax.grad, "jacfwd": jax.jacfwd, "jacve": veenv.jacve,
    "linear_transpose": lambda f: lambda x: jax.linear_transpose(jax.linearize(f, x)[1], x)(1.0)[0],
}  # fmt: skip


@pytest.mark.parametrize("derivative", spared(SECOND, "grad", "jacve"))
def test_derivatives_of_a_jacobian(x64, derivative):
    pair = [
        SECOND[derivative](lambda x, j=jacobian: jnp.sum(jnp.sin(j(x))))
        for jacobian in (DEEP, jax.jacrev(deep))
    ]
    assert_compiled_same([pair], X, tol=1e-10)
    many = np.linspace(0.2, 1.4, 6 * 80).reshape(80, 6)
    assert_compiled_same([[jax.vmap(f) for f in pair]], many, tol=1e-10)
