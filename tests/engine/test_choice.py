"""A kernel, a mode of JAX or an elimination: what is predicted to be fast, with equal results."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core
from jax.sharding import PartitionSpec as P

import veenv
from tests.oracles.jacobians import assert_compiled_same, assert_same, quick_jit
from tests.sampling import spared
from veenv.orders.resolve import automatic_order

pytestmark = pytest.mark.kernels

X = np.linspace(0.3, 1.2, 4)
AT = X.astype(np.float32), np.float32(1)
POINTS = np.stack([X + 0.1 * k for k in range(5)])


def rolled(x, scale):
    """Short enough for a kernel."""
    return {"a": jnp.sin(x) * jnp.roll(x, 1) * scale, "b": x[0] * x[1]}


def waves(x, scale):
    """No kernel can be made of it, and forward mode takes few passes."""
    found = jnp.fft.rfft(jnp.sin(x) * x * scale, 100).real
    return found[0] * x[::-1] + jnp.tanh(found[1] * x)


def masked(x, scale):
    """No kernel, and both modes multiply what is infinite at zero by what is shut out."""
    y = jax.nn.relu(jnp.sin(x) - 0.1 / x) * jnp.fft.rfft(x * scale, 100).real[0]
    return jnp.stack([jnp.sum(y * y[::-1]), y[0] * y[1], jnp.prod(y)])


def looped(x, scale):
    """A short loop that no kernel has."""
    kept = jnp.diag(jnp.arange(4.0, dtype=x.dtype) + 5)
    step = lambda c, _: (jnp.linalg.eigvalsh(kept + jnp.outer(c, x)), None)  # noqa: E731
    return jax.lax.scan(step, jnp.sin(x) * scale, None, length=3)[0]


TAKEN = {
    "kernel": (rolled, "kernel"), "forward mode": (waves, "jacfwd"),
    "reverse mode": (lambda x, scale: waves(x, scale).sum(), "jacrev"),
    "elimination": (masked, "elimination"), "loop": (looped, "jacfwd"),
}  # fmt: skip


@pytest.fixture(params=spared(TAKEN, "kernel", "forward mode"))
def fun(request):
    """A function for which each kind of form is taken."""
    return TAKEN[request.param][0]


@pytest.mark.parametrize("name", TAKEN)
def test_each_is_taken_where_it_is_fast(name):
    fun, label = TAKEN[name]
    (taken,) = (row for row in veenv.explain(fun, *AT, batch=5).rows if row.taken)
    assert taken.program == label or taken.label.startswith(label)
    text = jax.jit(veenv.jacve(fun)).lower(*AT).as_text()
    assert ("veenv_fused" in text) == (label == "kernel")


@pytest.mark.parametrize(
    ("name", "order", "kernel"),
    [*((name, "auto", "auto") for name in TAKEN), ("kernel", "reverse", "xla")],
)
def test_results_are_exact_in_their_containers(x64, name, order, kernel):
    fun = TAKEN[name][0]

    def with_aux(x, n, scale):
        return fun(x, scale * n), {"sum": jnp.sum(x), "constants": (2.0, x > 0.5, [np.arange(3)])}

    def batched(f):
        return jax.vmap(jax.vmap(f, (None, None, 0)), (1, None, None), out_axes=1)

    options = {"argnums": (2, 0), "has_aux": True}
    args = POINTS.T, 2.0, np.array([0.5, 0.7, 1.0])
    both = batched(veenv.value_and_jacve(with_aux, order, kernel=kernel, **options))
    (value, aux), found = jax.jit(both)(*args)
    expected, more = quick_jit(batched(jax.jacrev(with_aux, **options)))(*args)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    assert veenv.tree_allclose(found, expected, rtol=1e-10)
    assert veenv.tree_allclose((value, aux), batched(with_aux)(*args), rtol=1e-12)
    assert jax.tree.structure(aux) == jax.tree.structure(more)
    alone, _ = jax.jit(veenv.jacve(with_aux, order, kernel=kernel, **options))(X, 2.0, 0.5)
    assert veenv.tree_allclose(alone, jax.tree.map(lambda y: y[0, 0], expected), rtol=1e-10)
    empty = jax.eval_shape(both, POINTS[:0].T, 2.0, args[2])[1]
    assert [y.shape[:2] for y in jax.tree.leaves(empty)] == [(3, 0)] * len(jax.tree.leaves(empty))


def test_dtypes_and_weak_types_are_those_of_jacrev(fun):
    for scale in (2.0, np.float32(2.0)):
        jacobians = [mode(fun, argnums=(0, 1)) for mode in (veenv.jacve, jax.jacrev)]
        found, expected = (jax.eval_shape(jacobian, AT[0], scale) for jacobian in jacobians)
        assert jax.tree.map(jax.typeof, found) == jax.tree.map(jax.typeof, expected)


def test_derivatives_and_values_of_traces_around(x64, fun):
    def around(jacobian):
        return lambda scale, points: jax.vmap(jacobian(lambda x: fun(0.9 * x, scale)))(points)

    with jax.checking_leaks():
        assert_compiled_same([(around(veenv.jacve), around(jax.jacfwd))], 2.0, POINTS)
    known = jax.vmap(jax.jacfwd(jax.jacfwd(lambda x: fun(x, 1.0))))
    modes = (jax.jacfwd, jax.jacrev, veenv.jacve)
    jacobian = veenv.jacve(lambda x: fun(x, 1.0))
    assert_compiled_same([(jax.vmap(mode(jacobian)), known) for mode in modes], POINTS)


def test_outside_of_jit_and_exported(x64, fun):
    jacobian, expected = veenv.jacve(fun, "reverse"), quick_jit(jax.jacfwd(fun))(X, 1.0)
    found = core.jaxpr_as_fun(jax.make_jaxpr(jacobian)(X, 1.0))(X, 1.0)
    assert_same(found, jax.tree.leaves(expected))
    with jax.disable_jit():
        several = jax.vmap(jacobian, (0, None))(POINTS[:2], 1.0)
        assert_same(jax.jit(jacobian)(X, 1.0), expected)
    assert_same(jax.tree.map(lambda y: y[0], several), expected)
    (size,) = jax.export.symbolic_shape("b")
    shape = jax.ShapeDtypeStruct((size, 4), jnp.float64)
    many = jax.jit(jax.vmap(veenv.jacve(lambda x: fun(x, 1.0))))
    called = jax.export.export(many)(shape).call(POINTS)
    assert_same(jax.tree.map(lambda y: y[0], called), expected)


def test_what_is_traced_is_of_the_function_as_it_was(x64, fun):
    scale, table = [2.0], np.linspace(0.0, 1.0, 2000)

    def shifted(x):
        return fun(x + table[3], scale[0])

    expected = quick_jit(jax.vmap(jax.jacrev(shifted)))(POINTS)
    staged = jax.jit(jax.vmap(veenv.jacve(shifted))).trace(POINTS)
    scale[0] = 3.0
    assert_same(staged.lower().compile()(POINTS), expected)


def mapped(fun, out_specs):
    """A function of a value that all devices have and of another one's part on each, compiled."""
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    return jax.jit(jax.shard_map(fun, mesh=mesh, in_specs=(P(), P("i")), out_specs=out_specs))


