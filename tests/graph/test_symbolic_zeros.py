"""Rules that are told which tangents and cotangents are zero: they are told what JAX tells them."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import assert_compiled_same, assert_same, quick_jit
from tests.sampling import spared

pytestmark = pytest.mark.usefixtures("x64")

X, Y = np.array([0.3, 1.4, -0.7]), np.array([1.0, 2.0, 3.0])
ORDERS = ["forward", "reverse", "markowitz"]


def watched(expected: tuple[bool, ...], perturbed: tuple[bool, ...], rule):
    """A function of two arguments and two results whose rule refuses other zeros than these."""

    @jax.custom_vjp
    def fun(x, y):
        return x * y, jnp.sin(x)

    def forward(x, y):
        assert (x.perturbed, y.perturbed) == perturbed
        return fun(x.value, y.value), (x.value, y.value)

    def backward(residual, cotangents):
        assert tuple(type(g).__name__ == "SymbolicZero" for g in cotangents) == expected
        known = [
            jnp.zeros(g.shape, g.dtype) if z else g
            for g, z in zip(cotangents, expected, strict=True)
        ]
        return rule(residual, known)

    fun.defvjp(forward, backward, symbolic_zeros=True)
    return fun


def product(residual, g):
    x, y = residual
    return g[0] * y + g[1] * jnp.cos(x), g[0] * x


def first_alone(residual, g):
    """A rule that says that the second result has no derivative."""
    x, y = residual
    return g[0] * y, g[0] * x


CASES = {
    # The second result has no derivative by the rule, and is asked for all the same.
    "no derivative": lambda: watched((False, False), (True, True), first_alone),
    "both": lambda: watched((False, False), (True, True), product),
}


@pytest.mark.parametrize("name", CASES)
def test_results_that_are_asked_for_are_not_symbolic_zeros(name):
    fun = CASES[name]()
    used = lambda x, y: (lambda a, b: (a, b * x))(*fun(x, y))  # noqa: E731
    functions = itertools.product((fun, jax.jit(fun), jax.vmap(fun), used), ORDERS)
    pairs = [(veenv.jacve(f, order, (0, 1)), jax.jacrev(f, (0, 1))) for f, order in functions]
    assert_compiled_same(pairs, X, Y)
    expected = quick_jit(jax.jacrev(fun, (0, 1)))(X, Y)
    for order in ORDERS:
        assert_same(veenv.jacve(fun, order, (0, 1))(X, Y), expected)


@pytest.mark.parametrize("order", ORDERS)
def test_results_that_nobody_asks_for_are(order):
    """The rule refuses to be applied to all of its results, even once."""
    fun = watched((False, True), (True, False), product)
    stopped = lambda x: (lambda a, b: a * jax.lax.stop_gradient(b))(*fun(x, Y))  # noqa: E731
    batched = lambda x: jax.vmap(fun)(x, jnp.asarray(Y))[0].sum()  # noqa: E731
    functions = lambda x: fun(x, Y)[0], batched, stopped, jax.jit(stopped)
    assert_compiled_same([(veenv.jacve(f, order), jax.jacrev(f)) for f in functions], X)


def test_a_rule_that_refuses_what_is_asked_for_says_so():
    fun = watched((False, True), (True, True), product)
    with pytest.raises(AssertionError):
        veenv.jacve(fun)(X, Y)


def test_rules_that_are_operators_see_them_too():
    """A matrix for every entry: the rule is left an operator."""
    matrix = np.arange(9.0).reshape(3, 3) * np.ones((40, 1, 1))

    def mixing(residual, g):
        spread = jnp.einsum("bij,bj->bi", matrix, g[0])
        return jnp.cumsum(spread, 0), g[1]

    @jax.custom_vjp
    def fun(x, y):
        return jnp.cumsum(jnp.einsum("bji,bj->bi", matrix, x), 0), y

    def backward(_, g):
        assert not any(type(v).__name__ == "SymbolicZero" for v in g)
        return mixing(_, g)

    fun.defvjp(lambda x, y: (fun(x.value, y.value), None), backward, symbolic_zeros=True)
    x = np.linspace(0.0, 1.0, 120).reshape(40, 3)
    f = lambda x: fun(jnp.sin(x), x)  # noqa: E731
    ours = [veenv.jacve(f, order) for order in ("reverse", "forward")]
    assert_compiled_same([(jacobian, jax.jacrev(f)) for jacobian in ours], x)


MATRIX = np.arange(9.0).reshape(3, 3) / 9
OPERATORS = {
    "complex": lambda v: v * jnp.asarray(1 + 2j),
    "conjugate": jnp.conj,
    "two real": lambda v: jax.lax.complex(v.real, 2 * v.imag - v.real),
    "matrices": lambda v: jnp.cumsum(v.reshape(3, 3) @ MATRIX, 0).reshape(-1),
}


@pytest.mark.parametrize(
    ("name", "place"),
    spared(itertools.product(OPERATORS, ["alone", "scan", "cond"]), ("complex", "scan"),
        ("conjugate", "alone"), ("two real", "cond"), ("matrices", "alone"), ("matrices", "scan"),
        ("matrices", "cond")),
)  # fmt: skip
def test_operators_are_told_of_all_that_moves_at_once(name, place):
    """A rule that passes a tangent on only if another operand has one, as a loop's may."""
    act = OPERATORS[name]

    @jax.custom_jvp
    def watching(start, end):
        return act(end)

    def push(primals, tangents):
        moves = [type(t).__name__ != "SymbolicZero" for t in tangents]
        assert moves[1]
        tangent = act(tangents[1]) if moves[0] else jnp.zeros_like(primals[1])
        return watching(*primals), tangent

    watching.defjvp(push, symbolic_zeros=True)

    def fun(x):
        start = jnp.concatenate([x, x + 1, x + 2])
        start = start if name == "matrices" else jax.lax.complex(start, start[::-1])
        y = Y.repeat(3).astype(start.dtype)
        if place == "scan":
            turn = lambda c, a: (watching(start, jnp.sin(c / 9) * a), None)  # noqa: E731
            end = jax.lax.scan(turn, start, y[::3])[0]
        elif place == "cond":
            end = jax.lax.cond(x[0] > 0, watching, jnp.multiply, start, jnp.sin(start))
        else:
            end = watching(start, jnp.sin(start)) + watching(y * start[0], start)
        return jnp.abs(end) ** 2

    pairs = [(veenv.jacve(fun, order), jax.jacrev(fun)) for order in ORDERS]
    assert_compiled_same(pairs, X)


