"""A Jacobian through loops and branches stores what their elements depend on, and no more."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from tests.oracles.jacobians import check_sparse

W = np.diag([0.5, 0.2, 0.1, 0.4]) + np.diag([0.3, 0.7, 0.6], -1)
OWN = np.eye(4, dtype=bool)
BRANCHES = [jnp.sin, lambda x: x[::-1], lambda x: x * 2]


def steps(step, length=3):
    return lambda x: lax.scan(lambda c, _: (step(c), None), x, None, length=length)[0]


def with_jvp(x):
    @jax.custom_jvp
    def rounded(x):
        return jnp.round(x)

    rounded.defjvp(lambda x, t: (jnp.round(x[0]), t[0][::-1]))
    return rounded(x)


def with_vjp(through):
    @jax.custom_vjp
    def own(x):
        return x[::-1]

    own.defvjp(lambda x: (x[::-1], None), lambda _, g: (through(g),))
    return own


def recurrence(x):
    step = lambda c, x: (jnp.sin(c) * x, c + x)  # noqa: E731
    return lax.scan(step, jnp.ones(1), x.reshape(4, 1), reverse=True)[1]


def counted(x):
    return lax.fori_loop(1, 3, lambda i, h: h.at[i].set(jnp.sin(h[i - 1]) * h[3]), x)


def shifted(x):
    return lax.while_loop(lambda s: s.sum() < 100, lambda s: jnp.roll(s, 1).at[0].set(1.0), x)


def rows_of_many(x):
    step = lambda c, r: (jnp.where(r > 0.5, c[::-1], c) * 0.99, c[::2])  # noqa: E731
    return lax.scan(step, x, np.linspace(0.0, 1.0, 1500), reverse=True)[1][::700].reshape(-1)


# (function, what it depends on: that of jax.jacrev if nothing is given)
CASES = {
    "a recurrence depends on what came before": (recurrence, None),
    "a known matrix mixes": (steps(lambda c: W @ c), None),
    "counters are worked out": (counted, None),
    "rows of a long loop, by what one turn does": (
        rows_of_many, np.tile((OWN | OWN[::-1])[::2], (3, 1))),
    "running sums": (steps(lambda c: jnp.cumsum(jnp.sin(c))), np.tri(4, dtype=bool)),
    "products do not mix": (steps(lambda c: c * c), OWN),
    "any branch may be taken": (
        lambda x: lax.switch(jnp.int32(x[0] > 9) + 1, BRANCHES, x), OWN | OWN[::-1]),
    "a known branch is": (lambda x: lax.switch(1, BRANCHES, x), OWN[::-1]),
    "until nothing is added": (shifted, np.tri(4, dtype=bool)),
    "a rule of one's own: jvp": (steps(with_jvp), OWN[::-1]),
    "a rule of one's own: vjp": (steps(with_vjp(lambda g: g[::-1])), OWN[::-1]),
    "a rule that is not linear": (steps(with_vjp(jnp.sign), 1), np.ones((4, 4), bool)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_stored_is_what_is_depended_on(name, x64):
    fun, mask = CASES[name]
    x = jnp.arange(1.0, 5) / 3
    stored = None if mask is None else mask.sum()
    if fun is shifted:  # which never ends
        jacobian = veenv.jacve(fun, "forward", sparse_representation=True)
        assert jax.eval_shape(jacobian, x).nse == stored
        return
    check_sparse(fun, x, stored=stored, order="forward", atol=0)


def test_a_very_long_loop_ends():
    fun, x = steps(jnp.sin, 100_000), jax.ShapeDtypeStruct((3,), jnp.float32)
    assert jax.eval_shape(veenv.jacve(fun, sparse_representation=True), x).nse <= 9


@pytest.mark.kernels
def test_a_long_stencil_in_a_loop_stores_what_there_is():
    def fun(x):
        return lax.fori_loop(0, 2, lambda _, x: jnp.sin(x) + jnp.roll(x, 1) * jnp.roll(x, -1), x)

    x = jax.ShapeDtypeStruct((4200,), jnp.float32)
    assert jax.eval_shape(veenv.jacve(fun, sparse_representation=True), x).nse == 5 * 4200
