"""Hessians with `jax.hessian` as the oracle: auxiliary and complex outputs, loops, solvers."""

import itertools
import logging.handlers

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from tests.oracles.jacobians import assert_same, quick_jit
from tests.sampling import spared

X = jnp.array([0.3, 0.7, 1.1])


def looped(x):
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1]) * x), (0, x))[1]


def counted(x):
    return {"y": lax.fori_loop(0, jnp.argmax(x), lambda i, y: jnp.cos(y) * y, x)[:2]}


@jax.custom_jvp
def rounded(x):
    return x**3


@rounded.defjvp
def _(primals, tangents):
    (x,), (t,) = primals, tangents
    return x**3, lax.while_loop(lambda c: c[0] < 1, lambda c: (1, c[1]), (0, 3 * x**2 * t))[1]


@pytest.mark.parametrize(
    "fun",
    [pytest.param(looped, marks=pytest.mark.slow), counted,
        lambda x: (jnp.sin(rounded(x)), rounded(x).sum()), lambda x: jnp.outer(looped(x), x)],
    ids=["while", "steps that depend on values", "rule", "outer"],
)  # fmt: skip
def test_arrays_of_what_jax_cannot_transpose(fun):
    expected = jax.jit(jax.jacfwd(jax.jacfwd(fun)))(X)
    for run in (veenv.hessian(fun), jax.jit(veenv.hessian(fun))):
        assert_same(run(X), expected, 1e-5)


def test_a_check_in_a_branch_runs_only_where_it_is_taken():
    """A branch that calls the host is not run while a function is traced anew, with values."""

    def refuse():
        raise RuntimeError("not taken")

    @jax.custom_jvp
    def root(a):
        def step(y, _):
            limit = lax.cond(
                y > 1e3, lambda: jax.pure_callback(refuse, jax.typeof(a)), lambda: jnp.float32(3)
            )
            return jnp.minimum(y - (y**3 - a) / (3 * y**2), limit), None

        return lax.scan(step, jnp.float32(1), None, length=20)[0]

    @root.defjvp
    def _(primals, tangents):
        y = root(*primals)
        return y, tangents[0] / (3 * y**2)

    def loss(x, known=False):
        total = np.float32(3) if known else jnp.arange(3, dtype=x.dtype).sum()

        @jax.custom_vjp
        def sine(y):
            return jnp.sin(y)

        sine.defvjp(lambda y: (jnp.sin(y), y), lambda y, g: (g * jnp.cos(y) * total,))
        return lax.scan(lambda y, _: (sine(root(y)), None), x.sum(), None, length=2)[0]

    at = X.astype("float32")
    expected = quick_jit(jax.hessian(lambda x: loss(x, known=True)))(at)
    assert jax.eval_shape(veenv.hessian(loss), at).shape == (3, 3)
    np.testing.assert_allclose(veenv.hessian(loss)(at), expected, rtol=1e-4)


@pytest.mark.parametrize("shape", ["number", "array"])
def test_holomorphic_functions(shape):
    def fun(z):
        return jnp.sin(z).sum() * z[0] if shape == "number" else jnp.exp(z) * z[1]

    z = lax.complex(X, X[::-1])
    expected = quick_jit(jax.hessian(fun, holomorphic=True))(z)
    for transform in (lambda f: f, jax.jit):
        found = transform(veenv.hessian(fun, holomorphic=True))(z)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    with pytest.raises(TypeError):
        veenv.hessian(fun)(z)


def scanned(step):
    return lambda x: lax.scan(lambda y, _: (step(y) * x, y), x, None, length=3)[0]


