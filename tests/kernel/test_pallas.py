"""The Pallas form of scalar programs: interpreted, and lowered for TPUs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh

import veenv
from veenv.kernel.fusing import trace_point
from veenv.kernel.scalar_program import CannotFuseError, ScalarProgram
from veenv.kernel.tpu.pallas import PallasKernel

KINDS = "TPU v5e", "TPU v6 lite"


def program_of(name: str) -> tuple[ScalarProgram, list[np.ndarray]]:
    task = veenv.tasks.get(name)
    args = [np.asarray(x, "f4") for x in task.example_args()]
    argnums = task.argnums if isinstance(task.argnums, tuple) else (task.argnums,)
    return trace_point(veenv.jacve(task.fun, "best", argnums), args, {}, argnums).program(), args


def test_interpreted():
    """A batch that is no multiple of a block; leaves of many kinds, an empty and a shared one."""

    def fun(x, s, n, empty):
        positive = x > s
        return (
            jnp.where(positive, x * s, jnp.sin(x) / n.astype(x.dtype)),
            positive,
            x.sum() * n.astype(x.dtype) + empty.sum(),
            (jnp.outer(jnp.arange(3.0), x[0] + jnp.arange(5.0)), jnp.outer(jnp.arange(3.0), x[:1])),
            jnp.floor(x),
            (x[0] * s + x[1], x[0] * s - x[1], x[1] - x[0] * s, x[0] * s - x[1] * x[0]),
        )

    rng = np.random.default_rng(0)
    x, n = rng.normal(size=(1100, 2)).astype("f4"), rng.integers(1, 5, 1100).astype("i4")
    shared, empty = np.float32(0.3), np.zeros((1100, 0), "f4")
    traced = trace_point(fun, (x[0], shared, n[0], empty[0]), {}, (0, 1, 2, 3))
    kernel = PallasKernel(traced.program(), interpret=True)
    expected = jax.jit(jax.vmap(fun, (0, None, 0, 0)))(x, shared, n, empty)
    found = jax.jit(kernel)(x, shared, n, empty)
    for got, e in zip(found, jax.tree.leaves(expected), strict=True):
        assert got.dtype == e.dtype
        np.testing.assert_allclose(got, e, rtol=1e-5, atol=1e-6)


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


def test_loops_interpreted():
    rng = np.random.default_rng(0)
    x = LOOPING[0] * rng.uniform(0.8, 1.2, (300, 2)).astype("f4")
    program = trace_point(looping, LOOPING, {}, (0, 1)).program()
    assert program.count("loop") == 4
    kernel = PallasKernel(program, interpret=True)
    expected = jax.jit(jax.vmap(looping, (0, None)))(x, LOOPING[1])
    for got, e in zip(jax.jit(kernel)(x, LOOPING[1]), expected, strict=True):
        np.testing.assert_allclose(got, e, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["RoeFlux_1d", "RobotArm_6DOF", "looping"])
def test_lowered(kind: str, name: str):
    """Compiles as far as a machine without the accelerator can."""
    loops = trace_point(looping, LOOPING, {}, (0, 1)).program()
    program, args = (loops, LOOPING) if name == "looping" else program_of(name)
    mesh = AbstractMesh((1,), ("x",), abstract_device=AbstractDevice(kind, 1, "tpu"))
    shapes = [jax.ShapeDtypeStruct((4096, *x.shape), x.dtype) for x in args]
    with jax.sharding.use_abstract_mesh(mesh):
        exported = jax.export.export(jax.jit(PallasKernel(program)), platforms=["tpu"])(*shapes)
    assert len(exported.out_avals) == len(program.written())
    assert "tpu_custom_call" in exported.mlir_module()


@pytest.mark.parametrize("batch", [(), (3, 50)])
def test_fused_is_a_pallas_kernel_on_a_tpu(batch: tuple[int, ...]):
    """`jacve(..., kernel="fused")` is lowered to it, for points and for batches with two axes."""
    fun = veenv.jacve(lambda x, y: jnp.sin(x) * y, "reverse", (0, 1), kernel="fused")
    for _ in batch:
        fun = jax.vmap(fun, (0, None))
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((*batch, 2), (2,))]
    mesh = AbstractMesh((1,), ("x",), abstract_device=AbstractDevice(KINDS[0], 1, "tpu"))
    with jax.sharding.use_abstract_mesh(mesh):
        exported = jax.export.export(jax.jit(fun), platforms=["tpu"])(*shapes)
    assert "tpu_custom_call" in exported.mlir_module()


def test_what_is_not_there():
    with jax.enable_x64(True):
        wide = trace_point(jnp.sin, (1.0,), {}, (0,)).program()
        with pytest.raises(CannotFuseError, match="float64"):
            PallasKernel(wide)
