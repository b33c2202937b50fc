"""A second process takes a Jacobian's kernel from the disk, and only where it is the same."""

from __future__ import annotations

import gc
import operator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import assert_same, quick_jit
from veenv.engine import api
from veenv.kernel import primitive
from veenv.kernel.building import unrolling
from veenv.kernel.cpu import disk, held

pytestmark = [pytest.mark.kernels, pytest.mark.usefixtures("cache")]
X = np.linspace(0.3, 1.2, 4, dtype=np.float32)


@jax.custom_jvp
def halved(x):
    return jnp.sin(x)


@halved.defjvp
def _halved_jvp(primals, tangents):
    return jnp.sin(primals[0]), 0.5 * tangents[0] * jnp.cos(primals[0])


@jax.custom_vjp
def doubled(x):
    return jnp.sin(x)


doubled.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (2 * ct * jnp.cos(x),))


def mixed(x, y):
    """Several leaves, copies and constants among the results."""
    out = jnp.sin(x["a"][0]) * x["b"] * jnp.roll(x["b"], 1)
    return {"of both": out * y, "copied": x["b"], "of one": x["a"][1] ** 2}


def looped(x):
    return jax.lax.scan(lambda c, k: (jnp.sin(c) * x + k, c), x, jnp.arange(5.0))


def branched(x):
    return jax.lax.cond(x[0] > 0.5, jnp.sin, lambda x: x * jnp.cos(x), x)


def table(x):
    """A table of numbers, and a softmax with its rules."""
    return jax.nn.softplus(x @ np.arange(12, dtype=x.dtype).reshape(4, 3)) + jax.nn.logsumexp(x)


def priced(m):
    """Finite differences in time: JAX's forward mode, as a kernel would be too long."""
    grid = np.linspace(0.5, 1.5, 201, dtype=np.float32)

    def tick(v, _):
        up, down = jnp.roll(v, -1), jnp.roll(v, 1)
        return v + m[1] * (up - 2 * v + down) + m[2] * (up - down) - m[3] * v, None

    return jax.lax.scan(tick, jnp.maximum(m[0] - grid, 0.0), None, length=200)[0][100]


def wide(x):
    """Products too large for a kernel, and a root by which JAX's modes may differ: XLA compiles."""
    weights = jnp.sin(jnp.outer(jnp.arange(80.0), jnp.tile(x, 20)))
    y = jnp.tanh(weights @ jnp.tile(x, 20))
    return weights @ (weights.T @ jnp.sqrt(jnp.abs(y))), {"n": y}


TABLE = np.sin(np.arange(1600, dtype=np.float32)).reshape(400, 4)


def tabled(x):
    """A large table."""
    return jnp.sin(TABLE @ x)[::100] * x


TREE = {"a": (X[0], X[1]), "b": X}
CASES = {
    "leaves": (mixed, (TREE, X[2]), {"argnums": (0, 1)}),
    "weak": (mixed, (TREE, 2.0), {"argnums": 1}),
    "auxiliary": (lambda x: (x * x[0], {"n": x + 1}), (X,), {"has_aux": True}),
    "loop": (looped, (X,), {}),
    "branch": (branched, (X,), {}),
    "table": (table, (X,), {}),
    "tangent rule": (lambda x: halved(x) * x[0], (X,), {}),
    "cotangent rule": (lambda x: doubled(x) * x[0], (X,), {}),
    "mode": (priced, (np.array([1.0, 0.1, 0.05, 0.01], np.float32),), {}),
    "elimination": (wide, (X,), {}),
    "elimination, auxiliary": (wide, (X,), {"has_aux": True}),
    "reverse": (lambda x: jnp.sin(x) * x[0], (X,), {"order": "reverse"}),
    "solve": (lambda x: jnp.linalg.solve(jnp.diag(x) + 1, jnp.sin(x)), (X,), {}),
}


def another_process() -> None:
    """Forgets what this process knows."""
    jax.clear_caches()
    primitive.forget()
    gc.collect()
    held.alive()


@pytest.fixture
def remembers(monkeypatch):
    """After it is called, nothing may be eliminated or unrolled."""

    def only_remembers() -> None:
        another_process()
        monkeypatch.setattr(unrolling, "_program", lambda *a, **k: pytest.fail("unrolled"))
        monkeypatch.setattr(api, "_eliminated", lambda *a, **k: pytest.fail("eliminated"))

    return only_remembers


def batched(args, size=8):
    """Points that differ; Python numbers stay."""
    some = np.linspace(1, 1.1, size, dtype=np.float32)
    given = jax.tree.map(lambda x: x if isinstance(x, float) else np.multiply.outer(some, x), args)
    return given, jax.tree.map(lambda x: None if isinstance(x, float) else 0, args)


