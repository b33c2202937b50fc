"""Arguments, containers and refusals of `jacve`, exactly those of `jax.jacrev`."""

from __future__ import annotations

import functools
import inspect
import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import (
    assert_compiled_same,
    assert_same,
    check_sparse,
    quick_jit,
)
from tests.sampling import spared
from veenv import jacve, value_and_jacve

pytestmark = pytest.mark.usefixtures("x64")

X = np.array([0.3, -0.7, 1.1])
Y = np.array([0.9, 0.4, -1.2])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Body:
    """A registered dataclass with a field that is no array."""

    position: Any
    velocity: Any
    name: str = field(metadata={"static": True}, default="body")


class Pair(NamedTuple):
    left: Any
    right: Any


def product(x, y, z):
    return jnp.sin(x * y) * z


ARGS = (X, Y, np.asarray(1.7))
EAGER = lambda fun: fun  # noqa: E731


ARGNUMS = [0, 1, 2, -1, -3, (0,), (0, 1), (2, 0), (-1, 0), [1, 2], range(2), range(1, 3)]
ARGNUMS += [np.int64(1), np.array([0, 2]), (np.int32(1), 0)]


def test_argnums():
    """NumPy's integers are integers, as jax.jacfwd and jax.grad see them."""
    kinds = [(a, int(a) if isinstance(a, np.integer) else a) for a in ARGNUMS]
    pairs = [(jacve(product, "markowitz", a), jax.jacrev(product, b)) for a, b in kinds]
    assert_compiled_same(pairs, *ARGS)


@pytest.mark.parametrize("transform", [jacve, value_and_jacve, veenv.filter_jacve])
def test_a_jacobian_has_the_signature_of_its_function(transform):
    """So `jax.jit` finds static arguments by their names."""

    def power(x, n, *, scale=2.0):
        """x to the n."""
        return scale * x**n

    jacobian = transform(power)
    assert jacobian.__name__ == "power"
    assert inspect.signature(jacobian) == inspect.signature(power)
    static = jax.jit(jacobian, static_argnames=("n", "scale"))
    assert_same(jax.tree.map(jnp.asarray, static(X, n=3)), jacobian(X, 3))


WEAK = {
    "scalar": lambda x: x * 2,
    "array": lambda x: x * jnp.arange(3.0),
    "several": lambda x: {"a": jnp.sin(x), "b": x * jnp.ones(2, jnp.float32), "c": x},
    "constant": lambda x: jax.lax.stop_gradient(x),
    "strong": lambda x: jnp.asarray(x, jnp.float32) * 2,
}


@pytest.mark.parametrize("name", WEAK)
@pytest.mark.parametrize("arg", [1.5, np.float32(1.5)], ids=["weak", "strong"])
def test_weak_types_are_those_of_jacrev(name, arg):
    def weak(tree):
        return jax.tree.map(lambda x: (x.dtype, x.weak_type), tree)

    fun = WEAK[name]
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        expected = weak(jax.jacrev(fun)(arg))
        for order in ("forward", "reverse"):
            assert weak(jacve(fun, order)(arg)) == expected
            assert weak(jax.eval_shape(jacve(fun, order), arg)) == expected
        value, jacobian = value_and_jacve(fun)(arg)
        assert weak(jacobian) == expected
        assert weak(value) == weak(jax.jit(fun)(arg))


@pytest.mark.parametrize("arg", [1.5, np.float32(1.5)], ids=["weak", "strong"])
def test_weak_types_of_the_auxiliary_output(arg):
    def fun(x):
        return x**2, {"same": x, "made": x + 1, "constant": 4.0, "strong": np.float32(2)}

    for transform in (lambda f: f, jax.jit):
        found, expected = (transform(j(fun, has_aux=True))(arg)[1] for j in (jacve, jax.jacrev))
        assert jax.tree.map(jax.typeof, found) == jax.tree.map(jax.typeof, expected)
        assert found == expected


