"""A scalar program as the body of a Pallas kernel, for GPUs (Triton) and TPUs (Mosaic).

Each entry of the input and output leaves is an array over the batch; a program of the grid computes
one block of points. On a TPU the points of a block lie in a tile of 8 × 128 numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

from veenv.kernel.program import CannotFuseError, Op, Platform, ScalarProgram
from veenv.rules.operations import OPERATIONS

BLOCKS: dict[Platform, tuple[int, ...]] = {"gpu": (128,), "tpu": (8, 128)}
"""The shape of the block that a program of the grid computes, by platform."""


@dataclass(frozen=True)
class PallasKernel:
    """A scalar program as a function of batches on an accelerator.

    Attributes:
      program: the program; with `written` leaves only as outputs.
      platform: "gpu" or "tpu".
      interpret: run the kernel's operations one by one, on any platform: for tests.

    Example:
      >>> from veenv.kernel.fusing import trace_point
      >>> traced = trace_point(lambda x: x * jnp.sin(x), (1.0,), {}, (0,))
      >>> kernel = PallasKernel(traced.program(), "gpu", interpret=True)
      >>> float(kernel(jnp.zeros(3))[0][0])
      0.0
    """

    program: ScalarProgram
    platform: Platform = "gpu"
    interpret: bool = False

    def __post_init__(self) -> None:
        if self.platform not in BLOCKS:
            raise ValueError(f"platform must be one of {', '.join(BLOCKS)}, got {self.platform!r}")
        if self.platform == "tpu" and any(op.dtype == "float64" for op in self.program.ops):
            raise CannotFuseError("a TPU has no float64")

    def __call__(self, *leaves: Any) -> list[jax.Array]:
        """The written output leaves ``[B, *shape]``, from such input leaves, or some without B."""
        program = self.program
        pairs = list(zip(leaves, program.inputs, strict=True))
        batch = next(x.shape[0] for x, leaf in pairs if x.ndim > len(leaf.shape))
        block = BLOCKS[self.platform]
        points = int(np.prod(block))
        rows = -(-batch // points)
        columns = []
        for x, leaf in pairs:
            x = jnp.broadcast_to(x, (batch, *leaf.shape)).reshape(batch, leaf.size)
            padded = jnp.pad(x, ((0, rows * points - batch), (0, 0)), mode="edge")
            columns += [_blocks(padded[:, e], rows, block) for e in range(leaf.size)]
        outputs = [program.outputs[k] for k in program.written()]
        dtypes = [leaf.dtype for leaf in outputs for _ in range(leaf.size)]
        spec = pl.BlockSpec((block[0], *block[1:]), lambda i: (i, *(0 for _ in block[1:])))
        results = pl.pallas_call(
            self._body(len(columns)),
            out_shape=[_memory((rows * block[0], *block[1:]), d) for d in dtypes],
            grid=(rows,),
            in_specs=[spec] * len(columns),
            out_specs=[spec] * len(dtypes),
            interpret=self.interpret,
            compiler_params=_compiler_params(self.platform),
        )(*columns)
        flat = iter(r.reshape(-1)[:batch] for r in results)
        return [
            jnp.stack([next(flat) for _ in range(leaf.size)], -1)
            .reshape(batch, *leaf.shape)
            .astype(leaf.dtype)
            for leaf in outputs
        ]

    def on_batch(self, batch: Sequence[int], *leaves: Any) -> list[jax.Array]:
        """The written output leaves at points with any batch axes, none for a single point."""
        flat = []
        for x, leaf in zip(leaves, self.program.inputs, strict=True):
            shared = x.ndim == len(leaf.shape) and (batch or flat)
            flat.append(x if shared else x.reshape(-1, *leaf.shape))
        outputs = [self.program.outputs[k] for k in self.program.written()]
        return [
            y.reshape(*batch, *leaf.shape) for y, leaf in zip(self(*flat), outputs, strict=True)
        ]

    def _body(self, num_in: int) -> Callable[..., None]:
        program, block = self.program, BLOCKS[self.platform]
        starts = np.cumsum([0, *(leaf.size for leaf in program.inputs)])

        def body(*refs: Any) -> None:
            ins, outs = refs[:num_in], refs[num_in:]
            values: list[Any] = []
            for op in program.ops:
                if op.name == "input":
                    value = ins[int(starts[op.attr[0]]) + op.attr[1]][...]
                    values.append(value != 0 if op.dtype == "bool" else value)
                elif op.name == "const":
                    values.append(jnp.full(block, op.attr))
                else:
                    values.append(apply(op, [values[a] for a in op.args]))
            stream = 0
            for k in program.written():
                for i in program.results[k]:
                    outs[stream][...] = values[i].astype(outs[stream].dtype)
                    stream += 1

        return body


def _compiler_params(platform: Platform) -> Any:
    """Chooses Triton on a GPU, where older versions of JAX would take Mosaic."""
    if platform == "tpu":
        return None
    from jax.experimental.pallas import triton  # not in every build of JAX

    return triton.CompilerParams()


def _blocks(column: jax.Array, rows: int, block: Sequence[int]) -> jax.Array:
    if column.dtype == jnp.bool_:
        column = column.astype(jnp.int8)
    return column.reshape(rows * block[0], *block[1:])


def _memory(shape: Sequence[int], dtype: str) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(shape), jnp.int8 if dtype == "bool" else np.dtype(dtype))


def apply(op: Op, args: Sequence[Any]) -> jax.Array:
    """One operation on JAX arrays of one shape.

    Raises:
      CannotFuseError: for a function of libm that JAX does not have.
    """
    if op.name == "convert":
        return args[0] != 0 if op.dtype == "bool" else args[0].astype(op.dtype)
    if op.name == "bitcast":
        return lax.bitcast_convert_type(args[0], np.dtype(op.dtype))
    name = op.attr if op.name == "call" else op.name
    function = OPERATIONS[name].jax
    if function is None:
        raise CannotFuseError(f"function {name!r} cannot be part of a Pallas kernel", name)
    return function(*args)
