"""Kernels inside JAX's transformations, at all sizes, and what cannot be a kernel."""

from __future__ import annotations

import functools
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles import jacobians
from tests.oracles.jacobians import assert_compiled_same, quick_jit
from tests.processes import said
from veenv.kernel.scalar_program import CannotFuseError


def fun(x: jax.Array, y: jax.Array, a: jax.Array) -> tuple[jax.Array, jax.Array]:
    return x * jnp.sin(a * y).sum(), jnp.stack([x / (1 + y[0]), a * 2.0])


ARGNUMS = (0, 1)
FUSED = veenv.jacve(fun, "reverse", ARGNUMS, kernel="fused")
ORACLE = jax.jit(jax.jacrev(fun, ARGNUMS))


def points(batch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return tuple(rng.uniform(0.5, 2, s).astype("f4") for s in ((batch,), (batch, 3), (batch,)))


assert_same = functools.partial(jacobians.assert_same, tol=1e-5)


@pytest.mark.parametrize("batch", [0, 1, 7, 4097, 100_003])
def test_batches(batch: int):
    args = points(batch)
    assert_same(jax.jit(jax.vmap(FUSED))(*args), quick_jit(jax.vmap(ORACLE))(*args))


@pytest.mark.parametrize("axes", [(0, None, 0), (None, 1, None), (0, 1, None), (None, None, 0)])
def test_axes(axes: tuple[int | None, ...]):
    x, y, a = points(7)
    args = [v if axis is not None else v[0] for v, axis in zip((x, y, a), axes, strict=True)]
    if axes[1] == 1:
        args[1] = np.moveaxis(args[1], 0, 1)
    assert_same(jax.vmap(FUSED, axes)(*args), quick_jit(jax.vmap(ORACLE, axes))(*args))


def test_value_auxiliary_counts_and_keywords():
    def with_aux(x, *, scale):
        return jnp.tanh(x) * scale, {"twice": 2 * x, "constant": jnp.arange(3)}

    x = np.linspace(0.1, 1, 4, dtype="f4")
    options = {"has_aux": True, "count_ops": True}
    got = veenv.value_and_jacve(with_aux, kernel="fused", **options)(x, scale=3.0)
    expected = veenv.value_and_jacve(with_aux, **options)(x, scale=3.0)
    assert got[-1] == expected[-1]
    assert_same(got[:-1], expected[:-1])


def test_derivatives_take_the_other_path():
    def slope(jac):
        return lambda x: (
            jac(x, jnp.ones(3), 0.5)[0][0].sum() + jac(1.5, x * jnp.ones(3), x)[1][0].sum()
        )

    def through(jac):
        f = slope(jac)

        def run(x, xs):
            found = [transform(f)(x) for transform in (jax.grad, jax.jacfwd, jax.hessian)]
            of_batch = jax.grad(lambda x: jax.vmap(f)(x).sum())(xs)
            return found, jax.vmap(jax.grad(f))(xs), of_batch

        return quick_jit(run)(np.float32(0.7), np.linspace(0.2, 1, 5, dtype="f4"))

    assert_same(through(FUSED), through(ORACLE))


def test_misaligned_and_donated_buffers():
    x, y, a = points(1000)
    raw = np.zeros(4 * 3001 + 1, np.uint8)
    odd = raw[1 : 1 + 4 * 3000].view("f4").reshape(1000, 3)
    odd[:] = y
    expected = quick_jit(jax.vmap(ORACLE))(x, y, a)
    assert_same(jax.jit(jax.vmap(FUSED))(x, odd, a), expected)
    donating = jax.jit(jax.vmap(FUSED), donate_argnums=(0,))
    assert_same(donating(jnp.array(x), y, a), expected)


def test_a_loop_whose_steps_are_long_is_fused_or_refused():
    m = np.random.default_rng(0).normal(size=(48, 48)).astype("f4") / 10  # else steps are chaotic

    def steps(x, length):  # a step is longer than a function of machine code may be
        return jax.lax.scan(lambda c, _: (jnp.sin(m @ c), c[0]), x, length=length)

    for length in (5, 2000):
        fun, x = functools.partial(steps, length=length), np.ones(48, np.float32)
        assert_same(veenv.fuse(fun)(x), fun(x))

    def squared(x):  # few steps, of more operations than a kernel may have
        return jax.lax.fori_loop(0, 4, lambda _, c: jnp.sin((c @ c + x) / 9)[::-1], x)

    square = np.random.default_rng(1).normal(size=(32, 32)).astype("f4") / 6
    assert_same(veenv.fuse(squared)(square), squared(square))

    def solved(x):  # decompositions are loops themselves
        a = jnp.eye(60) + jnp.outer(x, x)
        return jax.lax.scan(lambda c, _: (jnp.sin(jnp.linalg.solve(a, c) + x), c[0]), x, length=900)

    assert_same(veenv.fuse(solved)(np.ones(60, np.float32)), solved(np.ones(60, np.float32)))


def test_what_cannot_be_a_kernel_is_computed_by_xla_or_refused():
    def f(x):
        return jnp.linalg.eigh(x * 2.0)[0]

    x = np.diag(np.float32([2, 3, 5, 7, 11])) + np.float32(0.1)
    assert_compiled_same([(veenv.jacve(f, kernel="auto"), jax.jacrev(f))], x, tol=1e-5)
    with pytest.raises(ValueError, match="kernel must be one of auto, xla, fused"):
        veenv.jacve(f, kernel="fast")
    with pytest.raises(CannotFuseError, match="float8"):
        veenv.jacve(jnp.sin, kernel="fused")(jnp.ones((), jnp.float8_e4m3fn))


def test_export_says_what_to_do():
    with pytest.raises(ValueError, match=r'kernel="auto" or "xla".*to_c'):
        jax.export.export(jax.jit(FUSED))(*(v[0] for v in points(1)))


def test_what_is_exported_or_for_another_machine_is_for_xla():
    args = [v[0] for v in points(1)]
    jacobian = jax.jit(veenv.jacve(fun, "reverse", ARGNUMS, kernel="auto"))
    exported = jax.export.export(jacobian)(*args)
    assert_same(exported.call(*args), ORACLE(*args))
    assert "custom_call" not in exported.mlir_module()
    assert "veenv_fused" in jacobian.lower(*args).as_text()
    elsewhere = jacobian.trace(*args).lower(lowering_platforms=("cuda",)).as_text()
    assert "custom_call" not in elsewhere


def test_threads():
    """They trace, compile and call the same and other kernels, on the pool: bit for bit alike."""
    args = points(20_000)
    shared = jax.jit(jax.vmap(FUSED))
    alone = shared(*args)
    assert_same(alone, quick_jit(jax.vmap(ORACLE))(*args))
    barrier = threading.Barrier(8)

    def work(k: int) -> None:
        barrier.wait()
        own = jax.jit(jax.vmap(veenv.jacve(lambda x: jnp.sin(x) * k, kernel="fused")))
        for _ in range(50):
            jax.tree.map(np.testing.assert_array_equal, shared(*args), alone)
            np.testing.assert_allclose(own(args[0]), np.cos(args[0]) * k, rtol=1e-5, atol=1e-6)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, k) for k in range(8)]:
            done.result()


