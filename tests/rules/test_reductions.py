"""Reductions from an initial value, starts of dynamic slices: as JAX has them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.oracles.jacobians import assert_compiled_same, assert_same
from veenv import jacve

pytestmark = pytest.mark.usefixtures("x64")

X = np.array([1.0, 3.0, 2.0, 5.0])


def windows(op):
    return lambda x, start: lax.reduce_window(x, start, op, (2,), (1,), "VALID")


def thin(x, start):
    return lax.reduce_window(x[:, None, None], start, lax.add, (2, 1, 1), (1, 1, 1), "VALID")


def whole(op):
    return lambda x, start: lax.reduce(x, start, op, (0,))


def then(outer, inner):
    return lambda x, start: outer(inner(x, start))


@pytest.mark.parametrize(
    ("fun", "start"),
    [(windows(lax.max), -np.inf), (thin, 0.0), (whole(lax.max), -np.inf), (whole(lax.mul), 1.0),
        (then(jnp.sin, windows(lax.add)), 0.0), (then(jnp.sin, thin), 0.0)],
    ids=["window max", "thin", "max", "product", "sum, then", "thin, then"],
)  # fmt: skip
def test_initial_values_as_arguments(fun, start):
    expected, pairs = jax.jacrev(fun, (0, 1))(X, start), []
    for order in ("forward", "reverse"):
        assert_same(jacve(fun, order, (0, 1))(X, start), expected)
        alone = lambda x, order=order: jacve(fun, order)(x, start)  # noqa: E731
        pairs.append((alone, lambda x: jax.jacrev(fun)(x, start)))
    assert_compiled_same(pairs, X)


@pytest.mark.parametrize("start", [0.5, 4.0])
@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_windows_from_other_values(start, order):
    """Neither of JAX's modes makes a Jacobian of these; its jvp is right."""

    def pair(fun):
        row = lambda x, e: jax.jvp(lambda x: fun(x, start), (x,), (e,))[1]  # noqa: E731
        expected = lambda x: jnp.stack([row(x, e) for e in np.eye(4)], -1)  # noqa: E731
        return (lambda x: jacve(fun, order)(x, start)), expected

    assert_compiled_same([pair(windows(op)) for op in (lax.max, lax.add, lax.mul)], X)


@pytest.mark.parametrize("axes", ["devices", ("rows", "devices")], ids=["one", "both"])
@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_sums_over_devices(axes, order):
    """A psum over an axis of devices, and over that of a vmap at once."""

    def fun(x):
        total = lambda a: jnp.stack(lax.psum((a * a, a), axes)) * a  # noqa: E731
        return jnp.sin(jax.vmap(total, axis_name="rows")(x))

    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("devices",))
    here = jax.sharding.PartitionSpec()

    def on_devices(jacobian):
        return jax.shard_map(
            jacobian(fun), mesh=mesh, in_specs=here, out_specs=here, check_vma=False
        )

    ours = lambda fun: jacve(fun, order)  # noqa: E731
    assert_compiled_same([(on_devices(ours), on_devices(jax.jacrev))], X)


def test_initial_values_that_are_no_identity_are_refused():
    with pytest.raises(TypeError):
        jax.jacrev(windows(lax.add), 1)(X, 0.5)
    with pytest.raises(NotImplementedError, match=r"reduce_window.*test_reductions"):
        jacve(windows(lax.add), argnums=1)(X, 0.5)
    with pytest.raises(NotImplementedError, match="initial value"):
        jax.jit(jacve(windows(lax.add), argnums=1))(X, 0.0)


def test_dynamic_slices_clamp_once():
    def fun(x, start):
        y = lax.dynamic_slice(jnp.sin(x), (start,), (3,))
        return lax.dynamic_update_slice(x * x, y * y, (start,))

    def at(jacobian, start):
        return lambda x: jacobian(x, start)

    pairs = []
    for start in (-20, -5, -4, -1, 0, 2, 3, 4, 20):
        ours = jacve(fun, "forward"), jacve(fun, "reverse")
        pairs += [(at(jacobian, start), at(jax.jacrev(fun), start)) for jacobian in ours]
    assert_compiled_same(pairs, X)


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_unused_results_do_not_meet_infinity(order):
    """The eigenvectors of equal eigenvalues have no derivative; the eigenvalues have."""

    def fun(x):
        return jnp.linalg.eigvalsh(jnp.diag(x))

    assert_compiled_same([(jacve(fun, order), jax.jacrev(fun))], np.ones(3))
