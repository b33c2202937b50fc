"""Kernels for NVIDIA's GPUs: their PTX, interpreted thread by thread, and how XLA is handed it."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from scripts.benchmarks.operations_program import KINDS, operations
from tests.oracles import ptx as oracle
from tests.oracles import scalar_program
from tests.sampling import thinned
from veenv.kernel import ptx
from veenv.kernel.fusing import trace_point
from veenv.kernel.ordering import few_alive
from veenv.kernel.scalar_program import FLOATS, Leaf, Op, ScalarProgram
from veenv.rules.operations import OPERATIONS
from veenv.tasks.random import random_function


def has_libdevice() -> bool:
    try:
        return bool(ptx.libdevice())
    except FileNotFoundError:
        return False


FUNCTIONS = frozenset(name for name, op in OPERATIONS.items() if op.function)
LIBDEVICE = pytest.mark.skipif(not has_libdevice(), reason="needs nvidia-cuda-nvcc-cu12")
WITHOUT = "RoeFlux_1d", "HumanHeartDipole", "VanDerPol_RK4", "Robertson"
"""Tasks that call no function."""


def program_of(name: str) -> tuple[ScalarProgram, list[np.ndarray]]:
    task = veenv.tasks.get(name)
    args = [np.asarray(x, "f4") for x in task.example_args()]
    argnums = task.argnums if isinstance(task.argnums, tuple) else (task.argnums,)
    return trace_point(veenv.jacve(task.fun, "best", argnums), args, {}, argnums).program(), args


def looping(x: jax.Array, a: jax.Array) -> tuple[jax.Array, ...]:
    def step(c, t):
        c = jnp.sin(c * t) + x[0]
        return c, (c, c > 0.5)

    c, (ys, above) = jax.lax.scan(step, x[1], a)
    total, _ = jax.lax.scan(step, c, ys * 1.0, reverse=True)
    root = jax.lax.while_loop(
        lambda v: jnp.abs(v * v - x[0]) > 1e-4,
        lambda v: jax.lax.while_loop(
            lambda w: w * w > 2 * x[0], lambda w: 0.9 * w, 0.5 * (v + x[0] / v)
        ),
        x[1],
    )
    near = ys[jnp.clip(jnp.int32(20 * c), 0, 699)] + jnp.linspace(0, 1, 30)[jnp.int32(9 * x[0])]
    return total, root, ys[:3], above[-2:], near


LOOPING = np.array([0.7, 1.3], "f4"), np.linspace(0.2, 0.9, 700, dtype="f4")


def points(dtype: str) -> list[np.ndarray]:
    """For three numbers and a bool; shifts are by the third."""
    rng = np.random.default_rng(0)
    flags = rng.random(40) < 0.5
    if dtype == "bool":
        return [rng.random(40) < 0.5, rng.random(40) < 0.5, flags, flags]
    if dtype in FLOATS:
        x, y = rng.uniform(0.05, 0.95, (2, 40))
        x[:20] *= np.linspace(-3, 30, 20)  # outside of what some are defined for
        return [x.astype(dtype), y.astype(dtype), y.astype(dtype), flags]
    low = 0 if dtype.startswith("u") else -100
    x, y = rng.integers(low, 101, 40), rng.integers(1, 50, 40)
    return [x.astype(dtype), y.astype(dtype), rng.integers(0, 7, 40).astype(dtype), flags]


def expected(op: Op, args: list[np.ndarray]) -> np.ndarray:
    """By NumPy; of floats in float64."""
    if op.name == "convert":
        return args[0] != 0 if op.dtype == "bool" else args[0].astype(op.dtype)
    if op.name == "bitcast":
        return args[0].view(op.dtype)
    name = op.attr if op.name == "call" else op.name
    if op.dtype in FLOATS and name != "nextafter":
        args = [a.astype("f8") if a.dtype != bool else a for a in args]
    with np.errstate(all="ignore"):
        return _numpy(name, args).astype(op.dtype)


def _numpy(name: str, args: list[np.ndarray]) -> np.ndarray:
    if name != "lgamma":
        return OPERATIONS[name].numpy(*args)
    from scipy import special

    return special.gammaln(args[0])


def interpreted(program: ScalarProgram) -> Callable[..., list[np.ndarray]]:
    """A program as a function of batches that interprets its PTX."""

    def run(*leaves: Any) -> list[np.ndarray]:
        pairs = [(np.asarray(x), leaf) for x, leaf in zip(leaves, program.inputs, strict=True)]
        batched = [x.ndim > len(leaf.shape) for x, leaf in pairs]
        batch = next(len(x) for (x, _), each in zip(pairs, batched, strict=True) if each)
        outputs = [program.outputs[k] for k in program.written()]
        found = oracle.run(
            ptx.PtxKernel(program).text(batched, batch),
            [np.moveaxis(x, 0, -1) if each else x
             for (x, _), each in zip(pairs, batched, strict=True) if x.size],
            [Leaf((*leaf.shape, batch), leaf.dtype) for leaf in outputs],
            -(-batch // ptx.BLOCK), ptx.BLOCK,
        )  # fmt: skip
        return [np.moveaxis(y, -1, 0) for y in found]

    return run


def check(program: ScalarProgram, *leaves: Any, rtol: float = 1e-12) -> None:
    """Against NumPy, operation by operation; of noise, its size."""
    runs = [None, *map(np.random.default_rng, range(3))]
    wanted = [scalar_program.run(program, *leaves, rng=rng) for rng in runs]
    for got, k in zip(interpreted(program)(*leaves), program.written(), strict=True):
        e, *others = (found[k] for found in wanted)
        assert got.dtype == e.dtype
        if e.dtype.kind == "f":
            with np.errstate(invalid="ignore"):  # infinities
                noise = np.max([np.abs(other - e) for other in others], axis=0)
                got = np.where(np.abs(got - e) < 50 * noise, e, got)
        scale = np.abs(e[np.isfinite(e)]).max(initial=1e-30) if e.dtype.kind == "f" else 1
        np.testing.assert_allclose(got, e, rtol=rtol, atol=rtol * scale)


@LIBDEVICE
@pytest.mark.parametrize("dtype", KINDS)
def test_every_operation(dtype):
    program, columns = operations(dtype).program, points(dtype)
    for op, got in zip(program.ops[len(columns) :], interpreted(program)(*columns), strict=True):
        if op.name == "convert" and (dtype in FLOATS or op.dtype == "bool"):
            continue  # NumPy's is not defined where it overflows; for bools programs compare
        wanted = expected(op, [columns[k] for k in op.args])
        assert got.dtype == wanted.dtype
        most = {"float32": 4e-6, "float64": 1e-13}.get(got.dtype.name, 0)
        np.testing.assert_allclose(got, wanted, rtol=most, atol=most, err_msg=str(op))


@pytest.mark.parametrize(
    "name",
    [name if name in WITHOUT else pytest.param(name, marks=[LIBDEVICE, pytest.mark.slow])
     for name in veenv.tasks.list()],
)  # fmt: skip
def test_tasks(name, x64):
    """Jacobians in float64, at a batch that fills no block."""
    task = veenv.tasks.get(name)
    args = jax.tree.map(np.asarray, task.example_args())
    fun = veenv.jacve(task.fun, "best", task.argnums, kernel="xla")
    program = trace_point(fun, args, {}, range(len(args))).program()
    rng = np.random.default_rng(0)
    leaves = (x * rng.uniform(0.9, 1.1, (5, *x.shape)) for x in jax.tree.leaves(args))
    check(program, *leaves, rtol=1e-9)


@LIBDEVICE
@pytest.mark.parametrize("seed", thinned(range(200), 50))
def test_random_programs(seed, x64):
    fun, args = random_function(seed, 3, 25, 3, arrays=seed % 2 == 1)
    program = trace_point(veenv.jacve(fun, kernel="xla"), args, {}, range(len(args))).program()
    rng = np.random.default_rng(seed)
    check(program, *(x + rng.normal(0, 0.1, (33, *np.shape(x))) for x in args), rtol=1e-8)


@pytest.mark.parametrize("batch", [1, 31, 129, 1000])
def test_batches_leaves_and_arrays(batch):
    """Bools, whole numbers, empty and shared leaves; stacks, tables and computed places."""

    def fun(x, s, n, empty):
        total, stack = jax.lax.scan(lambda c, t: (c * t + x[0], (c, c > t)), x[1], s)
        place = jnp.clip(n, 0, len(s) - 1)
        table = jnp.linspace(3, 4, 30, dtype=x.dtype)[jnp.clip(n, 0, 29)]
        root = jax.lax.while_loop(
            lambda v: jnp.abs(v * v - x[0] * x[0]) > 1e-4,
            lambda v: 0.5 * (v + x[0] * x[0] / v),
            jnp.abs(x[1]) + 1,
        )
        return jnp.where(x > 0.5, x * n.astype(x.dtype), total), stack[0][place] + table, (
            stack[1], root, x.sum() + empty.sum(), n + 1, jnp.arange(3.0) * x[0]
        )  # fmt: skip

    rng = np.random.default_rng(0)
    x, n = rng.normal(size=(batch, 2)).astype("f4"), rng.integers(-1, 400, batch).astype("i4")
    s, empty = np.linspace(0.2, 0.9, 400, dtype="f4"), np.zeros((batch, 0), "f4")
    program = trace_point(fun, (x[0], s, n[0], empty[0]), {}, (0, 1, 2, 3)).program()
    assert (program.count("loop"), program.count("read")) == (2, 2)
    check(program, x, s, n, empty, rtol=1e-5)


def test_accesses_say_in_which_memory():
    """Leaves and tables in that of all threads, arrays in the thread's own."""

    def fun(x, n):
        total, stack = jax.lax.scan(lambda c, t: (c * t, c + t), x, jnp.linspace(0.2, 0.9, 40))
        return total, stack[n], jnp.linspace(3, 4, 30, dtype=x.dtype)[n]

    program = trace_point(fun, (np.float32(1), np.int32(0)), {}, (0, 1)).program()
    found = set(re.findall(r"\t((?:ld|st)\.\S+)", ptx.PtxKernel(program).text([True, True], 9)))
    assert found >= {"ld.global.nc.b32", "st.global.b32", "ld.local.b32", "st.local.b32"}
    assert all(re.match(r"ld\.(param|global|local)|st\.(global|local)", name) for name in found)


