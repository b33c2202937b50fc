"""A Jacobian for XLA whose form is chosen when the batch is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core

import veenv
from tests.oracles.jacobians import assert_compiled_same, quick_jit
from veenv.engine import choose

pytestmark = pytest.mark.kernels

X = np.array([0.3, -0.2, 0.5])
POINTS = np.stack([X + 0.1 * k for k in range(8)])


def waves(x, scale=1.0):
    """No kernel can be made of it, and all of JAX's modes can stand for its elimination."""
    found = jnp.fft.rfft(jnp.sin(x) * x * scale).real
    return found[0] * x[::-1] + jnp.tanh(found[1] * x)


@pytest.fixture(autouse=True)
def runs(monkeypatch):
    """The elimination is the fastest up to four points, a mode of more; which forms are run."""
    found, made = [], choose.Form.run

    def recorded(self, wanted):
        run = made(self, wanted)
        return lambda *args: found.append("elimination" if self.pinned else "mode") or run(*args)

    def seconds(self, batch):
        return float(self.pinned == (batch > 4)) + (1.0 if batch < 256 else 1.01)

    monkeypatch.setattr(choose.Form, "seconds", seconds)
    monkeypatch.setattr(choose.Form, "run", recorded)
    return found


def test_the_form_goes_with_the_number_of_points(x64, runs):
    expected = quick_jit(jax.vmap(jax.jacfwd(waves)))(POINTS)
    cases = ("reverse", 1, "elimination"), ("auto", 4, "elimination"), ("reverse", 5, "mode")
    for order, number, form in cases:
        runs.clear()
        found = jax.jit(jax.vmap(veenv.jacve(waves, order)))(POINTS[:number])
        assert runs == [form]
        np.testing.assert_allclose(found, expected[:number], rtol=1e-10)
    runs.clear()
    jacobian = jax.jit(veenv.jacve(waves, "auto"))
    np.testing.assert_allclose(jacobian(X), expected[0], rtol=1e-10)
    again = jax.jit(jax.vmap(jacobian))(POINTS)  # the batch comes from outside
    assert runs == ["elimination", "mode"]
    np.testing.assert_allclose(again, expected, rtol=1e-10)


def test_axes_of_any_kind(x64, runs):
    def outside(jacobian):
        return jax.vmap(jax.vmap(jacobian, (None, 0)), (1, None), out_axes=1)

    both = veenv.jacve(waves, argnums=(0, 1))
    pairs = [(outside(both), outside(jax.jacfwd(waves, (0, 1))))]
    assert_compiled_same(pairs, POINTS.T, np.linspace(0.5, 1.0, 3))
    assert runs == ["mode"]
    empty = jax.eval_shape(jax.vmap(both, (0, None)), POINTS[:0], 1.0)
    assert [x.shape for x in empty] == [(0, 3, 3), (0, 3)]


def test_derivatives(x64):
    jacobian, known = veenv.jacve(waves), jax.vmap(jax.jacfwd(jax.jacfwd(waves)))
    pairs = [(jax.vmap(mode(jacobian)), known) for mode in (jax.jacfwd, jax.jacrev)]
    assert_compiled_same(pairs, POINTS)


def test_outside_of_a_trace(x64):
    closed = jax.make_jaxpr(veenv.jacve(waves))(X)
    expected = quick_jit(jax.jacfwd(waves))(X)
    np.testing.assert_allclose(core.jaxpr_as_fun(closed)(X)[0], expected, rtol=1e-10)
    with jax.disable_jit():
        found = jax.vmap(veenv.jacve(waves))(POINTS[:2])
    np.testing.assert_allclose(found[0], expected, rtol=1e-10)
    assert veenv.make_graph(veenv.jacve(waves))(X).num_vertices > 3


def test_what_is_exported_is_the_usual_form(x64, runs):
    (size,) = jax.export.symbolic_shape("b")
    shape = jax.ShapeDtypeStruct((size, 3), jnp.float64)
    exported = jax.export.export(jax.jit(jax.vmap(veenv.jacve(waves, "reverse"))))(shape)
    assert runs == ["elimination"]
    assert_compiled_same([(exported.call, jax.vmap(jax.jacfwd(waves)))], POINTS)


def test_values_of_a_trace_around_it(x64):
    def around(jacobian):
        return lambda scale, points: jax.vmap(jacobian(lambda x: waves(x, scale)))(points)

    with jax.checking_leaks():
        assert_compiled_same([(around(veenv.jacve), around(jax.jacfwd))], 2.0, POINTS)


@pytest.mark.parametrize("prints", [False, True])
def test_what_prints_is_printed_once_in_whichever_of_two_eliminations(
    x64, monkeypatch, prints, capfd
):
    """Of two eliminations the first is the fastest up to four points, the other of more."""
    numbers = {}

    def seconds(self, batch):
        return 1.0 + (numbers.setdefault(self, len(numbers)) != (batch > 4))

    def masked(x):
        if prints:
            jax.debug.print("at {}", x[0])
        y = jax.nn.relu(jnp.sin(x) - 0.1 / x) * jnp.fft.rfft(x).real[0]
        return jnp.stack([jnp.sum(y * y[::-1]), y[0] * y[1], jnp.prod(y)])

    monkeypatch.setattr(choose.Form, "seconds", seconds)
    found = jax.jit(veenv.jacve(masked, "auto"))(X)
    jax.effects_barrier()
    assert capfd.readouterr().out.count("at ") == prints
    np.testing.assert_allclose(found, quick_jit(jax.jacrev(masked))(X), rtol=1e-10)