FIRST = """
import sys
import veenv
assert "llvmlite" not in sys.modules
import jax, jax.numpy as jnp
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
jac = jax.jit(jax.vmap(veenv.jacve(lambda x: jnp.sin(x) * x, kernel="fused")))
print([f"{float(v):.5f}" for v in jac(jnp.arange(3.0))], sum("cache_hit" in h for h in hits) > 0)
"""
"""What both processes do first."""

REFUSING = """
from veenv.kernel.cpu import compile
compile._object = None
"""
"""What the second one cannot do then: have LLVM make code."""

DEVICES = """
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
f = lambda x, y: jnp.sin(x) * y
jac = jax.vmap(veenv.jacve(f, "reverse", (0, 1), kernel="fused"), (0, None))
x, y = np.linspace(0, 1, 4 * 37 * 2, dtype="f4").reshape(-1, 2), np.array([2, 3], "f4")
expected = jax.jit(jax.vmap(jax.jacrev(f, (0, 1)), (0, None)))(x, y)
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
ways = {
    "shard_map": jax.jit(jax.shard_map(jac, mesh=mesh, in_specs=(P("i"), P()), out_specs=P("i"))),
    "pmap": lambda x, y: jax.tree.map(
        lambda b: np.asarray(b).reshape(-1, 2, 2),
        jax.pmap(jac, in_axes=(0, None))(x.reshape(4, 37, 2), y),
    ),
    "sharded": lambda x, y: jax.jit(jac)(jax.device_put(x, NamedSharding(mesh, P("i"))), y),
    "second device": lambda x, y: jax.jit(jac)(*jax.device_put((x, y), jax.devices()[1])),
}
for name, way in ways.items():
    for a, b in zip(way(x, y), expected):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=name)
auto = jax.jit(jax.vmap(veenv.jacve(f, "reverse", (0, 1), kernel="auto"), (0, None)))
sharded = jax.device_put(x, NamedSharding(mesh, P("i")))
for value, fused in ((x, True), (sharded, False)):
    assert ("veenv_fused" in auto.lower(value, y).as_text()) == fused
    for a, b in zip(auto(value, y), expected):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
print(len(jax.devices()), *ways)
"""

