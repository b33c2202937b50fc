"""A Jacobian that is a kernel by default, in traces that see more of it than its values."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import veenv
from veenv.engine import choose
from veenv.kernel.fusing import KernelMode

pytestmark = pytest.mark.kernels

X = np.linspace(0.3, 1.2, 4)
POINTS = np.stack([X, X + 0.1, 2 * X])


def product(y, x):
    return jnp.sin(x) * x[::-1] ** 2 * y


def halves(x):
    """Has the Jacobian of sin(x) x, but another derivative of it."""
    sine, same = jax.lax.stop_gradient((jnp.sin(x), x))
    return sine * x + jnp.sin(x) * same


@jax.custom_jvp
def straight(x):
    return jnp.sin(x) * x


@straight.defjvp
def _(primals, tangents):
    x = jax.lax.stop_gradient(primals[0])
    return straight(x), (jnp.sin(x) + x * jnp.cos(x)) * tangents[0]


@pytest.fixture
def modes_first(monkeypatch):
    """JAX's own modes are taken wherever they are a form."""
    monkeypatch.setattr(choose, "kernel_seconds", lambda program, batch: 9.0)
    monkeypatch.setattr(choose.Form, "seconds", lambda form, batch: 8.0 if form.pinned else 1.0)


@pytest.mark.parametrize("kernel", ["auto", "fused"])
def test_functions_with_equal_jacobians_keep_their_own_derivatives(x64, kernel: KernelMode):
    for fun in (lambda x: jnp.sin(x) * x, halves, straight):
        jacobian = veenv.jacve(fun, kernel=kernel)
        slopes = [jax.jit(transform(jacobian))(0.7) for transform in (jax.grad, jax.jacfwd)]
        np.testing.assert_allclose(slopes, jax.jacfwd(jax.jacfwd(fun))(0.7), rtol=1e-12)


def captured(scale, points):
    """A batch of Jacobians of a function of a value of the trace around it."""
    jacobian = veenv.jacve(lambda x: product(scale, x), "auto")
    return jax.vmap(lambda x: jacobian(0.9 * x))(points)


def test_no_tracer_is_kept(x64):
    expected = jax.vmap(jax.jacfwd(lambda x: product(X, x)))(0.9 * POINTS)
    with jax.checking_leaks():
        for shift in (0.0, 1.0):  # the second is traced anew
            found = jax.jit(lambda *args, s=shift: captured(*args) + s)(X, POINTS)
            np.testing.assert_allclose(found, expected + shift, rtol=1e-10)
        alone = jax.jit(lambda x: veenv.jacve(functools.partial(product, X))(0.9 * x))(X)
    np.testing.assert_allclose(alone, expected[0], rtol=1e-10)


def test_a_batch_without_jit_is_run_one_by_one(x64):
    with jax.disable_jit():
        found = jax.vmap(veenv.jacve(functools.partial(product, X)))(POINTS)
        alone = jax.jit(veenv.jacve(product))(X, POINTS[1])
    expected = jax.vmap(jax.jacfwd(functools.partial(product, X)))(POINTS)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    np.testing.assert_allclose(alone, jax.jacfwd(product)(X, POINTS[1]), rtol=1e-10)


def test_nan_is_found_in_a_batch(x64):
    jacobian = jax.vmap(veenv.jacve(lambda x: jnp.log(x) * x))
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="log"):
        jacobian(np.array([[-1.0, 1.0]]))


def mapped(fun, out_specs):
    """A function of a value that all devices have and of another one's part on each, compiled."""
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    specs = (P(), P("i"))
    return jax.jit(jax.shard_map(fun, mesh=mesh, in_specs=specs, out_specs=out_specs))


@pytest.mark.parametrize("order", ["reverse", "auto"])
@pytest.mark.parametrize("kernel", ["xla", "auto"])
def test_devices_have_jacobians_of_their_own(
    x64, order, kernel: KernelMode, modes_first, monkeypatch
):
    sums, traced = [], choose._Modes.traced

    def counted(self):
        sums.append(len(self.modes))
        return traced(self)

    monkeypatch.setattr(choose._Modes, "traced", counted)
    jacobian = jax.vmap(veenv.jacve(product, order, (0, 1), kernel=kernel), (None, 0))
    expected = jax.vmap(jax.jacfwd(product, (0, 1)), (None, 0))(X, POINTS)
    found = mapped(jacobian, P("i"))(X, POINTS)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    assert not any(sums)  # reverse mode would add what the devices have
    with pytest.raises(ValueError, match="out_specs"):
        mapped(jacobian, P())(X, POINTS)


def test_derivatives_on_devices(x64):
    def slope(y, x):
        return jax.grad(lambda x: jnp.sum(veenv.jacve(product)(y, x[0]) ** 2))(x)

    found = mapped(slope, P("i"))(X, X[None])
    np.testing.assert_allclose(found, slope(X, X[None]), rtol=1e-10)
