"""A Jacobian for XLA whose form is chosen when the batch is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core

import veenv
from veenv import _compat
from veenv.engine import choose
from veenv.kernel import fusing

pytestmark = pytest.mark.kernels

X = np.array([0.3, -0.2, 0.5])
POINTS = np.stack([X + 0.1 * k for k in range(8)])
TABLE = np.linspace(0.0, 1.0, 4000).reshape(4, 1000)


def solved(x, scale=1.0):
    """No kernel can be made of it, and all of JAX's modes can stand for its elimination."""
    system = jnp.diag(jnp.arange(4.0, 7.0, dtype=x.dtype)) + jnp.outer(x, jnp.sin(x)) * scale
    many = jnp.asarray(TABLE, x.dtype) @ jnp.tile(x, 1000)[:1000]
    return jnp.linalg.eigvalsh(system) * x * jnp.sum(many)


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
    expected = jax.vmap(jax.jacfwd(solved))(POINTS)
    for order in ("reverse", "auto"):
        jacobian = veenv.jacve(solved, order)
        for number, form in ((1, "elimination"), (4, "elimination"), (5, "mode"), (8, "mode")):
            runs.clear()
            found = jax.jit(jax.vmap(jacobian))(POINTS[:number])
            assert runs == [form]
            np.testing.assert_allclose(found, expected[:number], rtol=1e-10)
        runs.clear()
        np.testing.assert_allclose(jax.jit(jacobian)(X), expected[0], rtol=1e-10)
        assert runs == ["elimination"]
        again = jax.jit(jax.vmap(jax.jit(jacobian)))(POINTS)  # the batch comes from outside
        assert runs == ["elimination", "mode"]
        np.testing.assert_allclose(again, expected, rtol=1e-10)


def test_axes_of_any_kind(x64, runs):
    jacobian = veenv.jacve(solved, argnums=(0, 1))
    scales = np.linspace(0.5, 1.0, 3)
    both = jax.vmap(jax.vmap(jacobian, (None, 0)), (1, None), out_axes=1)
    known = jax.vmap(jax.vmap(jax.jacfwd(solved, (0, 1)), (None, 0)), (1, None), out_axes=1)
    for a, b in zip(jax.jit(both)(POINTS.T, scales), known(POINTS.T, scales), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    assert runs == ["mode"]
    empty = jax.jit(jax.vmap(jacobian, (0, None)))(POINTS[:0], 1.0)
    assert [x.shape for x in empty] == [(0, 3, 3), (0, 3)]


def test_values_auxiliaries_and_dtypes(runs):
    def fun(x, name):
        return {"a": solved(x)}, {"x": x, "name": name}

    x = X.astype(np.float32)
    both = jax.jit(veenv.value_and_jacve(fun, has_aux=True), static_argnums=1)
    (value, aux), found = both(x, None)
    expected, _ = jax.jacrev(fun, has_aux=True)(x, None)
    assert veenv.tree_allclose(found, expected, rtol=1e-4)
    assert aux["name"] is None
    np.testing.assert_allclose(value["a"], solved(x), rtol=1e-5)
    shapes = [jax.eval_shape(m(solved), x) for m in (veenv.jacve, jax.jacrev)]
    assert shapes[0] == shapes[1]
    assert shapes[0].weak_type == shapes[1].weak_type


def test_derivatives(x64):
    jacobian = veenv.jacve(solved)
    known = jax.jit(jax.vmap(jax.jacfwd(jax.jacfwd(solved))))(POINTS)
    for mode in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(jax.jit(jax.vmap(mode(jacobian)))(POINTS), known, rtol=1e-8)
        np.testing.assert_allclose(jax.jit(mode(jax.jit(jacobian)))(X), known[0], rtol=1e-8)


def test_outside_of_a_trace(x64):
    closed = jax.make_jaxpr(veenv.jacve(solved))(X)
    assert [e.primitive.name for e in closed.eqns] == [_compat.KERNEL]
    expected = jax.jacfwd(solved)(X)
    np.testing.assert_allclose(core.jaxpr_as_fun(closed)(X)[0], expected, rtol=1e-10)
    with jax.disable_jit():
        np.testing.assert_allclose(jax.vmap(veenv.jacve(solved))(POINTS)[0], expected, rtol=1e-10)
    graph = veenv.make_graph(veenv.jacve(solved))(X)
    assert graph.num_vertices > 3


def test_what_is_exported_is_the_usual_form(x64, runs):
    (size,) = jax.export.symbolic_shape("b")
    shape = jax.ShapeDtypeStruct((size, 3), jnp.float64)
    exported = jax.export.export(jax.jit(jax.vmap(veenv.jacve(solved, "reverse"))))(shape)
    assert runs == ["elimination"]
    expected = jax.vmap(jax.jacfwd(solved))(POINTS)
    np.testing.assert_allclose(exported.call(POINTS), expected, rtol=1e-10)


def test_values_of_a_trace_around_it(x64):
    def around(scale, points):
        return jax.vmap(veenv.jacve(lambda x: solved(x, scale)))(points)

    with jax.checking_leaks():
        found = jax.jit(around)(2.0, POINTS)
    expected = jax.vmap(jax.jacfwd(lambda x: solved(x, 2.0)))(POINTS)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("prints", [False, True])
def test_what_prints_is_chosen_at_once(x64, monkeypatch, prints, capfd):
    """Of two eliminations the first is the fastest up to four points, the other of more."""
    numbers = {}

    def seconds(self, batch):
        return 1.0 + (numbers.setdefault(self, len(numbers)) != (batch > 4))

    def masked(x):
        if prints:
            jax.debug.print("at {}", x[0])
        y = jax.nn.relu(jnp.sin(x) - 0.1 / x)
        return jnp.stack([jnp.sum(y * y[::-1]), y[0] * y[1], jnp.prod(y)])

    monkeypatch.setattr(choose.Form, "seconds", seconds)
    monkeypatch.setattr(fusing.Traced, "program_within", lambda self, limit: None)
    jacobian = veenv.jacve(masked, "auto")
    names = [e.primitive.name for e in jax.make_jaxpr(jacobian)(X).eqns]
    assert names == [_compat.KERNEL] if not prints else _compat.KERNEL not in names
    found = jax.jit(jacobian)(X)
    jax.effects_barrier()
    assert capfd.readouterr().out.count("at ") == prints
    np.testing.assert_allclose(found, jax.jacrev(masked)(X), rtol=1e-10)


def test_xla_is_chosen_at_once(x64):
    closed = jax.make_jaxpr(veenv.jacve(solved, "auto", kernel="xla"))(X)
    assert all(e.primitive.name != _compat.KERNEL for e in closed.eqns)