@pytest.mark.parametrize(
    ("fun", "kernel"), [(rolled, "xla"), (rolled, "auto"), (waves, "auto"), (looped, "auto")]
)
def test_devices_have_jacobians_of_their_own(x64, kernel, fun):
    """Reverse mode would add what the devices have."""

    def of(scale, x):
        return fun(x, scale)

    jacobian = jax.vmap(veenv.jacve(of, argnums=(0, 1), kernel=kernel), (None, 0))
    expected = jax.vmap(jax.jacfwd(of, (0, 1)), (None, 0))(0.7, POINTS)
    assert_same(mapped(jacobian, P("i"))(0.7, POINTS), expected)
    with pytest.raises(ValueError, match="out_specs"):
        mapped(jacobian, P())(0.7, POINTS)

    def slope(scale, x):
        def total(x):
            found = veenv.jacve(of, argnums=1)(scale, x[0])
            return sum(map(jnp.sum, jax.tree.leaves(found)))

        return jax.grad(total)(x)

    np.testing.assert_allclose(mapped(slope, P("i"))(0.7, X[None]), slope(0.7, X[None]), rtol=1e-9)


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


@pytest.mark.parametrize("kernel", ["auto", "fused"])
def test_functions_with_equal_jacobians_keep_their_own_derivatives(x64, kernel):
    for fun in (lambda x: jnp.sin(x) * x, halves, straight):
        jacobian = veenv.jacve(fun, kernel=kernel)
        slopes = [jax.jit(transform(jacobian))(0.7) for transform in (jax.grad, jax.jacfwd)]
        np.testing.assert_allclose(slopes, jax.jacfwd(jax.jacfwd(fun))(0.7), rtol=1e-12)


