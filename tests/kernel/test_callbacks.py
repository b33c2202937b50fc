"""Errors that branches raise by calling Python, as libraries do it: after the kernel."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from veenv.kernel.scalar_program import CannotFuseError

POINTS = np.linspace(0.1, 0.9, 12, dtype=np.float32)


def checked(x, wrong, message):
    """x, or an error at run time."""

    def raises(value):
        raise ValueError(f"{message}: {float(value):.1f}")

    def call(x):
        return jax.pure_callback(raises, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    return lax.cond(wrong, call, lambda x: x, x)


def plain(x):
    return jnp.sin(checked(x * 2, x > 1, "too large")) * 3


def nested(x):
    return jax.jit(lambda x: lax.cond(x > 0.5, plain, jnp.cos, x))(x)


def looped(x):
    def turn(c, row):
        c = checked(c + row * x, c > 7, "large in a scan")
        return c, lax.while_loop(lambda c: c < 1, lambda c: checked(c * 2, c < 0, "negative"), c)

    return sum(lax.scan(turn, x, jnp.arange(4, dtype=x.dtype)), jnp.zeros(4, x.dtype)).sum()


def apart(x):
    x = checked(x, x > 1, "too large")

    def turns(end):
        return lax.while_loop(lambda c: c < end, lambda c: c * 2 + x, x)

    return jax.vmap(turns)(jnp.array([1.0, 4.0, 0.0, 9.0], x.dtype))


CASES = [(plain, 1.2, "too large: 2.4"), (nested, 1.2, "too large"),
         (looped, 2.0, "large in a scan"), (looped, -0.2, "negative"),
         (apart, 1.2, "too large: 1.2")]  # fmt: skip


@pytest.mark.parametrize(("fun", "bad", "message"), CASES)
def test_values_and_errors(fun, bad, message):
    fused = jax.jit(jax.vmap(veenv.fuse(fun)))
    expected = np.stack([jax.jit(fun)(x) for x in POINTS])
    np.testing.assert_allclose(fused(POINTS), expected, rtol=1e-5)
    with pytest.raises(Exception, match=message):
        fused(np.append(POINTS[1:], np.float32(bad))).block_until_ready()
    np.testing.assert_allclose(fused(POINTS), expected, rtol=1e-5)  # it still works


def test_a_batch_of_batches_and_no_batch():
    fused = veenv.fuse(plain)
    many = POINTS.reshape(3, 4)
    mapped = jax.jit(jax.vmap(jax.vmap(fused)))
    np.testing.assert_allclose(mapped(many), 3 * np.sin(2 * many), rtol=1e-5)
    np.testing.assert_allclose(fused(POINTS[0]), 3 * np.sin(2 * POINTS[0]), rtol=1e-5)
    with pytest.raises(Exception, match="too large"):
        mapped(many + np.float32(0.2)).block_until_ready()
    with pytest.raises(Exception, match="too large"):
        fused(np.float32(1.5)).block_until_ready()


@pytest.mark.parametrize("kernel", ["auto", "fused"])
def test_jacobians(kernel):
    """Only the value calls back: a rule of the user's hides it, as JAX differentiates none."""

    @jax.custom_jvp
    def seen(x):
        return plain(x)

    seen.defjvp(
        lambda primals, tangents: (seen(*primals), 6 * jnp.cos(2 * primals[0]) * tangents[0])
    )
    both = jax.jit(jax.vmap(veenv.value_and_jacve(seen, kernel=kernel)))
    value, slope = both(POINTS)
    np.testing.assert_allclose(value, 3 * np.sin(2 * POINTS), rtol=1e-5)
    np.testing.assert_allclose(slope, 6 * np.cos(2 * POINTS), rtol=1e-5)
    with pytest.raises(Exception, match="too large"):
        jax.block_until_ready(both(POINTS + np.float32(0.5)))
    for mode in (jax.jacfwd, jax.grad):
        found = jax.jit(jax.vmap(mode(veenv.fuse(seen))))
        np.testing.assert_allclose(found(POINTS), 6 * np.cos(2 * POINTS), rtol=1e-5)


def test_what_cannot_be_carried_out_is_refused():
    double = lambda x: jax.pure_callback(lambda x: 2 * x, jax.ShapeDtypeStruct((), x.dtype), x)  # noqa: E731
    with pytest.raises(CannotFuseError, match=r"'pure_callback' cannot be fused: .*throw=False"):
        veenv.fuse(double)(np.float32(1))
    returns = veenv.fuse(lambda x: lax.cond(x > 1, double, lambda x: x, x))
    assert returns(np.float32(0.5)) == 0.5
    with pytest.raises(Exception, match="returned"):
        returns(np.float32(2)).block_until_ready()
