"""Every operation that kernels have on a CPU, in Pallas kernels: its values, or a refusal."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scripts.benchmarks.operations_program import DTYPES, NOT_THERE, operations
from veenv.kernel.fusing import trace_point
from veenv.kernel.scalar_program import FLOATS, CannotFuseError, Op, ScalarProgram
from veenv.kernel.tpu.pallas import PallasKernel
from veenv.kernel.tpu.pallas_code import apply
from veenv.rules.operations import OPERATIONS

CASES = DTYPES["tpu"]


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


@pytest.mark.parametrize("dtype", CASES)
def test_every_operation_is_there(dtype):
    """A new one fails here as soon as it is in the table, until Pallas has it or refuses it."""
    with jax.enable_x64(True):
        ops = operations(dtype, NOT_THERE["tpu"]).program.ops
        columns = points(dtype)
        for op in ops[len(columns) :]:
            args = [columns[k] for k in op.args]
            found = jax.eval_shape(lambda *a, op=op: apply(op, a), *args)
            assert (found.shape, found.dtype) == (columns[0].shape, op.dtype), op


@pytest.mark.slow
@pytest.mark.parametrize("dtype", CASES)
def test_values(dtype):
    with jax.enable_x64(True):
        program = operations(dtype, NOT_THERE["tpu"]).program
        columns = points(dtype)
        found = jax.jit(PallasKernel(program, interpret=True))(*columns)
    made = program.ops[len(columns) :]
    for op, got in zip(made, found, strict=True):
        if op.name == "convert" and (dtype in FLOATS) and op.dtype not in (dtype, "bool"):
            continue  # NumPy's is not defined where it overflows
        wanted = expected(op, [columns[k] for k in op.args])
        assert got.dtype == wanted.dtype
        if got.dtype in ("float32", "float64"):
            most = 4e-6 if op.attr in ("pow", "lgamma", "tan") else 1.5e-6
            most *= 1 if dtype == "float32" else 1e-8
            np.testing.assert_allclose(got, wanted, rtol=most, atol=most, err_msg=str(op))
        else:
            np.testing.assert_array_equal(got, wanted, err_msg=str(op))


def test_refused_by_name():
    for name in NOT_THERE["tpu"]:
        inputs, x = operations("float32").program.inputs, points("float32")
        ops = (*(Op("input", leaf.dtype, (), (k, 0)) for k, leaf in enumerate(inputs)),
               Op("call", "float32", (0, 1), name))  # fmt: skip
        program = ScalarProgram(inputs, ops, (inputs[0],), ((4,),))
        with pytest.raises(CannotFuseError, match=name):
            PallasKernel(program, interpret=True)(*x)


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint64"])
def test_a_tpu_has_nothing_of_64_bits(dtype):
    with pytest.raises(CannotFuseError, match=dtype):
        PallasKernel(operations(dtype).program)


@pytest.mark.parametrize("far", [1e5, np.inf, np.nan])
def test_sines_of_any_argument(far):
    """One such argument is enough for all points of its block to be computed again."""
    x = np.linspace(-900, 900, 3000, dtype="f4")
    x[1234] = far
    kernel = PallasKernel(
        trace_point(lambda x: (jnp.sin(x) * jnp.cos(x), jnp.cos(x)), (x[0],), {}, (0,)).program(),
        interpret=True,
    )
    with np.errstate(all="ignore"):
        wanted = np.sin(x.astype("f8")) * np.cos(x.astype("f8")), np.cos(x.astype("f8"))
    for got, one in zip(jax.jit(kernel)(x), wanted, strict=True):
        np.testing.assert_allclose(got, one, rtol=1e-6, atol=2e-7)
