"""A scalar program as a Pallas kernel, for TPUs (Mosaic).

A leaf is one array, its entries first and the points of the batch behind them; a program of the
grid computes one block of points. These lie in rows of 128, and leaves as XLA lays them out: in
tiles of some entries by 128 points, so that none is copied where the entries fill tiles.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

from veenv.kernel import expansions
from veenv.kernel.scalar_program import CannotFuseError, Leaf, ScalarProgram
from veenv.kernel.tpu.pallas_code import (
    NARROW,
    SINES,
    BlockRun,
    SinesAndCosines,
    View,
    apply,
    memory_of,
    tables_of,
)
from veenv.kernel.tpu.tiling import Tiled, Tiling


def has_sines(program: ScalarProgram) -> bool:
    """Whether a program has sines outside of loops, and is small enough to be compiled twice."""
    calls = {op.attr for op in program.ops if op.name == "call" and op.dtype == "float32"}
    return program.size <= _CODE and not calls.isdisjoint(SINES)


LEAST = 8, 128
"""The least shape of the values that operations compute at once."""
_ROWS = 64
"""Rows of a block of a TPU: more would make no schedule shorter by a twentieth."""
_BUSY = 2048
"""Vector operations that keep a TPU busy: of more at once the values do not fit into registers."""
_CODE = 4096
"""Operations of a kernel that is compiled a second time for the arguments of sines far away."""
NAME = "veenv_kernel"
"""What the compilers call a kernel."""
_USUAL, _MOST = 16 << 20, 96 << 20
"""Bytes of a TPU core's vector memory: what a kernel gets by default, and nearly all there is."""