@LIBDEVICE
def test_loops_with_functions():
    x = LOOPING[0] * np.random.default_rng(0).uniform(0.8, 1.2, (33, 2)).astype("f4")
    check(trace_point(looping, LOOPING, {}, (0, 1)).program(), x, LOOPING[1], rtol=1e-4)


@LIBDEVICE
def test_sines_of_any_argument():
    x = np.array([0.0, -0.0, 1e-30, 3.0, 1e4, -2e4, 1e9, 1e30, np.inf, np.nan], "f4")
    program = trace_point(lambda x: (jnp.sin(x), jnp.cos(x)), (x[0],), {}, (0,)).program()
    with np.errstate(all="ignore"):
        wanted = np.sin(x.astype("f8")), np.cos(x.astype("f8"))
    for got, e in zip(interpreted(program)(x), wanted, strict=True):
        np.testing.assert_allclose(got, e, rtol=3e-7, atol=2e-7)
        assert (np.signbit(got) == np.signbit(e))[~np.isnan(e)].all()


def lowered(fun: Callable[..., Any], *shapes: tuple[int, ...]) -> str:
    """What XLA is given for a GPU."""
    exported = jax.export.export(
        jax.jit(fun),
        platforms=["cuda"],
        disabled_checks=[jax.export.DisabledSafetyCheck.custom_call(ptx.TARGET)],
    )(*(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))
    return exported.mlir_module()