LOOPS = {
    "scan": lambda x: scanned(jnp.sin)(x).sum(),
    "rule": lambda x: scanned(jax.nn.relu)(x).sum(),
    "array": scanned(jnp.cos),
    "map": lambda x: lax.map(lambda y: jnp.sin(y) * y, x),
    "while": looped,
    "branch": lambda x: lax.cond(x.sum() > 0, lambda y: jnp.sin(y).sum(), lambda y: y.sum(), x),
}
SECOND = {
    "hessian": veenv.hessian, "laplacian": veenv.laplacian, "jacve": veenv.jacve,
    "sparse": lambda f: veenv.jacve(f, sparse_representation=True),
    "forward": lambda f: veenv.jacve(f, "forward"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("fun", "make"),
    spared(itertools.product(LOOPS, SECOND), ("while", "hessian"), ("branch", "hessian"),
        *(("scan", make) for make in SECOND), ("while", "jacve"), ("branch", "sparse"),
        ("map", "forward"), ("rule", "laplacian")),
)  # fmt: skip
def test_a_second_call_compiles_nothing(fun, make):
    SECOND[make](LOOPS[fun])(X)
    handler, logger = logging.handlers.BufferingHandler(1 << 20), logging.getLogger("jax")
    logger.addHandler(handler)
    try:
        with jax.log_compiles():
            SECOND[make](LOOPS[fun])(X)
    finally:
        logger.removeHandler(handler)
    messages = [record.getMessage() for record in handler.buffer]
    assert not [message for message in messages if message.startswith("Compiling")]


def test_equal_loops_with_other_constants_are_other_loops():
    table = np.array([1.0, 2.0, 3.0])

    def of(scale, start):
        step = lambda y, _: (jnp.sin(y) * scale * jnp.asarray(table), None)  # noqa: E731
        return lambda x: lax.scan(step, x * start, None, length=2)[0]

    for scale, start in ((2, 1.0), (2.0, 1.0), (-0.0, 1.0), (3, 1.0), (2, 1.0)):
        table *= 1.5
        fun = of(scale, start)
        np.testing.assert_allclose(veenv.jacve(fun)(X), jax.jacfwd(fun)(X), rtol=1e-5, atol=1e-6)


def energy(x, p):
    """Of a dict and an array; one number."""
    return jnp.sum(jnp.sin(x * p["a"][::-1]) ** 2) * jnp.log1p(p["b"] * x[0] * x[2])


ENERGIES = {
    "plain": (lambda x: energy(x, {"a": x, "b": x[1]}), (X,), {}),
    "several": (energy, (X, {"a": X + 1, "b": X[0]}), {"argnums": (0, 1)}),
    "array": (lambda x: jnp.outer(jnp.sin(x), x * x), (X,), {}),
    "aux": (lambda x: (jnp.prod(jnp.cos(x)), {"text": "n", "x": x[:2]}), (X,), {"has_aux": True}),
}


@pytest.mark.kernels
@pytest.mark.parametrize("name", ENERGIES)
def test_a_batch_of_hessians_is_one_kernel_as_of_jacobians(name):
    fun, args, options = ENERGIES[name]
    plain = (lambda *a: fun(*a)[0]) if "has_aux" in options else fun
    expected = jax.jit(jax.hessian(plain, options.get("argnums", 0)))(*args)
    several = jax.tree.map(lambda x: jnp.stack([x] * 5), args)

    made = veenv.hessian(fun, **options)
    point = (lambda *a: made(*a)[0]) if "has_aux" in options else made
    lowered = jax.jit(jax.vmap(point)).lower(*several)
    assert "veenv_fused" in lowered.as_text()
    found = jax.tree.map(lambda x: x[3], lowered.compile()(*several))
    assert_same(found, expected, 2e-5, atol=1e-5)


def test_the_kernel_of_a_hessian_is_asked_for_as_that_of_a_jacobian():
    for kernel, there in (("xla", False), ("fused", True)):
        text = jax.jit(veenv.hessian(jnp.prod, kernel=kernel)).lower(X).as_text()
        assert ("veenv_fused" in text) == there
    with pytest.raises(ValueError, match="kernel must be one of auto, xla, fused"):
        veenv.hessian(jnp.sum, kernel="no")
    with pytest.raises(ValueError, match="'fft' of 100 numbers cannot be fused"):
        veenv.hessian(lambda x: (jnp.abs(jnp.fft.fft(x, 100)) ** 3).sum(), kernel="fused")(X)