@pytest.mark.parametrize("arg", [1.5, np.float32(1.5)], ids=["weak", "strong"])
def test_weak_types_are_kept_by_hessians_and_sparse_blocks(arg):
    def fun(x):
        return jnp.sin(x) * x

    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        weak = jax.jacrev(fun)(arg).weak_type
        block = jacve(fun, sparse_representation=True)(arg)
        for found in (veenv.hessian(fun)(arg), block.todense(), block.T.todense()):
            assert found.weak_type == weak
        assert (2 * block).todense().weak_type == weak
        assert not (np.float32(2) * block).todense().weak_type


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype float64")  # by the function, in JAX
@pytest.mark.parametrize(
    ("kernel", "transform", "captured"),
    spared(itertools.product(["auto", "xla", "fused"], [EAGER, jax.jit], [False, True]),
        ("auto", EAGER, False), ("auto", jax.jit, True), ("xla", jax.jit, False),
        ("fused", EAGER, True), ("fused", jax.jit, False)),
)  # fmt: skip
def test_arrays_that_were_made_with_x64_keep_their_dtype_without(kernel, transform, captured):
    x = jnp.asarray(X)
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        x32 = jnp.asarray(X, np.float32)
        fun, at = (lambda y: jnp.sin(y * x), x32) if captured else (lambda y: jnp.sin(y) * x32, x)
        found = transform(jacve(fun, kernel=kernel))(at)
        expected = transform(jax.jacrev(fun))(at)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
        block = jacve(fun, sparse_representation=True)(at)
        for other in (block.todense(), block.T.todense()):
            assert other.dtype == expected.dtype
        assert veenv.hessian(lambda y: fun(y).sum())(at).dtype == expected.dtype


@pytest.mark.parametrize("kernel", ["auto", "xla", "fused"])
@pytest.mark.parametrize("transform", [lambda g: g, jax.jit], ids=["eager", "jit"])
def test_arrays_that_were_made_with_x64_keep_their_precision_without(kernel, transform):
    x, expected = jnp.asarray(X), np.diag(np.cos(X) * X + np.sin(X))
    with jax.enable_x64(False):
        found = transform(jacve(lambda y: jnp.sin(y) * y, kernel=kernel))(x)
        np.testing.assert_allclose(found, expected, rtol=1e-14)


CONTAINERS = {
    "dict": (lambda d: {"out": d["a"] * d["b"].sum(), "b": d["b"]}, {"a": X, "b": Y}),
    "tuple": (lambda t: (t[0] * t[1], [t[0], jnp.cos(t[1])]), (X, Y)),
    "list": (lambda t: t[0] @ t[1], [X, Y]),
    "namedtuple": (lambda p: Pair(p.left * p.right, p.left.sum()), Pair(X, Y)),
    "dataclass": (lambda b: Body(b.position + 0.1 * b.velocity, b.velocity * b.position.sum(),
        b.name), Body(X, Y, "planet")),
    "nested": (lambda t: {"p": (t["b"][0].left * t["b"][1], None), "q": [t["b"][0].right]},
        {"b": [Pair(X, Y), np.asarray(0.5)], "none": None}),
    "none leaves": (lambda t: (t[0] * 2, None), (X, None)),
    "python float": (lambda s: (s * s, jnp.sin(s)), 0.7),
    "numpy scalar": (lambda s: s * X, np.float64(0.7)),
}  # fmt: skip


def test_containers():
    def within(transform, name, *order):
        return lambda args: transform(CONTAINERS[name][0], *order)(args[name])

    pairs = [
        (within(jacve, name, order), within(jax.jacrev, name))
        for name in CONTAINERS
        for order in ("forward", "reverse")
    ]
    assert_compiled_same(pairs, {name: arg for name, (_, arg) in CONTAINERS.items()})


@pytest.mark.parametrize("name", ["none leaves", "python float", "numpy scalar"])
def test_containers_outside_of_jit(name):
    fun, arg = CONTAINERS[name]
    assert_same(jacve(fun)(arg), jax.jacrev(fun)(arg))


def test_keyword_arguments_are_passed_and_not_differentiated():
    def fun(x, *, scale, mode="sin"):
        return getattr(jnp, mode)(x) * scale

    got = jacve(fun)(X, scale=Y, mode="cos")
    assert_same(got, quick_jit(jax.jacrev(lambda x: jnp.cos(x) * Y))(X))


def test_other_arguments_stay_concrete():
    """As in `jax.jacrev`, they may decide Python control flow and need not be arrays."""

    def fun(x, n, power, table):
        for _ in range(n):
            x = table["f"](x) ** power
        return x

    args = (X, 2, 2, {"f": jnp.sin, "name": "sine"})
    assert_same(jacve(fun)(*args), quick_jit(jax.jacrev(lambda x: fun(x, *args[1:])))(X))


