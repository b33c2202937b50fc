"""Which loops XLA makes one function of on a CPU, against what it says of its programs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from veenv.kernel.features import NAMES, features_of


def scanned(body, *shared):
    """A loop over `body(carry, *shared)`, a function of one point."""

    def loop(carry, *shared):
        return jax.lax.scan(lambda c, _: (body(c, *shared), None), carry, None, length=20)[0]

    return loop, shared


def product(rows, summed, columns):
    """A loop with a product of matrices of these sizes."""

    def body(carry, matrix):
        return carry * jnp.max(jnp.tanh(carry @ matrix), axis=1, keepdims=True)

    return scanned(body, jnp.ones((summed, columns))), jnp.ones((rows, summed))


def matrix(carry, weights):
    return jnp.tanh(weights @ carry)


LOOPS = {
    "elementwise": (scanned(lambda c: jnp.sin(c) * c), jnp.ones(5)),
    "small sum": (scanned(lambda c: c + jnp.sum(c)), jnp.ones(4)),
    "sum": (scanned(lambda c: c + jnp.sum(c)), jnp.ones(4096)),
    "sum of many": (scanned(lambda c: c + jnp.max(c)), jnp.ones(64)),
    "matrix": (scanned(matrix, jnp.ones((9, 9))), jnp.ones(9)),
    "small matrix": (scanned(matrix, jnp.ones((3, 3))), jnp.ones(3)),
    "7, 3, 3": product(7, 3, 3),
    "8, 2, 2": product(8, 2, 2),
    "4, 4, 4": product(4, 4, 4),
    "16, 1, 16": product(16, 1, 16),
    "sort": (scanned(lambda c: jnp.sort(c) * 2), jnp.ones(4)),
    "cholesky": (scanned(lambda c: jnp.linalg.cholesky(c + 9 * jnp.eye(3))), jnp.ones((3, 3))),
    "one place": (scanned(lambda c: c.at[0].add(c[1])), jnp.ones(4)),
    "places": (scanned(lambda c: c.at[np.array([0, 3])].add(c[:2])), jnp.ones(4)),
    "conditional": (
        scanned(lambda c: jax.lax.cond(c[0] > 0, jnp.sin, lambda c: jnp.sort(c), c)),
        jnp.ones(4),
    ),
}


def turns(loop, args, batch):
    """How many of a loop's steps are those of one function."""
    found = features_of(jax.make_jaxpr(loop)(*args)).at(batch)
    counts = dict(zip(NAMES, found.tolist(), strict=True))
    assert {counts["steps"], counts["turns"]} == {20, 0}
    return counts["turns"]


@pytest.mark.skipif(
    jax.__version_info__ < (0, 12), reason="XLA also goes by the bytes of a step before"
)
@pytest.mark.parametrize("batch", [1, 2, 80])
@pytest.mark.parametrize("name", LOOPS)
def test_loops_are_one_function_where_xla_makes_them_one(name, batch):
    (loop, shared), carry = LOOPS[name]
    mapped = jax.vmap(loop, (0, *(None for _ in shared)))
    run, args = (loop, (carry,)) if batch == 1 else (mapped, (jnp.stack([carry] * batch),))
    text = jax.jit(run).lower(*args, *shared).compile().as_text()
    one = "xla_cpu_small_call" in text
    assert one == (turns(lambda c: loop(c, *shared), (carry,), batch) == 20)


def test_what_all_points_share_makes_a_matrix_of_their_vectors():
    loop, _ = scanned(matrix, None)
    weights, carry = jnp.ones((9, 9)), jnp.ones(9)
    assert turns(loop, (carry, weights), 80) == 20
    assert turns(lambda c: loop(c, weights), (carry,), 80) == 0


def test_a_loop_around_one_that_is_called_is_called():
    def f(x):
        def outer(c, _):
            (loop, shared), _ = LOOPS["sort"]
            return loop(c, *shared) + 1, None

        return jax.lax.scan(outer, x, None, length=3)[0]

    found = features_of(jax.make_jaxpr(f)(jnp.ones(4)))
    assert found.loops[:, 0].tolist() == [0, 0]
    assert found.loops[:, 2].tolist() == [60, 3]