FORK = """
import os, warnings
warnings.simplefilter("ignore")
from veenv.kernel.cpu import kernel_registry
pid = os.fork()
if pid == 0:
    before = kernel_registry.alive()
    os._exit(0 if before == 1 else 1)
print("child", os.waitpid(pid, 0)[1])
"""


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """What two processes say, one after the other: they share a cache and do one thing more."""
    folder = tmp_path_factory.mktemp("cache")
    flags = "--xla_force_host_platform_device_count=4"
    fork = FORK if hasattr(os, "fork") else ""
    programs = FIRST + DEVICES, FIRST.replace("jac =", f"{REFUSING}\njac =") + fork
    results = [said(p, folder, JAX_PLATFORMS="cpu", XLA_FLAGS=flags) for p in programs]
    return [result.splitlines() for result in results]


@pytest.mark.whole
def test_compilation_cache_on_disk(lines):
    """A program from the cache of another process finds code, which LLVM need not make again."""
    values = "['0.00000', '1.38177', '0.07700']"
    assert [first for first, *_ in lines] == [f"{values} False", f"{values} True"]


@pytest.mark.whole
def test_several_devices(lines):
    assert lines[0][1] == "4 shard_map pmap sharded second device"


@pytest.mark.whole
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork(lines):
    """A child keeps the kernels, and no lock stays taken in it."""
    assert lines[1][1] == "child 0"


@jax.custom_vjp
def _reversed(x):
    return x


_reversed.defvjp(lambda x: (x, None), lambda _, g: (-g,))


@jax.custom_jvp
def _hidden(x):
    return jnp.zeros_like(x)


_hidden.defjvp(lambda p, t: (_hidden(*p), 3 * t[0]))


@pytest.mark.parametrize("ruled", [jax.lax.stop_gradient, _reversed, _hidden])
def test_copies_and_constants_have_the_derivatives_of_their_rules(ruled):
    """By its value it is an argument or a constant, and not by its derivative."""
    x = jnp.array([0.3, 0.7])
    wanted = jax.jacrev(ruled)(x)
    with_aux = lambda x: (x, {"aux": ruled(x)})  # noqa: E731
    for fun in (
        veenv.fuse(ruled),
        lambda x: veenv.jacve(with_aux, has_aux=True)(x)[1]["aux"],
        lambda x: veenv.jacve(with_aux, "forward", has_aux=True, kernel="fused")(x)[1]["aux"],
    ):
        np.testing.assert_array_equal(fun(x), ruled(x))
        np.testing.assert_array_equal(jax.jacrev(fun)(x), wanted)
        rows = jax.jacrev(lambda z, fun=fun: jax.vmap(fun)(z).sum(0))(x[None])
        np.testing.assert_array_equal(rows[:, 0], wanted)