@pytest.mark.parametrize(
    ("batch", "grid"), [((), 1), ((128,), 1), ((3, 50), 2)], ids=["point", "batch", "batches"]
)
def test_fused_is_ptx_on_a_gpu(batch, grid):
    fun = veenv.jacve(lambda x, y: x * x * y, "reverse", (0, 1), kernel="fused")
    for _ in batch:
        fun = jax.vmap(fun, (0, None))
    text = lowered(fun, (*batch, 2), (2,))
    assert f"@{ptx.TARGET}" in text
    assert f"grid_x = {grid} : i32" in text
    assert "operand_layouts = [dense<[0, 1]>" in text  # the points of a batch are neighbours


def test_auto_is_for_xla_until_a_gpu_has_run_it():
    assert ptx.TARGET not in lowered(jax.vmap(veenv.jacve(lambda x: jnp.prod(x * x))), (64, 3))


def test_without_libdevice_it_is_for_xla(monkeypatch):
    """Only what calls functions needs it."""
    monkeypatch.setattr(ptx, "toolkits", lambda: iter(()))
    ptx.libdevice.cache_clear()
    step = veenv.fuse(lambda x: jnp.sin(x) * x)
    with pytest.warns(UserWarning, match="libdevice, which is not installed.*XLA takes"):
        assert ptx.TARGET not in lowered(step, (3,))
    assert ptx.TARGET in lowered(veenv.fuse(lambda x: x * x), (3,))
    ptx.libdevice.cache_clear()