def test_a_hessian_that_another_process_made(remembers):
    given, _ = batched((X,))
    made = jax.jit(jax.vmap(veenv.hessian(lambda x: jnp.sum(jnp.sin(x) * x[0] ** 2))))
    first = made(*given)
    remembers()
    assert_same(made(*given), first, 0)


@pytest.mark.parametrize("case", [*CASES, "point"])
def test_what_another_process_made(case, remembers):
    fun, args, options = CASES["leaves" if case == "point" else case]
    given, axes = batched(args)
    made = (veenv.value_and_jacve if "auxiliary" in case else veenv.jacve)(fun, **options)

    def run():
        return jax.jit(made)(*args) if case == "point" else jax.jit(jax.vmap(made, axes))(*given)

    first = run()
    remembers()
    again = run()
    assert_same(jax.tree.leaves(again), jax.tree.leaves(first), 0)
    assert jax.tree.structure(again) == jax.tree.structure(first)
    assert [x.weak_type for x in jax.tree.leaves(again)] == [
        x.weak_type for x in jax.tree.leaves(first)
    ]


def step(x, table):
    """A step of Newton's method by a large table, with a Jacobian inside."""
    fun = lambda x: jnp.tanh(table[:4, :4] @ x) + x  # noqa: E731
    return x - jnp.linalg.solve(jax.jacfwd(fun)(x), fun(x)), x


FUSED = {
    "fuse": lambda: veenv.fuse(step),
    "table": lambda: veenv.fuse(lambda x, _: TABLE.sum(0) * x),
    "kernel": lambda: veenv.jacve(step, kernel="fused"),
}


@pytest.mark.parametrize("name", FUSED)
def test_a_kernel_that_another_process_was_asked_for(name, monkeypatch):
    x, table = np.linspace(0.1, 1, 24, dtype=np.float32).reshape(6, 4), TABLE[:8]

    def run():
        return jax.jit(jax.vmap(FUSED[name](), (0, None)))(x, table)

    first = run()
    another_process()
    monkeypatch.setattr(unrolling, "_program", lambda *a, **k: pytest.fail("unrolled"))
    assert_same(run(), first, 0)


def scaled(by):
    return lambda x: jnp.sin(x * by) * x[0]


def ruled(by):
    @jax.custom_jvp
    def fun(x):
        return jnp.sin(x)

    fun.defjvp(lambda p, t: (jnp.sin(p[0]), by * t[0]))
    return lambda x: fun(x) * x[0]


def stepped(length):
    return lambda x: jax.lax.fori_loop(0, length, lambda _, c: jnp.sin(c) * x, x)


def chosen(name):
    return lambda x: getattr(jnp, name)(x) * x[0]