def _decided_by_value(x, n):
    """Control flow, a shape and a NumPy call that need the value of an array."""
    if jnp.sum(n) > 2:
        x = jnp.sin(x) * jnp.arange(float(n[0]))[0] + x
    for _ in range(int(n.max())):
        x = x * x * 1.1
    return x * float(np.asarray(n).sum()) + x[: n[1]].sum()


@pytest.mark.parametrize("kind", [jnp.asarray, np.asarray], ids=["jax", "numpy"])
@pytest.mark.parametrize("n", [[2, 1], [1, 1]], ids=str)
def test_arrays_that_are_not_differentiated_by_may_decide_control_flow(kind, n):
    args = (X, kind(n))
    expected = jax.jacrev(_decided_by_value)(*args)
    assert_same(jacve(_decided_by_value, "markowitz")(*args), expected)
    assert_same(jacve(lambda n, x: _decided_by_value(x, n), argnums=1)(*args[::-1]), expected)
    assert_same(jacve(lambda x, *, n: _decided_by_value(x, n))(X, n=args[1]), expected)
    captured = jacve(lambda x: _decided_by_value(x, args[1]))
    assert_same(captured(X), expected)
    with pytest.raises(jax.errors.ConcretizationTypeError):  # no value in jit: as in jax.jacrev
        jax.jit(jacve(_decided_by_value))(*args)


def test_numbers_of_vertices_do_not_depend_on_jit_where_values_decide():
    """An order found outside of jit runs inside, for arguments and for captured arrays."""
    weights = jnp.arange(3.0)
    flags = jnp.asarray([1, 0])

    def fun(x, y):
        x = jnp.sin(y * weights) * x if flags.sum() > 0 else x
        return jnp.exp(x * jnp.cos(y)) * x

    ids = veenv.make_graph(fun)(X, Y).markowitz()
    assert_same(jax.jit(jacve(fun, ids))(X, Y), jax.jacrev(fun)(X, Y))
    n = jnp.asarray([2, 1])
    ids = veenv.make_graph(_decided_by_value)(X, n).markowitz()
    inside = jax.jit(lambda x: jacve(_decided_by_value, ids)(x, n))
    assert_same(inside(X), jax.jacrev(_decided_by_value)(X, n))


def test_counts_come_last():
    graph = veenv.make_graph(product, (0, 1))(*ARGS)
    jacobian, counts = jacve(product, "forward", (0, 1), count_ops=True)(*ARGS)
    assert_same(jacobian, quick_jit(jax.jacrev(product, (0, 1)))(*ARGS))
    assert counts.order == graph.forward()
    assert counts.multiplications_per_vertex == graph.costs(graph.forward())
    assert counts.executed_per_vertex == graph.costs(graph.forward(), "executed")
    assert counts.multiplications == graph.cost(graph.forward())
    result = value_and_jacve(lambda x: (x * x, x), has_aux=True, count_ops=True)(X)
    assert isinstance(result[-1], veenv.Counts)
    assert_same(result[1], jnp.diag(2 * X))


HOLOMORPHIC = {
    "power": lambda z: z**3 + 2j * z,
    "elementary": lambda z: jnp.exp(z) * jnp.sin(z) / (z + 3),
    "matmul": lambda z: jnp.outer(z, z * 1j) @ z,
    "fft": lambda z: jnp.fft.fft(z * z)[1:],
    "scan": lambda z: jax.lax.scan(lambda c, x: (c * x + 1, c), 1 + 0j, z)[1] + z,
    "solve": lambda z: jnp.linalg.solve(jnp.diag(z) + 1j, z * z),
    # by conjugates and parts, where JAX's modes differ if the whole has no derivative
    "conjugates": lambda z: jnp.conj((1 + 2j) * jnp.sin(jnp.conj(z)))[::-1],
    "a conjugate": lambda z: jnp.conj(z) * (2 - 1j) * z,
    "parts": lambda z: jax.lax.complex(z.imag**2, abs(z)) / jnp.vdot(z, z),
    "itself": lambda z: (z, jnp.vdot(z, 1j * z) * z),
    "scan by conjugates": lambda z: jax.lax.scan(lambda c, x: (jnp.conj(c) * x, c), 1 + 0j, z),
    "factors": lambda z: jnp.linalg.qr(jnp.outer(z, z) + jnp.diag(jnp.conj(z) + 1))[0],
}


