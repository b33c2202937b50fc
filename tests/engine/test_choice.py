"""``order="auto"``: the elimination or JAX's own mode, by prediction, with the same results."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import assert_compiled_same, quick_jit
from veenv import _compat
from veenv.engine import candidates, choose
from veenv.graph.linearisation import linearise
from veenv.graph.program import trace
from veenv.orders.resolve import automatic_order

pytestmark = pytest.mark.kernels

X = np.linspace(0.3, 1.2, 4)
SHORT = X.astype(np.float32)
AUTO = partial(veenv.jacve, order="auto")


def rolled(x):
    """Two outputs of a tree."""
    return {"a": jnp.sin(x) * jnp.roll(x, 1), "b": x[0] * x[1]}


def looped(x):
    """One scan."""
    return jax.lax.scan(lambda c, _: (jnp.sin(c) * x, None), x, None, length=50)[0]


def modes_of(fun, *args) -> tuple[str, ...]:
    return candidates.own_modes(linearise(trace(fun, args)))


def others(lin, ids) -> list[tuple[int, ...]]:
    """Orders that are compared with one under `"auto"`."""
    return candidates.other_orders(lin, ids, "auto", modes=bool(candidates.own_modes(lin)))


@pytest.fixture(params=["elimination", "mode", "kernel"])
def form(request, monkeypatch):
    """Each form in turn is predicted to be the fastest."""
    times = {"elimination": (1.0, 9.0, 9.0), "mode": (9.0, 1.0, 9.0), "kernel": (9.0, 9.0, 1.0)}
    own, other, kernel = times[request.param]
    prices(monkeypatch, lambda form, batch: own if form.pinned else other, kernel)
    return request.param


def prices(monkeypatch, seconds, kernel=None) -> None:
    """Sets the predicted seconds of forms for XLA at a batch, and of a kernel."""
    monkeypatch.setattr(choose.Form, "seconds", seconds)
    if kernel is not None:
        monkeypatch.setattr(choose, "kernel_seconds", lambda program, batch: kernel)


@pytest.fixture
def taken(monkeypatch):
    """For each form that is run for XLA, whether it is an elimination."""
    found, run = [], choose.Form.run

    def recorded(self, wanted):
        fun = run(self, wanted)
        return lambda *args: found.append(self.pinned) or fun(*args)

    monkeypatch.setattr(choose.Form, "run", recorded)
    return found


@pytest.mark.parametrize("kernel", ["xla", "auto"])
def test_all_forms_are_exact(x64, form, kernel, taken):
    jacobian, method, points = AUTO(rolled, kernel=kernel), jax.jacrev(rolled), X
    if kernel == "auto":
        points = np.stack([X, X + 0.1, X - 0.1])
        jacobian, method = jax.vmap(jacobian), jax.vmap(method)
    found, expected = jax.jit(lambda x: (jacobian(x), method(x)))(points)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    assert veenv.tree_allclose(found, expected, rtol=1e-12)
    text = jax.jit(jacobian).lower(points).as_text()
    assert ("veenv_fused" in text) == (form == "kernel" and kernel == "auto")
    fused = form == "kernel" and kernel == "auto"
    assert set(taken) == (set() if fused else {form != "mode"})


def test_values_auxiliaries_and_several_arguments(x64, form):
    def f(x, n, y):
        return x[:2] * y * n, {"sum": jnp.sum(x)}

    both = veenv.value_and_jacve(f, "auto", argnums=(0, 2), has_aux=True, kernel="auto")
    (value, aux), found = jax.jit(both)(X, 3.0, 2.0)
    expected, _ = quick_jit(jax.jacrev(f, argnums=(0, 2), has_aux=True))(X, 3.0, 2.0)
    assert veenv.tree_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(value, X[:2] * 6.0)
    np.testing.assert_allclose(aux["sum"], X.sum())
    jacobian, aux = jax.jit(AUTO(f, argnums=0, has_aux=True))(X, 3.0, 2.0)
    np.testing.assert_allclose(jacobian, expected[0], rtol=1e-12)
    hessian = jax.jit(jax.jacfwd(lambda x: AUTO(f, has_aux=True)(x, 3.0, 2.0)[0]))(X)
    assert not np.any(hessian)


def test_dtypes_and_weak_types_are_those_of_jacrev(form):
    for args in ((2.0,), (np.float32(2.0),), (X.astype(np.float32),)):
        found, expected = (jax.eval_shape(m(jnp.sin), *args) for m in (AUTO, jax.jacrev))
        assert (found.dtype, found.weak_type) == (expected.dtype, expected.weak_type)


def test_a_scan_is_left_to_jax(x64):
    def scans(jacobian) -> list[str]:
        eqns = _compat.open_jaxpr(jax.make_jaxpr(jacobian)(X)).eqns
        return [str(e.params["jaxpr"]) for e in eqns if e.primitive.name == "scan"]

    assert modes_of(looped, X) == ("jacfwd", "jacrev")
    auto, forward = (veenv.jacve(looped, order, kernel="xla") for order in ("auto", "forward"))
    assert scans(auto) in (scans(jax.jacfwd(looped)), scans(jax.jacrev(looped)))
    assert scans(auto) != scans(forward)
    np.testing.assert_allclose(
        jax.jit(AUTO(looped))(X), quick_jit(jax.jacfwd(looped))(X), rtol=1e-12
    )


def test_reverse_compares_the_forward_order_where_it_does_far_fewer_operations(x64):
    wide, square = np.linspace(0.0, 1.0, 12).reshape(6, 2), np.linspace(0.0, 1.0, 36).reshape(6, 6)

    def layers(x):
        return jnp.tanh(square @ jnp.tanh(square @ jnp.tanh(wide @ x)))

    def compared(fun, x) -> bool:
        return candidates.forward_instead(linearise(trace(fun, (x,))))

    assert compared(layers, X[:2])
    assert not compared(lambda x: layers(x)[:1], X[:2])
    expected = quick_jit(jax.jacrev(layers))(X[:2])
    reverse = partial(veenv.jacve, layers, "reverse")
    np.testing.assert_allclose(jax.jit(reverse())(X[:2]), expected, rtol=1e-12)
    graph = veenv.make_graph(layers)(X[:2])
    counts = reverse(count_ops=True)(X[:2])[1]
    assert counts.multiplications == graph.cost(graph.reverse())


def kernel_of(jacobian, *args):
    """The kernel that a Jacobian is in a trace; None where there is none."""
    equations = _compat.open_jaxpr(jax.make_jaxpr(jacobian)(*args)).eqns
    kernels = (e.params["kernel"] for e in equations if e.primitive.name == _compat.KERNEL)
    return next(kernels, None)


def test_pins_ask_for_xla():
    assert kernel_of(AUTO(rolled), SHORT) is not None
    for pin in (True, False):
        assert kernel_of(AUTO(rolled, pin=pin), SHORT) is None
        assert kernel_of(AUTO(rolled, pin=pin, kernel="fused"), SHORT) is not None


def test_auto_is_the_default():
    task = veenv.tasks.get("KerrMetric_Jacobian")
    args = task.example_args()
    graph = veenv.make_graph(task.fun, task.argnums)(*args)
    wanted = automatic_order(graph)
    assert wanted != graph.reverse()
    for make in (veenv.jacve, veenv.value_and_jacve):
        assert make(task.fun, argnums=task.argnums, count_ops=True)(*args)[-1].order == wanted
    packed = veenv.filter_jacve(lambda args: task.fun(*args), count_ops=True)
    assert packed(args)[-1].order == wanted


def test_a_safe_where_stays_an_elimination(form):
    def f(x):
        return jnp.where(x > 0.5, jnp.sqrt(x - 0.5), 0.0) * x[::-1]

    assert modes_of(f, X) == ()
    at = np.array([0.5, 0.5, 1.0, 0.2], np.float32)
    assert not np.isfinite(quick_jit(jax.jacrev(f))(at)).all()
    assert np.isfinite(jax.jit(AUTO(f, kernel="auto"))(at)).all()


def test_a_select_by_a_known_mask_leaves_forward_mode(x64, form):
    def f(x):
        rows, columns = jnp.meshgrid(x[:2], x[:2])
        q = jnp.where(np.eye(2, dtype=bool), rows, 1 / (rows - columns))
        return jax.lax.scan(lambda c, y: (jnp.tanh(q @ c) * y, c + y), x[2:], x)

    assert modes_of(f, X) == ("jacfwd",)
    shut = jnp.eye(4, dtype=bool)
    assert modes_of(lambda x: jnp.where(shut, x, 1 / x).sum(0)[:1], X) == ()  # fewer passes back
    assert not np.isfinite(quick_jit(jax.jacrev(f))(X)[1]).all()
    pairs = [(AUTO(f, kernel="auto"), jax.jacfwd(f)), (veenv.jacve(f), jax.jacfwd(f))]
    assert_compiled_same(pairs, X)


def test_known_zeros_stay_zeros_beside_infinite_partials(form):
    at = np.array([0.0, 1.0], np.float32)
    assert np.isnan(jax.jacrev(jnp.sqrt)(at)).any()
    found = np.asarray(jax.jit(AUTO(jnp.sqrt, kernel="auto"))(at))
    np.testing.assert_array_equal(found, [[np.inf, 0.0], [0.0, 0.5]])


@jax.custom_vjp
def _clipped(x):
    return x * x


_clipped.defvjp(lambda x: (x * x, x), lambda x, g: (2.0 * x * g,))


@jax.custom_vjp
def _bounded(x):
    return x * x


_bounded.defvjp(lambda x: (x * x, x), lambda x, g: (jnp.clip(2.0 * x * g, -1.0, 1.0),))


def test_what_one_mode_refuses_or_answers_otherwise_is_not_emitted():
    assert modes_of(_clipped, X) == ()
    assert modes_of(lambda x: jax.lax.while_loop(lambda c: c[0] < 2, jnp.sin, x), X) == ()
    assert modes_of(lambda x: x.astype(jnp.float16), X.astype(np.float32)) == ()
    assert modes_of(jnp.abs, X + 1j) == ()
    assert modes_of(lambda x: jax.nn.relu(1 / x) * 2, X) == ()
    assert modes_of(lambda x: x, np.zeros(0)) == ()
    assert modes_of(jnp.sqrt, X) == ()
    assert modes_of(lambda x: jnp.stack([x, x * x]), 0.5) == ("jacfwd", "jacrev")
    assert modes_of(lambda x: jnp.stack([x, x * x, x, x]), 0.5) == ("jacfwd",)
    assert modes_of(lambda x: jnp.sum(x * x), X) == ("jacrev",)


def test_the_masked_half_of_a_factor_leaves_the_modes_in_and_other_masks_do_not(x64):
    def factor(x):
        return jnp.linalg.cholesky(x.T @ x + 4 * jnp.eye(3)) @ x

    x = jnp.sin(jnp.arange(9.0)).reshape(3, 3)
    assert modes_of(factor, x) == ("jacfwd", "jacrev")
    assert modes_of(lambda x: factor(jax.nn.relu(1 / x)), x) == ()
    pairs = [(veenv.jacve(factor, order), jax.jacfwd(factor)) for order in ("auto", "reverse")]
    assert_compiled_same(pairs, x)


def test_what_a_function_prints_is_printed_once(capfd):
    def f(x):
        jax.debug.print("at {}", x[0])
        return looped(x) * jnp.sum(x)

    for jacobian in (veenv.jacve(f), AUTO(f), AUTO(f, kernel="auto")):
        jax.block_until_ready(jax.jit(jacobian)(X.astype(np.float32)))
        jax.effects_barrier()
        assert capfd.readouterr().out.count("at ") == 1


def test_a_mode_that_is_traced_late_is_of_the_function_as_it_was(x64, monkeypatch):
    prices(monkeypatch, lambda form, batch: 8.0 if form.pinned else 1.0, 9.0)
    scale, table = [2.0], np.linspace(0.0, 1.0, 2000)

    def f(x):
        return jnp.sin(x) * scale[0] + jnp.sum(table) * x[::-1]

    def of_all(shift, x):
        return jax.vmap(AUTO(lambda x: f(x + shift), kernel="auto"))(x)

    points = np.stack([X, X + 0.1])
    expected = jax.vmap(jax.jacrev(f))(points)
    staged = [jax.jit(jax.vmap(AUTO(f, kernel="auto"))).trace(points)]
    staged.append(jax.jit(of_all).trace(0.0, points))  # its shift is of an outer trace
    scale[0] = 3.0
    for arguments, one in zip([(points,), (0.0, points)], staged, strict=True):
        lowered = one.lower()
        assert "veenv_fused" not in lowered.as_text()
        np.testing.assert_allclose(lowered.compile()(*arguments), expected, rtol=1e-12)


def test_auxiliary_constants_are_in_their_places_in_all_forms(x64, form):
    def f(x):
        return rolled(x), (2.0, x > 0.5, [np.arange(3)])

    jacobian = veenv.value_and_jacve(f, "auto", has_aux=True, kernel="auto")
    (value, aux), found = jax.jit(jacobian)(X)
    assert veenv.tree_allclose(
        (value, found), (rolled(X), quick_jit(jax.jacrev(rolled))(X)), rtol=1e-10
    )
    assert veenv.tree_allclose(aux, f(X)[1])


def test_a_rule_that_is_not_linear_is_eliminated_in_the_order_alone(x64):
    def f(x):
        y = jnp.sin(x)
        z = _bounded(y)
        w = jnp.outer(z, z) @ y
        for _ in range(3):
            w = jnp.tanh(w * jnp.sum(y))
        return jnp.stack([jnp.sum(w * y), w[0] * y[1]])

    lin = linearise(trace(f, (X,)))
    assert others(lin, lin.graph.forward()) == []
    pairs = [(jacobian, jax.jacrev(f)) for jacobian in (AUTO(f), veenv.jacve(f))]
    assert_compiled_same(pairs, X)