def test_nan_is_found_in_a_batch(x64):
    jacobian = jax.vmap(veenv.jacve(lambda x: jnp.log(x) * x))
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="log"):
        jacobian(np.array([[-1.0, 1.0]]))


def test_a_program_may_be_lowered_under_another_width_of_floats(fun):
    program = jax.jit(veenv.jacve(fun)).trace(*AT)
    with jax.enable_x64(True):
        run = program.lower().compile()
    assert veenv.tree_allclose(run(*AT), jax.jacfwd(fun)(*AT), rtol=1e-4, atol=1e-4)


def test_pins_ask_for_xla():
    for pin, kernel in itertools.product(("auto", True, False), ("auto", "fused")):
        text = jax.jit(veenv.jacve(rolled, pin=pin, kernel=kernel)).lower(*AT).as_text()
        assert ("veenv_fused" in text) == (pin == "auto" or kernel == "fused")


def test_auto_is_the_default_and_reverse_is_counted_as_reverse():
    task = veenv.tasks.get("KerrMetric_Jacobian")
    args = task.example_args()
    graph = veenv.make_graph(task.fun, task.argnums)(*args)
    wanted = automatic_order(graph)
    assert wanted != graph.reverse()
    for make in (veenv.jacve, veenv.value_and_jacve):
        assert make(task.fun, argnums=task.argnums, count_ops=True)(*args)[-1].order == wanted
    packed = veenv.filter_jacve(lambda args: task.fun(*args), count_ops=True)
    assert packed(args)[-1].order == wanted
    reverse = veenv.jacve(task.fun, "reverse", task.argnums, count_ops=True)(*args)[-1]
    assert reverse.multiplications == graph.cost(graph.reverse())


@jax.custom_vjp
def bounded(x):
    return x * x


bounded.defvjp(lambda x: (x * x, x), lambda x, g: (jnp.clip(2.0 * x * g, -1.0, 1.0),))


def by_a_rule_that_is_not_linear(x):
    y = jnp.sin(x)
    z = bounded(y)
    w = jnp.outer(z, z) @ y
    for _ in range(3):
        w = jnp.tanh(w * jnp.sum(y))
    return jnp.stack([jnp.sum(w * y), w[0] * y[1]])


def by_a_known_mask(x):
    rows, columns = jnp.meshgrid(x[:2], x[:2])
    q = jnp.where(np.eye(2, dtype=bool), rows, 1 / (rows - columns))
    return jax.lax.scan(lambda c, y: (jnp.tanh(q @ c) * y, c + y), x[2:], x)


def factor(x):
    x = jnp.outer(x[:3], x[1:]) + jnp.diag(x[:3])
    return jnp.linalg.cholesky(x.T @ x + 4 * jnp.eye(3)) @ x


def solver_of_ones_own(x):
    """A root whose linear systems are solved by a loop of unknown length."""

    def damped(g, y):
        return jax.lax.while_loop(
            lambda c: c[1] < 60, lambda c: (c[0] + 0.1 * (y - g(c[0])), c[1] + 1), (y, 0)
        )[0]

    def solve(f, u):
        return jax.lax.fori_loop(0, 30, lambda _, u: u - 0.2 * f(u), u)

    p, q = 2 + x[:1], x[1:]
    return jax.lax.custom_root(lambda u: p * u + u**3 - q, jnp.zeros_like(q), solve, damped)


@jax.custom_batching.custom_vmap
def batched_by_hand(x):
    return jnp.sin(x)


@batched_by_hand.def_vmap
def _(_, in_batched, x):
    return jnp.sin(x), in_batched[0]


ONE_MODE = {  # functions of which one of JAX's modes is none, or another one
    "rule that is not linear": (by_a_rule_that_is_not_linear, jax.jacrev),
    "known mask": (by_a_known_mask, jax.jacfwd),
    "half of a factor": (factor, jax.jacfwd),
    "cotangents alone": (lambda x: bounded(x) * x[::-1], jax.jacrev),
    "loop of unknown length": (
        lambda x: jax.lax.while_loop(lambda c: c[0] < 2, lambda c: c + jnp.sin(c), x), jax.jacfwd
    ),
    "root by a solver": (solver_of_ones_own, jax.jacfwd),
    "batched by hand": (
        lambda x: batched_by_hand(x) * x[0] + jnp.linalg.inv(jnp.diag(x)) @ x, jax.jacfwd
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE_MODE)
def test_functions_of_one_mode(x64, name):
    fun, mode = ONE_MODE[name]
    assert_same(jax.jit(veenv.jacve(fun))(X), mode(fun)(X), 1e-8)