PAIRS = {
    "number": (scaled(2.0), scaled(3.0)),
    "array": (scaled(X), scaled(X[::-1].copy())),
    "rule": (ruled(0.5), ruled(0.25)),
    "steps": (stepped(3), stepped(4)),
    "primitive": (chosen("sin"), chosen("cos")),
    "operand": (lambda x: jnp.sin(x) - x[0] * x, lambda x: x[0] * x - jnp.sin(x)),
    "result": (lambda x: (jnp.sin(x), x[0] * x), lambda x: (x[0] * x, jnp.sin(x))),
    "indices": (lambda x: jnp.sin(x[np.array([1, 3])]), lambda x: jnp.sin(x[np.array([3, 1])])),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_another_function_is_another(pair):
    """Its Jacobian is its own, though everything but one thing is the same."""
    given, _ = batched((X,))
    for fun in PAIRS[pair]:
        another_process()
        found = jax.jit(jax.vmap(veenv.jacve(fun)))(*given)
        assert_same(found, quick_jit(jax.vmap(jax.jacfwd(fun)))(*given), 1e-5)


def test_other_arguments_are_other_arguments():
    def fun(x, y, power):
        return jnp.sin(x) * y**power

    points = np.multiply.outer(np.linspace(1, 2, 3, dtype=np.float32), X)
    for argnums, power in ((0, 2), (1, 2), ((0, 1), 2), ((1, 0), 2), (0, 3)):
        another_process()
        ours, theirs = (
            jax.vmap(partial(mode(fun, argnums=argnums), power=power))
            for mode in (veenv.jacve, jax.jacfwd)
        )
        given = points, points[::-1]
        assert_same(jax.jit(ours)(*given), quick_jit(theirs)(*given), 1e-5)


def test_other_precision(remembers):
    fun = CASES["table"][0]
    for wide in (False, True):
        with jax.enable_x64(wide):
            another_process()
            given, _ = batched((X,))
            given = [x.astype(float) if wide else x for x in given]
            ours, theirs = jax.jit(jax.vmap(veenv.jacve(fun)))(*given), jax.vmap(jax.jacrev(fun))
            assert_same(ours, quick_jit(theirs)(*given), 1e-12 if wide else 1e-5)
    remembers()
    with jax.enable_x64(True):
        jax.jit(jax.vmap(veenv.jacve(fun)))(*given)


def test_an_elimination_that_is_faster_than_its_kernel_returns_what_that_writes():
    weights = np.sin(np.arange(1024, dtype=np.float32)).reshape(32, 32)

    def fun(x):
        return {"constant": 3 * x[:2], "of all": jnp.tanh(weights @ jnp.tanh(weights @ x))}

    x = np.linspace(0.1, 1, 32, dtype=np.float32)[None]
    expected = quick_jit(jax.vmap(jax.jacrev(fun)))(x)
    for _ in range(2):
        assert_same(jax.jit(jax.vmap(veenv.jacve(fun)))(x), expected, 1e-5)
        another_process()


def test_another_batch_is_decided_anew_and_remembered(remembers):
    fun = scaled(2.0)
    for size in (8, 300):
        another_process()
        (x,), _ = batched((X,), size)
        expected = quick_jit(jax.vmap(jax.jacfwd(fun)))(x)
        assert_same(jax.jit(jax.vmap(veenv.jacve(fun)))(x), expected, 1e-5)
    remembers()
    for size in (8, 300):
        (x,), _ = batched((X,), size)
        expected = quick_jit(jax.vmap(jax.jacfwd(fun)))(x)
        assert_same(jax.jit(jax.vmap(veenv.jacve(fun)))(x), expected, 1e-5)


@pytest.mark.parametrize("outer", [jax.jacfwd, jax.jacrev, veenv.jacve])
def test_derivatives_of_what_is_remembered(outer):
    fun = CASES["tangent rule"][0]
    expected = quick_jit(jax.jacfwd(jax.jacfwd(fun)))(X)
    for _ in range(2):
        another_process()
        jax.jit(veenv.jacve(fun))(X)
        assert_same(jax.jit(outer(veenv.jacve(fun)))(X), expected, 1e-5)


def test_what_is_remembered_is_exported():
    fun = scaled(2.0)
    jax.jit(veenv.jacve(fun))(X)
    another_process()
    exported = jax.export.export(jax.jit(veenv.jacve(fun)))(X)
    called = jax.export.deserialize(exported.serialize()).call(X)
    assert_same(called, quick_jit(jax.jacfwd(fun))(X), 1e-5)


def printed(x):
    """A Jacobian of what calls back."""

    def fun(x):
        jax.debug.callback(lambda x: None, x[0])
        return jnp.sin(x) * x[0]

    return veenv.jacve(fun)(x)


def around(y):
    """A Jacobian of what closes over a value of the trace around."""
    return veenv.jacve(lambda x: jnp.sin(x) * y)(y)


WITHOUT_TEXT = {
    printed: jax.jacfwd(lambda x: jnp.sin(x) * x[0]),
    around: lambda x: jnp.diag(jnp.cos(x) * x),
    veenv.jacve(tabled): jax.jacfwd(tabled),
}


@pytest.mark.parametrize("fun", WITHOUT_TEXT)
def test_what_has_no_text_is_made_anew(fun):
    for x in (X, 2 * X):
        another_process()
        assert_same(jax.jit(fun)(x), quick_jit(WITHOUT_TEXT[fun])(x), 1e-5)


def test_a_damaged_elimination_is_made_anew(cache):
    first = jax.jit(veenv.jacve(wide, has_aux=True))(X)
    for path in (cache / disk.FOLDER).iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    another_process()
    assert_same(jax.jit(veenv.jacve(wide, has_aux=True))(X), first, 0)


@pytest.mark.parametrize("what", ["the code", "the rest", "both"])
def test_what_is_damaged_is_made_anew(cache, what):
    fun = scaled(2.0)
    expected = quick_jit(jax.jacfwd(fun))(X)
    jax.jit(veenv.jacve(fun))(X)
    kept = sorted((cache / disk.FOLDER).iterdir(), key=lambda path: path.stat().st_size)
    for path in kept:
        text = path.read_bytes()
        is_code = text[32:].partition(b"\n")[2].startswith(b"\x7fELF")
        if what == "both" or is_code == (what == "the code"):
            path.write_bytes(text[:-1] + bytes([operator.xor(text[-1], 1)]))
    another_process()
    assert_same(jax.jit(veenv.jacve(fun))(X), expected, 1e-5)
