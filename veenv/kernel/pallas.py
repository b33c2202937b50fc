"""A scalar program as the body of a Pallas kernel, for GPUs (Triton) and TPUs (Mosaic).

A leaf is one array, its entries first and the points of the batch behind them; a program of the
grid computes one block of points. On a TPU the points of a block lie in a tile of 8 × 128 numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

from veenv.kernel import expansions, pallas_loops
from veenv.kernel.program import CannotFuseError, Leaf, Op, Platform, ScalarProgram
from veenv.rules.operations import OPERATIONS

BLOCKS: dict[Platform, tuple[int, ...]] = {"gpu": (128,), "tpu": (8, 128)}
"""The shape of the block that a program of the grid computes, by platform."""
_EXPANSIONS: dict[Platform, dict[str, Callable[..., jax.Array]]] = {
    "gpu": expansions.GPU,
    "tpu": expansions.TPU,
}
_NARROW = frozenset({"int8", "uint8", "int16", "uint16"})
_USUAL, _MOST = 16 << 20, 96 << 20
"""Bytes of a TPU core's vector memory: what a kernel gets by default, and nearly all there is."""


@dataclass(frozen=True)
class PallasKernel:
    """A scalar program as a function of batches on an accelerator."""

    program: ScalarProgram  # the program; with `written` leaves only as outputs
    platform: Platform = "gpu"  # "gpu" or "tpu"
    interpret: bool = False  # run the kernel's operations one by one, on any platform: for tests

    def __post_init__(self) -> None:
        if self.platform not in BLOCKS:
            raise ValueError(f"platform must be one of {', '.join(BLOCKS)}, got {self.platform!r}")
        if self.platform == "tpu" and "float64" in self.program.dtypes:
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
            padded = padded.astype(_in_memory(leaf)).T
            columns.append(padded.reshape(leaf.size, rows * block[0], *block[1:]))
        tables = list(pallas_loops.tables(program).values())
        for values in tables:
            values = jnp.asarray(values, _in_memory(Leaf((), values.dtype.name)))
            columns.append(jnp.broadcast_to(jnp.expand_dims(values, [*range(1, 1 + len(block))]),
                                            (len(values), *block)))  # fmt: skip
        written = [program.outputs[k] for k in program.written()]
        outputs = [*written, *pallas_loops.memory(program).values()]
        results = pl.pallas_call(
            self._body(),
            out_shape=[
                jax.ShapeDtypeStruct((leaf.size, rows * block[0], *block[1:]), _in_memory(leaf))
                for leaf in outputs
            ],
            grid=(rows,),
            in_specs=[
                *(_block(leaf, block) for leaf in program.inputs),
                *(_table(len(values), block) for values in tables),
            ],
            out_specs=[_block(leaf, block) for leaf in outputs],
            interpret=self.interpret,
            compiler_params=_compiler_params(self.platform, program),
        )(*columns)
        return [
            y.reshape(leaf.size, -1)[:, :batch].T.reshape(batch, *leaf.shape).astype(leaf.dtype)
            for y, leaf in zip(results, written, strict=False)
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

    def _body(self) -> Callable[..., None]:
        program, block = self.program, BLOCKS[self.platform]
        tables, memory = pallas_loops.tables(program), pallas_loops.memory(program)
        written = program.written()

        def body(*refs: Any) -> None:
            rest = iter(refs)
            ins = [pallas_loops.View(next(rest), 0, 1, leaf.size) for leaf in program.inputs]
            known = {where: next(rest) for where in tables}
            outs = [next(rest) for _ in written]
            stacked = {where: next(rest) for where in memory}
            apply_here = functools.partial(apply, platform=self.platform)
            values = pallas_loops.Run(known, stacked, block, apply_here).values(program, ins)
            for out, k in zip(outs, written, strict=True):
                for entry, i in enumerate(program.results[k]):
                    out[entry] = values[i].astype(out.dtype)

        return body


def _compiler_params(platform: Platform, program: ScalarProgram) -> Any:
    """Chooses Triton on a GPU, where older versions of JAX would take Mosaic; memory on a TPU."""
    if platform == "gpu":
        from jax.experimental.pallas import triton  # not in every build of JAX

        return triton.CompilerParams()
    from jax.experimental.pallas import tpu

    # Values that do not fit into registers; leaves, once more while others are copied.
    leaves = *program.inputs, *program.outputs, *pallas_loops.memory(program).values()
    numbers = program.size + 2 * sum(leaf.size for leaf in leaves)
    needed = 4 * int(np.prod(BLOCKS["tpu"])) * numbers
    return tpu.CompilerParams(vmem_limit_bytes=min(max(needed, _USUAL), _MOST))


def _block(leaf: Leaf, block: Sequence[int]) -> pl.BlockSpec:
    """All entries of a leaf at the points of one block."""
    behind = (0,) * (len(block) - 1)
    return pl.BlockSpec((leaf.size, *block), lambda i: (0, i, *behind))


def _table(size: int, block: Sequence[int]) -> pl.BlockSpec:
    """All entries of a table, which is the same for every block."""
    return pl.BlockSpec((size, *block), lambda i: (0,) * (1 + len(block)))


def _in_memory(leaf: Leaf) -> Any:
    return np.dtype("int8" if leaf.dtype == "bool" else leaf.dtype)


def apply(op: Op, args: Sequence[Any], platform: Platform = "gpu") -> jax.Array:
    """One operation on JAX arrays of one shape."""
    if op.name == "convert":
        return args[0] != 0 if op.dtype == "bool" else args[0].astype(op.dtype)
    if op.name == "bitcast":
        return lax.bitcast_convert_type(args[0], np.dtype(op.dtype))
    name = op.attr if op.name == "call" else op.name
    function = _EXPANSIONS[platform].get(name) or OPERATIONS[name].jax
    if function is None or (platform, name) == ("tpu", "nextafter"):
        raise CannotFuseError(f"function {name!r} cannot be part of a Pallas kernel", name)
    if platform == "tpu":
        return _on_tpu(op, function, args)
    return function(*args)


def _on_tpu(op: Op, function: Callable[..., jax.Array], args: Sequence[Any]) -> jax.Array:
    """An operation in the numbers that a TPU computes with: integers of 32 bits, and flags."""
    if op.name == "select" and op.dtype == "bool":
        return (args[0] & args[1]) | (~args[0] & args[2])
    kind = args[-1].dtype.name
    if op.name in ("max", "min") and kind == "uint32":
        flipped = [lax.bitcast_convert_type(x ^ jnp.uint32(1 << 31), jnp.int32) for x in args]
        return lax.bitcast_convert_type(function(*flipped), jnp.uint32) ^ jnp.uint32(1 << 31)
    if kind in _NARROW:  # results of 32 bits wrap as those of fewer
        wide = [x.astype(jnp.int32) if x.dtype.name in _NARROW else x for x in args]
        if op.name in ("max", "min"):  # the compiler would compare in fewer bits, and fail
            less = (wide[0] - wide[1]) & ((wide[0] - wide[1]) >> 31)
            return (wide[0] - less if op.name == "max" else wide[1] + less).astype(op.dtype)
        return function(*wide).astype(op.dtype)
    return function(*args)