@pytest.mark.parametrize("order", spared(["forward", "reverse", "markowitz"], "forward"))
def test_holomorphic(order):
    pairs = [
        (jacve(fun, order, holomorphic=True), jax.jacrev(fun, holomorphic=True))
        for fun in HOLOMORPHIC.values()
    ]
    assert_compiled_same(pairs, X + 1j * Y)


def test_holomorphic_sparse():
    z = X + 1j * Y
    for name in ("conjugates", "a conjugate", "elementary"):
        oracle = functools.partial(jax.jacrev, holomorphic=True)
        options = {"oracle": oracle, "holomorphic": True, "rtol": 1e-5, "atol": 0}
        check_sparse(HOLOMORPHIC[name], z, stored=z.size, **options)


def three_vertices(x):
    return jnp.cos(jnp.exp(jnp.sin(x))) * 2


@pytest.mark.parametrize("kind", [tuple, list, iter, np.array])
def test_any_sequence_is_an_order(kind):
    jacobian = jacve(three_vertices, kind([2, 1, 3]))
    expected = quick_jit(jax.jacrev(three_vertices))(1.0)
    for _ in range(2):
        assert_same(jacobian(1.0), expected)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_integers_among_the_arguments_have_float0_blocks(sparse):
    def fun(d):
        powers = d["x"] ** d["n"].astype(d["x"].dtype)
        return jnp.where(d["flag"], powers, d["n"].astype(powers.dtype)).sum() * d["x"][1]

    d = {"x": X, "n": np.array([2, 3, 1]), "flag": np.array([True, True, False])}
    got = jacve(fun, "markowitz", sparse_representation=sparse, allow_int=True)(d)
    expected = jax.eval_shape(jax.grad(fun, allow_int=True), d)
    slope = quick_jit(jax.grad(lambda x: fun(d | {"x": x})))(X)
    for name in ("n", "flag"):
        assert (got[name].shape, got[name].dtype) == (expected[name].shape, jax.dtypes.float0)
    assert_same(got["x"].todense() if sparse else got["x"], slope)
    value, _ = value_and_jacve(fun, allow_int=True)(d)
    np.testing.assert_allclose(value, fun(d))
    with pytest.raises(TypeError, match="dtype bool"):
        jacve(fun)(d)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("order", ["forward", "reverse"])
@pytest.mark.parametrize(
    "fun",
    [lambda z: abs(z) ** 2, lambda z: jnp.cumsum(z.imag * z.real),
        lambda z: (z * z.conj()).real.sum(), lambda z: jnp.abs(jnp.fft.fft(z)),
        lambda z: jnp.ones(3)],
    ids=["norm", "parts", "sum", "fft", "constant"],
)  # fmt: skip
def test_real_functions_of_complex_arguments(fun, order, sparse):
    jacobian = jacve(fun, order, sparse_representation=sparse)
    dense = (lambda z: jacobian(z).todense()) if sparse else jacobian
    assert_compiled_same([(dense, jax.jacrev(fun))], X + 1j * (np.flip(X) + 0.3))


def test_a_python_complex_number():
    assert complex(jacve(lambda z: abs(z) ** 2)(1 + 2j)) == pytest.approx(2 - 4j)


@pytest.mark.parametrize("order", ["reverse", "forward"])
def test_a_python_number_at_a_pole(order):
    assert float(jacve(lambda x: jnp.where(x > 0, 1 / x, 0.0), order)(0.0)) == 0.0
    assert float(jacve(lambda x: 1 / x, order)(0.0)) == -jnp.inf


def test_real_functions_of_complex_and_real_arguments():
    def fun(d):
        return {"a": jnp.abs(d["z"]) * d["x"], "b": d["x"].sum()}

    d = {"z": X + 2j, "x": X}
    assert_compiled_same([(jacve(fun, "markowitz", allow_int=True), jax.jacrev(fun))], d)


def test_what_is_not_callable_is_refused():
    with pytest.raises(TypeError, match="callable"):
        jacve(3)  # type: ignore[arg-type]


def needs_value(p, x):
    return x["a"] if x["a"][0] > 0 else -p