@pytest.mark.parametrize("linear", [True, False])
def test_primitives_that_have_a_cotangent_rule_alone(linear):
    """JAX's "hi" primitives, which users can make: no forward mode, and any rule they like."""
    hijax = pytest.importorskip("jax.experimental.hijax")
    if not hasattr(hijax, "HiPrim"):
        pytest.skip("a newer JAX's name")
    limit = (lambda g: 5 * g) if linear else (lambda g: jnp.clip(g, -1, 1))

    class Cube(hijax.HiPrim):
        def __init__(self, aval):
            self.in_avals, self.out_aval, self.params = (aval,), aval, {}
            super().__init__()

        def expand(self, x):
            return x**3

        def vjp_fwd(self, _, x):
            return self(x), x

        def vjp_bwd_retval(self, x, g):
            return (limit(g) * x,)

        def batch(self, _, args, dims):
            return Cube(jax.typeof(args[0]))(*args), dims[0]

    f = lambda x: 3 * Cube(jax.typeof(x))(jnp.sin(x)) + x[0]  # noqa: E731
    assert_same(veenv.jacve(f, "reverse")(X), jax.jacrev(f)(X))
    if linear:
        assert_same(veenv.jacve(f, "forward")(X), jax.jacrev(f)(X))
        return
    with pytest.raises(ValueError, match=r"rule of Cube .*not provably linear"):
        veenv.jacve(f, "forward")(X)