def test_on_an_older_gpu_it_is_for_xla(monkeypatch):
    older = SimpleNamespace(compute_capability="7.0", device_kind="Tesla V100")
    monkeypatch.setattr(jax, "local_devices", lambda: [older])
    with pytest.warns(UserWarning, match=r"7\.5 and later, and Tesla V100 has 7\.0; XLA takes"):
        assert ptx.TARGET not in lowered(veenv.fuse(lambda x: x * x), (3,))
    newer = SimpleNamespace(compute_capability="10.0", device_kind="B200")
    monkeypatch.setattr(jax, "local_devices", lambda: [newer])
    assert ptx.TARGET in lowered(veenv.fuse(lambda x: x * x + 1), (3,))


@pytest.mark.parametrize("name", ["LIF", "Robertson", "seed 1", "seed 2"])
def test_another_order_computes_the_same(name, x64):
    if name.startswith("seed"):
        fun, args = random_function(int(name[5:]), 3, 60, 4, arrays=name == "seed 2")
        program = trace_point(fun, args, {}, range(len(args))).program()
    else:
        program, args = program_of(name)
    other = few_alive(program)
    assert other is not program or name != "LIF"  # of the others it may leave more waiting
    assert sorted(op.name for op in other.ops) == sorted(op.name for op in program.ops)
    leaves = [np.asarray(x)[None] for x in args]
    with np.errstate(all="ignore"):
        pairs = zip(*(scalar_program.run(p, *leaves) for p in (program, other)), strict=True)
    for wanted, got in pairs:
        np.testing.assert_array_equal(got, wanted)


def test_an_access_outside_is_seen():
    """The oracle would notice a kernel that goes beyond its batch."""
    program, args = program_of("Robertson")
    leaves = [np.tile(x, (5, *[1] * x.ndim)) for x in args]
    outputs = [Leaf((*program.outputs[k].shape, 5), "float32") for k in program.written()]
    text = ptx.PtxKernel(program).text([True] * len(args), 6)
    with pytest.raises(AssertionError, match=r"outside|twice"):
        oracle.run(text, [np.moveaxis(x, 0, -1) for x in leaves], outputs, 1, 128)
