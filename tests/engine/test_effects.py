"""Functions that do more than compute: callbacks with and without results, checks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import checkify, io_callback

import veenv

X = jnp.array([0.3, 0.7, 1.1])
seen = []


def note(*values):
    seen.append(values)


def of_used(x):
    y = jnp.sin(x)
    jax.debug.callback(note, y)
    return y


def ordered(x):
    y = jnp.sin(x)
    jax.debug.callback(note, y, ordered=True)
    return 2 * y


def of_constants(x):
    jax.debug.callback(note, jnp.arange(3))
    return jnp.sin(x) * x


def without_result(x):
    io_callback(lambda x: note(x), None, lax.stop_gradient(x), ordered=True)
    return jnp.sin(x)


def with_result(x):
    def two():
        note()
        return np.float32(2)

    return jnp.sin(x) * io_callback(two, jax.ShapeDtypeStruct((), jnp.float32))


def of_unused(x):
    jax.debug.callback(note, 2 * x)
    return jnp.sin(x) * x


def in_jit(x):
    return jax.jit(of_used)(x) * x


@pytest.mark.parametrize("order", ["forward", "reverse", "markowitz", "auto"])
@pytest.mark.parametrize(
    "f", [of_used, ordered, of_constants, without_result, with_result, of_unused, in_jit]
)
def test_effects_happen_once(f, order):
    expected = jax.jacrev(f)(X)
    jacobian = veenv.jacve(f, order)
    for run in (jacobian, jax.jit(jacobian)):
        jax.effects_barrier()
        seen.clear()
        np.testing.assert_allclose(run(X), expected, rtol=1e-6)
        jax.effects_barrier()
        assert len(seen) == 1


@pytest.mark.parametrize("f", [of_used, of_unused])
def test_in_other_calls(f):
    def total(x):
        return f(x).sum()

    expected = jax.hessian(total)(X)
    np.testing.assert_allclose(jax.jit(veenv.hessian(total))(X), expected, atol=1e-6)
    np.testing.assert_allclose(jax.jit(veenv.laplacian(total))(X), jnp.trace(expected), rtol=1e-5)
    value, slopes = jax.jit(veenv.value_and_jacve(f))(X)
    np.testing.assert_allclose(value, f(X), rtol=1e-6)
    both = jnp.stack([X, 2 * X])
    batched = jax.jit(jax.vmap(veenv.jacve(f)))(both)
    np.testing.assert_allclose(batched, jax.vmap(jax.jacrev(f))(both), rtol=1e-6)
    np.testing.assert_allclose(slopes, batched[0], rtol=1e-6)


@pytest.mark.parametrize("jit", [False, True])
def test_checks(jit):
    def f(x):
        checkify.check(jnp.all(x > 0), "not positive")
        return jnp.sin(x)

    jacobian = veenv.jacve(lambda x: checkify.checkify(f)(x)[1])
    np.testing.assert_allclose(
        (jax.jit(jacobian) if jit else jacobian)(X), jnp.diag(jnp.cos(X)), rtol=1e-6
    )
    around = checkify.checkify(jax.jit(veenv.jacve(f)) if jit else veenv.jacve(f))
    error, found = around(X)
    error.throw()
    np.testing.assert_allclose(found, jnp.diag(jnp.cos(X)), rtol=1e-6)
    with pytest.raises(Exception, match="not positive"):
        around(-X)[0].throw()