class Branching:
    def __call__(self, x):
        return x if x[0] > 0 else -x


@pytest.mark.parametrize(
    ("fun", "argnums", "args", "name", "argument"),
    [(needs_value, 1, (X, {"a": X}), "needs_value", r"x\['a'\]"),
        (functools.partial(needs_value, X), 0, ({"a": X},), "needs_value", r"x\['a'\]"),
        (lambda *all: all[1] if all[1][0] > 0 else all[0], 1, (X, X), "<lambda>", "args_1"),
        (Branching(), 0, (X,), "__call__", "x")],
    ids=["argument", "partial", "variadic", "object"],
)  # fmt: skip
@pytest.mark.parametrize("transform", [lambda g: g, jax.jit], ids=["eager", "jit"])
def test_errors_of_tracing_name_the_function_its_line_and_the_argument(
    fun, argnums, args, name, argument, transform
):
    where = rf"{name} at \S*test_signatures.py:\d+ .*argument {argument}\."
    with pytest.raises(jax.errors.TracerBoolConversionError, match=where) as raised:
        transform(jacve(fun, argnums=argnums))(*args)
    assert any("traced by its shape" in note for note in raised.value.__notes__)


@pytest.mark.parametrize("transform", [jacve, value_and_jacve, veenv.hessian])
@pytest.mark.parametrize("numbers", [(0, 1), [1, 0], range(1), (-1,), np.array([0, 1])])
def test_argnums_in_the_place_of_the_order_are_asked_about(transform, numbers):
    with pytest.raises(ValueError, match=r"did you mean argnums=\("):
        transform(lambda x, y: jnp.sin(x) * y, numbers)(X[0], X[1])
    for number in (1, np.int64(0)):
        with pytest.raises(TypeError, match="did you mean argnums="):
            transform(jnp.sin, number)


def test_an_order_is_an_order():
    fun = lambda x, y, z: jnp.exp(jnp.sin(jnp.cos(x))) * y * z  # noqa: E731
    args = X[0], X[1], X[1]
    ids = veenv.make_graph(fun)(*args).eliminable
    expected = quick_jit(jax.jacrev(fun))(*args)
    np.testing.assert_allclose(jacve(fun, ids)(*args), expected, rtol=1e-5)
    for order, argnums in ((ids[1:], (0, 1)), ((9, 9), 0), ((7, 8), 0)):
        with pytest.raises(ValueError, match=r"^((?!did you mean).)*$"):
            jacve(fun, order, argnums)(*args)


@pytest.mark.parametrize("derivative", [veenv.jacve, veenv.hessian, veenv.value_and_jacve])
def test_argnums_of_an_argument_by_keyword_are_named(derivative):
    made = derivative(lambda x, k: x * k, argnums=1)
    for run in (made, jax.jit(made)):
        with pytest.raises(ValueError, match="pass these keyword arguments by position: 'k'"):
            run(X, k=3.0)


def test_the_name_of_an_order_file_without_its_ending(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("rates.json").write_text("{}", "utf-8")
    with pytest.raises(ValueError, match=r"did you mean 'rates\.json'"):
        veenv.jacve(jnp.sin, "rates")(X)


def test_an_order_for_another_graph_says_how_to_search_anew():
    graph = veenv.make_graph(jnp.sin)(X)
    order = veenv.Order.from_graph(graph, graph.reverse(), name="mine")
    with pytest.raises(ValueError, match=r"another graph: .* veenv\.optimize"):
        veenv.jacve(lambda x: jnp.sin(x) * x, order)(X)


@pytest.mark.parametrize("make", [jacve, value_and_jacve, veenv.hessian])
@pytest.mark.parametrize("value", ["no", "bcoo", 2, None])
def test_options_that_are_neither_on_nor_off_are_refused(make, value):
    options = ["has_aux", "holomorphic", "sparse_representation"]
    options += [] if make is veenv.hessian else ["count_ops", "allow_int"]
    for option in options:
        with pytest.raises(TypeError, match=f"{option} must be True or False, got {value!r}"):
            make(jnp.sin, **{option: value})
    with pytest.raises(TypeError, match=f"has_aux must be True or False, got {value!r}"):
        veenv.explain(jnp.sin, 1.0, has_aux=value)
    make(jnp.sin, sparse_representation=np.True_)