def test_a_primitive_that_has_only_a_linearisation_rule():
    """Its tangents are defined by what it keeps for them, and its forward mode is not."""
    hijax = pytest.importorskip("jax.experimental.hijax")
    if not hasattr(hijax, "vjp_from_lin"):
        pytest.skip("a newer JAX's name")

    class Sine(hijax.HiPrim):
        def __init__(self, aval):
            self.in_avals, self.out_aval, self.params = (aval,), aval, {}
            super().__init__()

        def expand(self, x):
            return jnp.sin(x)

        def lin(self, _, x):
            return self(x), x

        def linearized(self, x, t):
            return t * jnp.cos(x)

        vjp_fwd, vjp_bwd_retval = hijax.vjp_from_lin

        def batch(self, _, args, dims):
            return Sine(jax.typeof(args[0]))(*args), dims[0]

    f = lambda x: 3 * Sine(jax.typeof(x))(x * x) * x  # noqa: E731
    expected = quick_jit(jax.jacrev(f))(X)
    for order in ORDERS:
        for run in (veenv.jacve(f, order), jax.jit(veenv.jacve(f, order))):
            assert_same(run(X), expected)


@pytest.fixture
def as_primitives():
    """`jax_custom_vjp3` makes functions with a cotangent rule primitives of another name."""
    if not hasattr(jax.config, "jax_custom_vjp3"):
        pytest.skip("a newer JAX's setting")
    jax.config.update("jax_custom_vjp3", True)
    yield
    jax.config.update("jax_custom_vjp3", False)


@pytest.mark.usefixtures("as_primitives")
@pytest.mark.parametrize("linear", [True, False])
def test_rules_as_jax_is_about_to_write_them(linear):
    fun = jax.custom_vjp(lambda x: 2 * x)
    limit = (lambda g: 5 * g) if linear else (lambda g: jnp.clip(g, -1, 1))
    fun.defvjp(lambda x: (2 * x, None), lambda _, g: (limit(g),))
    orders = ("reverse", "forward") if linear else ("reverse",)
    for called in fun, jax.vmap(fun):
        f = lambda x, called=called: (10 * called(x * 3.0)).sum() + jnp.sin(x)  # noqa: E731
        assert_compiled_same([(veenv.jacve(f, order), jax.jacrev(f)) for order in orders], X)
        if not linear:
            with pytest.raises(ValueError, match="not provably linear in its cotangent"):
                veenv.jacve(f, "forward")(X)


@pytest.mark.usefixtures("as_primitives")
@pytest.mark.parametrize("order", ORDERS)
def test_batches_of_rules_as_jax_is_about_to_write_them(order):
    """They are told what JAX tells them, wherever the batch is."""
    fun = CASES["both"]()
    batch = jax.vmap(fun)
    both = lambda x, y: sum(batch(jnp.sin(x), y))  # noqa: E731
    looped = lambda x, y: jax.lax.scan(lambda c, a: (both(c, y) * a, c[0]), x, y)  # noqa: E731
    chosen = lambda x, y: jax.lax.cond(x[0] > 0, both, jnp.add, x, y)  # noqa: E731
    functions = [batch, jax.jit(batch), jax.vmap(jax.jit(fun)), both]
    if jax.__version_info__ >= (0, 12):  # before, JAX fails at batches of such a batch
        functions += [looped, chosen]
    pairs = [(veenv.jacve(f, order, (0, 1)), jax.jacrev(f, (0, 1))) for f in functions]
    assert_compiled_same(pairs, X, Y)
    assert_same(veenv.jacve(both, order, (0, 1))(X, Y), quick_jit(jax.jacrev(both, (0, 1)))(X, Y))

    one = watched((False, True), (True, False), product)  # told that nobody asks for the second
    first = lambda x: jax.vmap(one)(x, jnp.asarray(Y))[0]  # noqa: E731
    assert_compiled_same([(veenv.jacve(first, order), jax.jacrev(first))], X)