@dataclass(frozen=True)
class PallasKernel:
    """A scalar program as a function of batches on a TPU."""

    program: ScalarProgram  # the program; with `written` leaves only as outputs
    interpret: bool = False  # run the kernel's operations one by one, on any platform: for tests

    def __post_init__(self) -> None:
        wide = sorted(self.program.dtypes & {"float64", "int64", "uint64"})
        if wide:
            raise CannotFuseError(f"a TPU has no {wide[0]}")

    @functools.cached_property
    def _leaves(self) -> list[Leaf]:
        """What it reads and writes; of nothing one entry, as no array in a kernel is empty."""
        inputs = [leaf if leaf.size else Leaf((), leaf.dtype) for leaf in self.program.inputs]
        return inputs + [self.program.outputs[k] for k in self.program.written()]

    def block(self, batch: int) -> tuple[int, ...]:
        """How many parts a block has, one after the other, and the shape of the values of one."""
        parts, (rows, points) = 1, LEAST
        most = min(_ROWS // 2, rows * _BUSY // max(1, self.program.size))
        while 2 * rows <= most and _fits(self.program, parts, 2 * rows):
            rows *= 2
        while rows > LEAST[0] and rows * points >= 2 * batch:
            rows //= 2
        most = min(_ROWS, -(-batch // points))
        while parts * rows < most and _fits(self.program, 2 * parts, rows):
            parts *= 2
        return parts, rows, points

    def __call__(self, *leaves: Any) -> list[jax.Array]:
        """The written output leaves ``[B, *shape]``, from such input leaves, or some without B."""
        with jax.enable_x64(False):  # Mosaic takes no indices of 64 bits
            return self._call(leaves)

    def _call(self, leaves: Sequence[Any]) -> list[jax.Array]:
        from jax.experimental.pallas import tpu  # not in every build of JAX

        program = self.program
        pairs = list(zip(leaves, program.inputs, strict=True))
        batch = next(x.shape[0] for x, leaf in pairs if x.ndim > len(leaf.shape))
        block = self.block(batch)
        values, blocks = block[1:], -(-batch // prod(block))
        leaves_in = self._leaves[: len(pairs)]
        columns = [
            _column(x, leaf, batch, block) for (x, _), leaf in zip(pairs, leaves_in, strict=True)
        ]
        tables = list(tables_of(program).values())
        for table in tables:
            table = jnp.asarray(table, _in_memory(Leaf((), table.dtype.name)))
            columns.append(jnp.broadcast_to(jnp.expand_dims(table, [*range(1, 1 + len(values))]),
                                            (len(table), *values)))  # fmt: skip
        written = self._leaves[len(pairs) :]
        memory = [
            jax.ShapeDtypeStruct((leaf.size, *values), _in_memory(leaf))
            for leaf in memory_of(program).values()
        ]
        tilings = [(Tiling.of(leaf), _in_memory(leaf)) for leaf in self._leaves]
        memory += [jax.ShapeDtypeStruct(t.own(values[0]), d) for t, d in tilings if not t.full]
        specs = [_block(leaf, block) for leaf in written]
        kinds = [_in_memory(leaf) for leaf in written]
        needed = max(_needed(program, *block[:2]), _USUAL)
        results = pl.pallas_call(
            self._body(block),
            out_shape=[
                jax.ShapeDtypeStruct(_whole(spec, blocks), kind)
                for spec, kind in zip(specs, kinds, strict=True)
            ],
            grid=(blocks,),
            in_specs=[
                *(_block(leaf, block) for leaf in leaves_in),
                *(_table(len(table), values) for table in tables),
            ],
            out_specs=specs,
            scratch_shapes=[tpu.VMEM(m.shape, m.dtype) for m in memory],
            interpret=self.interpret,
            name=NAME,
            compiler_params=tpu.CompilerParams(vmem_limit_bytes=min(needed, _MOST)),
        )(*columns)
        return [
            Tiling.of(leaf).taken_back(y, leaf.shape)[:batch].astype(leaf.dtype)
            for y, leaf in zip(results, written, strict=False)
        ]

    def _body(self, block: Sequence[int]) -> Callable[..., None]:
        program = self.program
        parts, *values = block
        tables, memory = tables_of(program), memory_of(program)
        written = program.written()

        def compute(refs: Sequence[Any], part: Any, outside: Any = None) -> None:
            rest = iter(refs)
            ins = [next(rest) for _ in program.inputs]
            known = {where: next(rest) for where in tables}
            outs = [next(rest) for _ in written]
            stacked = {where: next(rest) for where in memory}
            pairs = zip([*ins, *outs], self._leaves, strict=True)
            tiled = [Tiled(ref, leaf, part, values[0], rest) for ref, leaf in pairs]
            ins, outs = tiled[: len(ins)], tiled[len(ins) :]
            for ref in ins:
                ref.read()
            pairs = zip(ins, program.inputs, strict=True)
            views = [View(ref, leaf.dtype) for ref, leaf in pairs]
            run = BlockRun(program, views, known, stacked, tuple(values), apply, outside)
            for out, k in zip(outs, written, strict=True):
                for entry, i in enumerate(program.results[k]):
                    out[entry] = run.operand(i).astype(out.dtype)
            for out in outs:
                out.write()

        def all_parts(refs: Sequence[Any]) -> None:
            lax.fori_loop(0, parts, lambda t, _: compute(refs, t), None)

        def body(*refs: Any) -> None:
            if not has_sines(program):
                return all_parts(refs)

            def quickly(t: Any, largest: jax.Array) -> jax.Array:
                sines = SinesAndCosines(apply)
                compute(refs, t, sines)
                return jnp.maximum(largest, sines.largest())

            largest = lax.fori_loop(0, parts, quickly, jnp.zeros(values, jnp.float32))
            pl.when(~(jnp.max(largest) <= expansions.QUICK))(lambda: all_parts(refs))

        return body


def _needed(program: ScalarProgram, parts: int, rows: int) -> int:
    """Bytes: values that do not fit into registers; leaves, once more while others are copied."""
    tilings = [Tiling.of(leaf) for leaf in (*program.inputs, *program.outputs)]
    leaves = sum(t.size for t in tilings)
    own = program.size + sum(leaf.size for leaf in memory_of(program).values())
    own += sum(t.size for t in tilings if not t.full)
    return 4 * rows * LEAST[1] * (own + 2 * parts * leaves)


def _fits(program: ScalarProgram, parts: int, rows: int) -> bool:
    """Whether a block leaves half of the memory free."""
    return 2 * _needed(program, parts, rows) <= _MOST


def _column(x: jax.Array, leaf: Leaf, batch: int, block: Sequence[int]) -> jax.Array:
    """An input leaf of so many points, or of all, as the kernel reads it: in whole blocks."""
    shape = batch, *leaf.shape
    x = jnp.broadcast_to(x if x.size else 0, shape).astype(_in_memory(leaf))
    behind = ((0, -batch % prod(block)), *((0, 0) for _ in leaf.shape))
    x = jnp.pad(x, behind, mode="edge")
    return Tiling.of(leaf).laid_out(x, block[1])


def _block(leaf: Leaf, block: Sequence[int]) -> pl.BlockSpec:
    """All entries of a leaf at the points of one block."""
    parts, *values = block
    return Tiling.of(leaf).block(parts, values[0])


def _whole(spec: pl.BlockSpec, blocks: int) -> tuple[int, ...]:
    """The shape of an array of so many blocks."""
    of: Any = spec
    places = zip(of.block_shape, of.index_map(1), strict=True)
    return tuple(n * blocks if moves else n for n, moves in places)


def _table(size: int, values: Sequence[int]) -> pl.BlockSpec:
    """All entries of a table, which is the same for every block."""
    return pl.BlockSpec((size, *values), lambda i: (0,) * (1 + len(values)))


def _in_memory(leaf: Leaf) -> Any:
    """The dtype of a leaf there: a TPU reads single rows of 32-bit numbers only."""
    return np.dtype("int32" if leaf.dtype == "bool" or leaf.dtype in NARROW else leaf.dtype)
