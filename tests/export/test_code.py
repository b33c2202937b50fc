"""The exported source, executed without veenv, is the Jacobian; so is exported StableHLO."""

from __future__ import annotations

import ast
import unicodedata

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export as jax_export

import veenv
from tests.oracles.jacobians import quick_jit
from tests.sampling import spared
from veenv.export import to_code
from veenv.orders.order import Order

TASKS = "RoeFlux_1d RobotArm_6DOF PropaneCombustion mlp Encoder LIF KerrMetric Robertson".split()
REST = sorted(set(veenv.tasks.list()) - set(TASKS))


def executed(source, name="jacobian"):
    """The function that the source defines, compiled; the source may import JAX and NumPy only."""
    imported = {
        alias.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    assert imported <= {"jax", "jax.numpy", "numpy", "base64", "zlib"}
    scope = {}
    exec(compile(source, "<exported>", "exec"), scope)
    return quick_jit(scope[name])


def assert_close(found, expected, rtol=1e-9):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    scale = 1e-2 * max(np.abs(e).max() for e in jax.tree.leaves(expected))
    for f, e in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert f.shape == e.shape
        assert f.dtype == e.dtype
        np.testing.assert_allclose(f, e, rtol=rtol, atol=rtol * max(scale, np.abs(e).max()))


def check_task(name):
    task = veenv.tasks.get(name)
    args = task.example_args()
    source = to_code(veenv.best_order(name), task.fun, *args, argnums=task.argnums)
    expected = quick_jit(jax.jacrev(task.fun, task.argnums))(*args)
    assert_close(executed(source)(*args), expected)


@pytest.mark.parametrize("name", spared(TASKS, "mlp", "Robertson"))
def test_source_of_a_task_gives_its_jacobian(name, x64):
    check_task(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", REST)
def test_source_of_another_task_gives_its_jacobian(name, x64):
    check_task(name)


def rich(x, tree, flag):
    """Many kinds of equations, nested functions, constants and containers."""
    table = jnp.asarray(np.linspace(0.0, 1.0, 70).reshape(7, 10))
    a, (b,) = tree["a"], tree["b"]
    y = jax.nn.relu(x) * a + jax.lax.cumsum(x)[::-1] @ jnp.eye(4)
    y = jnp.where(flag, y, jnp.exp(-y)) + table[2, 3] * jnp.sort(x)
    y = y.at[1].multiply(b).at[jnp.array([0, 2])].add(jnp.max(x))
    z = jax.lax.cond(x[0] > 0, jnp.sin, lambda v: jnp.cos(v) * a, y)
    w = jnp.concatenate([z, jax.lax.dynamic_slice(y, (1,), (2,)), jnp.round(x)])
    return {"w": w[None], "rest": [jnp.linalg.norm(z), (a * b, None)]}


RICH_ARGS = (
    jnp.array([0.3, -1.2, 0.8, 2.5]),
    {"a": jnp.array(1.5), "b": (jnp.array(0.7),)},
    jnp.array(True),
)


@pytest.mark.parametrize("order", spared(["forward", "reverse", "markowitz"], "markowitz"))
@pytest.mark.parametrize("precision", spared([False, True], True), indirect=True)
def test_source_of_many_kinds_of_equations(order, precision):
    args = jax.tree.map(lambda a: a.astype(precision) if a.dtype != bool else a, RICH_ARGS)
    source = to_code(order, rich, *args, argnums=(0, 1))
    expected = quick_jit(jax.jacrev(rich, (0, 1)))(*args)
    assert_close(executed(source)(*args), expected, 1e-12 if precision == "float64" else 1e-5)


def test_source_holds_loops():
    def newton(x, a):
        step = lambda c: (c[0] + 1, 0.5 * (c[1] + jax.lax.stop_gradient(a) / c[1]))  # noqa: E731
        steps, root = jax.lax.while_loop(lambda c: c[0] < 5, step, (0, jax.lax.stop_gradient(x)))
        return root * x + steps * a

    source = to_code("reverse", newton, 1.0, 2.0, argnums=(0, 1))
    assert "lax.while_loop" in source
    np.testing.assert_allclose(executed(source)(1.0, 2.0), (2**0.5, 5.0), rtol=1e-6)


def loops(x, steps):
    """A loop with constants, a state of two parts and stacked results, backwards; one without."""

    def step(c, v):
        a, n = c
        return (jnp.tanh(a * v + x[0]), n + 1), (a * v, n)

    (last, _), (trace, counts) = jax.lax.scan(step, (x[1], 0), steps, reverse=True)
    total = jax.lax.fori_loop(0, 3, lambda _, y: y * x[2] + last, last)
    return trace + counts.astype(x.dtype), total


def parts(x, y):
    """Stacks and their parts, windows, solves, spectra, what a function of libm becomes."""
    a, b = x
    both = jnp.stack([a * b, jnp.tanh(b)], axis=1)
    image = jnp.tile(both[None, :, :, None], (1, 2, 1, 1))
    seen = jax.lax.conv_general_dilated(
        image, y, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    matrix = jnp.linalg.cholesky(both.T @ both + jnp.eye(2))
    solved = jax.scipy.linalg.solve_triangular(matrix, both.T, lower=True)
    spectrum = jnp.abs(jnp.fft.rfft(a)) + jnp.log2(2 + b[:2] ** 2)
    return seen, solved, spectrum, jax.nn.gelu(a, approximate=False).at[0].subtract(b[1])


@pytest.mark.parametrize(
    ("fun", "args"),
    [
        (loops, ([0.3, -0.7, 1.1], [0.5, 0.2, -0.4, 0.9])),
        (parts, ([[0.3, -0.7, 1.1], [0.4, 0.6, -0.2]], 0.1 * np.arange(8.0).reshape(2, 2, 1, 2))),
    ],
    ids=["loops", "parts"],
)
def test_source_of_what_functions_are_made_of(fun, args, x64):
    args = [jnp.asarray(x) for x in args]
    source = to_code("reverse", fun, *args, argnums=(0, 1))
    assert_close(executed(source)(*args), quick_jit(jax.jacrev(fun, (0, 1)))(*args))


def test_source_of_a_jacobian_stores_what_a_batch_stores(x64):
    def spread(x):
        for _ in range(3):
            x = jnp.sin(x) * x
        return jnp.outer(x, x)

    x, jacobian = np.linspace(0.3, 1.2, 4), veenv.jacve(spread)
    assert "veenv_batch_barrier" in repr(veenv.make_graph(jacobian)(x))
    source = to_code("reverse", jacobian, x)
    assert "lax.optimization_barrier" in source
    assert_close(executed(source)(x), quick_jit(jax.jacrev(jacobian))(x))


def test_source_with_the_value_and_a_name():
    def f(x, scale):
        return scale * jnp.sin(x)

    graph = veenv.make_graph(f)(1.0, 2.0)
    order = Order.from_graph(graph, graph.reverse())
    source = to_code(order, f, 1.0, 2.0, with_value=True, name="value_and_slope")
    value, slope = executed(source, "value_and_slope")(jnp.array(0.5), scale=3.0)
    np.testing.assert_allclose([value, slope], [3 * np.sin(0.5), 3 * np.cos(0.5)], rtol=1e-6)


NAMES = (
    "sum complex ValueErrors c x r v1 x0 x1 arg0 arg1 f2 jax np lambda_ print _sum class_ ſ".split()
)


@pytest.mark.parametrize("name", ["sum", "complex", "print", "f", "c", "x", "ſum", "jacobian"])
def test_names_of_all_kinds_survive(name):
    """Of arguments and of the function: builtins, those of the source, the same after mangling."""

    def body(*args):
        total = jax.lax.scan(lambda c, x: (c * x, c + x), args[0], jnp.stack(args))
        complexes = jax.lax.complex(args[1], args[0]) * jnp.complex64(0.5 + 2j)
        return total[0] * jnp.real(complexes), total[1]

    scope = {"body": body}
    names = [n for n in NAMES if n != "ſ"]
    exec(f"def fun({', '.join(names)}, /, *rest): return body({', '.join(names)}, *rest)", scope)
    args = [jnp.float32(1 + n / 10) for n in range(len(names) + 1)]
    source = to_code("reverse", scope["fun"], *args, argnums=(0, 1), name=name)
    expected = quick_jit(jax.jacrev(scope["fun"], (0, 1)))(*args)
    plain = unicodedata.normalize("NFKC", name)
    assert_close(executed(source, plain)(*args), expected, 1e-5)


@pytest.mark.parametrize(
    "name", ["jax", "ｊａｘ", "v1", "_sum", "ValueError", "class", "__debug__"]
)
def test_names_that_a_function_cannot_have(name):
    with pytest.raises(ValueError, match="free Python identifier"):
        to_code("reverse", jnp.sin, 1.0, name=name)


def test_source_is_the_elimination_that_was_ordered():
    """Different orders give different sources; unused values are not computed."""
    task = veenv.tasks.get("RobotArm_6DOF")
    args = task.example_args()
    lines = {
        order: to_code(order, task.fun, *args, argnums=task.argnums).count("lax.mul")
        for order in ("forward", "best-executed")
    }
    assert lines["best-executed"] < lines["forward"]
    source = to_code("reverse", lambda x: jnp.exp(x) + 3.0 * x, 1.0)
    assert source.count("lax.exp") == 1
    assert "3.0" in source
    assert "lax.mul" not in source


def test_source_checks_shapes_and_dtypes():
    source = to_code("reverse", lambda x: jnp.sin(x), jnp.ones(3))
    run = executed(source)
    with pytest.raises(ValueError, match=r"expected float32\(3,\), got float32\(4,\)"):
        run(jnp.ones(4))
    with jax.enable_x64(True):
        wide = to_code("reverse", lambda x: jnp.sin(x), jnp.ones(3))
    with pytest.raises(ValueError, match="float64"), pytest.warns(UserWarning, match="truncated"):
        executed(wide)(np.ones(3))


@pytest.mark.parametrize(
    ("fun", "argument", "message"),
    [
        (lambda x: jnp.linalg.inv(x), jnp.eye(3) * 2, "primitive '[a-z_]+' cannot be written"),
        (lambda x: x * np.arange(2e6), jnp.ones(()), "2000000 numbers is too large"),
    ],
    ids=["primitive", "constant"],
)
def test_what_cannot_be_written_is_refused(fun, argument, message):
    with pytest.raises(ValueError, match=message):
        to_code("reverse", fun, argument)


def test_a_container_of_another_kind_is_refused():
    import collections

    point = collections.namedtuple("point", "x y")
    with pytest.raises(ValueError, match="an output in a point cannot be written"):
        to_code("reverse", lambda x: point(x, jnp.sin(x)), 1.0)
    with pytest.raises(ValueError, match="name must be a free Python identifier"):
        to_code("reverse", jnp.sin, 1.0, name="x1")


def test_an_order_for_another_graph_is_refused():
    task = veenv.tasks.get("Robertson")
    with pytest.raises(ValueError, match="another graph"):
        to_code(veenv.best_order("Robertson"), lambda *a: task.fun(*a)[0], *task.example_args())


@pytest.mark.parametrize("name", spared(["RobotArm_6DOF", "mlp", "LIF"], "LIF"))
def test_stablehlo_makes_the_round_trip(name):
    task = veenv.tasks.get(name)
    args = jax.tree.map(jnp.float32, task.example_args())
    run = jax.jit(veenv.jacve(task.fun, "best", task.argnums))
    exported = jax_export.export(run)(*args)
    assert "stablehlo." in exported.mlir_module()
    again = jax_export.deserialize(exported.serialize())
    assert_close(again.call(*args), run(*args), 1e-6)
