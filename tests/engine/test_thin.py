"""Large dense Jacobians with few entries that are not zero: written once, by scattering them."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import assert_same

pytestmark = pytest.mark.usefixtures("x64")

N = 370
FIRST, SECOND = np.random.default_rng(0).integers(0, N, (2, 2 * N))


def springs(x):
    first, second = (ends[: 2 * x.size] % x.size for ends in (FIRST, SECOND))
    force = jnp.sin(x[first] - x[second])
    return jnp.zeros(x.size).at[first].add(force).at[second].add(-force)


def band(x):
    return x[1:] * jnp.roll(x, 1)[1:] + jnp.sin(x[:-1])


FUNCTIONS = {"springs": springs, "band": band}
X = np.sin(np.arange(N))


same = functools.partial(assert_same, tol=1e-7, atol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_they_are_those_of_jax(name: str):
    """In every order, and as one kernel, which knows indices and masks, however many they are."""
    fun = FUNCTIONS[name]
    for options, x in (({}, X), ({"order": "reverse"}, X), ({"kernel": "fused"}, X[:150])):
        same(jax.jit(veenv.jacve(fun, **options))(x), jax.jit(jax.jacrev(fun))(x))


def test_zeros_are_not_computed():
    compiled = jax.jit(veenv.jacve(springs)).lower(jnp.asarray(X)).compile()
    counted: Any = compiled.cost_analysis()
    assert counted["flops"] < N * N  # a number for each entry, zeros too, is more


def test_in_a_batch_and_differentiated():
    x = jnp.asarray([X, X[::-1], X + 0.1])
    same(jax.jit(jax.vmap(veenv.jacve(springs)))(x), jax.jit(jax.vmap(jax.jacrev(springs)))(x))

    def square(jacobian):
        return jax.jit(jax.grad(lambda x: jnp.sum(jacobian(x) ** 2)))

    same(square(veenv.jacve(springs))(x[0]), square(jax.jacfwd(springs))(x[0]))


def test_of_trees_with_values_and_more():
    def fun(at, scale):
        values = springs(at["x"]) * scale
        return {"sum": values.sum(), "all": values}, at["x"].max()

    at, scale = {"x": jnp.asarray(X)}, jnp.asarray(2.0)
    found = jax.jit(veenv.value_and_jacve(fun, argnums=(0, 1), has_aux=True))(at, scale)
    expected, more = jax.jit(jax.jacrev(fun, argnums=(0, 1), has_aux=True))(at, scale)
    same(found, ((fun(at, scale)[0], more), expected))
    same(veenv.jacve(springs)(X), jax.jacrev(springs)(X))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("fun", [springs, lambda x: jnp.tanh(jnp.outer(x, x).sum(axis=0) * x)])
def test_what_a_function_calls_is_called_once(fun: Any, compiled: bool):
    seen: list[float] = []

    def calling(x):
        jax.debug.callback(lambda first: seen.append(float(first)), x[0])
        return fun(x)

    jacobian = veenv.jacve(calling)
    jax.block_until_ready((jax.jit(jacobian) if compiled else jacobian)(jnp.asarray(X)))
    jax.effects_barrier()
    assert len(seen) == 1
