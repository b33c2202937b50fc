"""Random numbers and their keys in kernels: bit by bit those of JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import assert_same, quick_jit
from veenv.kernel.scalar_program import CannotFuseError

KEYS = jax.random.split(jax.random.key(7), 9)


def drawn(key: Any, number: jax.Array) -> dict[str, Any]:
    first, second = jax.random.split(key)
    third = jax.random.fold_in(second, number)
    several = jax.random.split(third, (2, 2))
    return {
        "bits": jax.random.bits(first, (2, 3)), "bytes": jax.random.bits(first, (3,), jnp.uint8),
        "none": jax.random.bits(first, (0,)), "uniform": jax.random.uniform(third, (3,)),
        "integers": jax.random.randint(first, (4,), 0, 100),
        "one": jax.random.bernoulli(several[1, 0], 0.3),
        "each": jax.vmap(jax.random.bits)(several[0]),
        "seeded": jax.random.bits(jax.random.key(number)), "captured": jax.random.bits(KEYS[0]),
        "keys": (several, jnp.where(number > 2, first, third)), "raw": jax.random.key_data(second),
    }  # fmt: skip


def bits(tree: Any) -> list[np.ndarray]:
    key = lambda x: jnp.issubdtype(x.dtype, jax.dtypes.prng_key)  # noqa: E731
    return [np.asarray(jax.random.key_data(x) if key(x) else x) for x in jax.tree.leaves(tree)]


def assert_equal(draw: Callable[..., Any], *args: Any) -> None:
    """A kernel draws for each point what JAX draws."""
    got, expected = jax.vmap(veenv.fuse(draw))(*args), quick_jit(jax.vmap(draw))(*args)
    assert jax.tree.map(jnp.shape, got) == jax.tree.map(jnp.shape, expected)
    assert [x.dtype for x in jax.tree.leaves(got)] == [x.dtype for x in jax.tree.leaves(expected)]
    for a, b in zip(bits(got), bits(expected), strict=True):
        np.testing.assert_array_equal(a, b)


def test_numbers_are_those_of_jax():
    assert_equal(drawn, KEYS, jnp.arange(9))


def test_keys_of_integers_are_keys():
    def draw(key: jax.Array) -> jax.Array:
        return jax.random.bits(jax.random.split(key)[1], (2,))

    assert_equal(draw, jax.random.key_data(KEYS))


def test_wide_numbers(x64):
    def draw(key: Any) -> Any:
        return jax.random.bits(key, (2,), jnp.uint64), jax.random.uniform(key, (2,))

    assert_equal(draw, KEYS)


@pytest.mark.parametrize("name", ["normal", "exponential", "gumbel", "truncated_normal"])
def test_distributions(name: str, precision: str):
    limits = (-1.0, 2.0) if name == "truncated_normal" else ()
    draw = lambda key: getattr(jax.random, name)(key, *limits, shape=(8,))  # noqa: E731
    got, expected = jax.vmap(veenv.fuse(draw))(KEYS), jax.jit(jax.vmap(draw))(KEYS)
    assert got.dtype == precision
    np.testing.assert_allclose(got, expected, rtol=20 * np.finfo(precision).eps, atol=1e-6)


def test_a_path_with_its_slopes(x64):
    """Differentiated inside and outside; the key is never differentiated by."""

    def path(market: jax.Array, key: Any) -> jax.Array:
        noise = jax.random.normal(key, (4,))
        return jnp.exp(jnp.cumsum(market[0] - market[1] * noise)).mean()

    inside = jax.vmap(veenv.fuse(veenv.value_and_jacve(path)), (None, 0))
    outside = jax.vmap(jax.value_and_grad(veenv.fuse(path)), (None, 0))
    market = jnp.array([0.1, 0.3])
    expected = quick_jit(jax.vmap(jax.value_and_grad(path), (None, 0)))(market, KEYS)
    for got in jax.jit(lambda *a: (inside(*a), outside(*a)))(market, KEYS):
        assert_same(got, expected, 1e-10, atol=0)


def test_other_generators_are_refused_by_name():
    with pytest.raises(CannotFuseError, match=r"key<rbg>.*Threefry"):
        veenv.fuse(jax.random.normal)(jax.random.key(0, impl="rbg"))
