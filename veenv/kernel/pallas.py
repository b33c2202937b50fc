"""A scalar program as the body of a Pallas kernel, for TPUs (Mosaic).

A leaf is one array, its entries first and the points of the batch behind them; a program of the
grid computes one block of points. These lie in rows of 128, and leaves as XLA lays them out: in
tiles of some entries by 128 points, so that none is copied where the entries fill tiles.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

from veenv.kernel import expansions
from veenv.kernel.ordering import in_place, is_stacked, replacing
from veenv.kernel.pallas_arrays import (
    Path,
    View,
    memory_of,
    move,
    of_memory,
    tables_of,
)
from veenv.kernel.program import CannotFuseError, Leaf, Loop, Op, ScalarProgram
from veenv.kernel.tiling import Tiled, Tiling
from veenv.rules.operations import OPERATIONS


class Run:
    """Computes a program with JAX arrays of the shape of a block.

    `apply` computes an operation, `outside` one that is in no loop, if it is another. `known` are
    the references of tables of constants, `written` those of arrays that it writes.
    """

    def __init__(
        self,
        known: Mapping[Path, Any],
        written: Mapping[Path, Any],
        block: tuple[int, ...],
        apply: Callable[[Op, Sequence[Any]], jax.Array],
        outside: Callable[[Op, Sequence[Any]], jax.Array] | None = None,
    ):
        self._refs, self._written = {**known, **written}, frozenset(written)
        self._block, self._apply, self._outside = block, apply, outside or apply

    def values(
        self,
        program: ScalarProgram,
        given: Sequence[Any],
        path: Path = (),
        mask: Any = None,
        loop: Loop | None = None,
    ) -> list[Any]:
        """The values of all operations, `given` a number or a view of an array for each input.

        `mask` tells where the loop, and those around it, go on; None is everywhere. `loop` is that
        whose body the program is.
        """
        found: list[Any] = []
        written = in_place(program, loop.carries if loop else 0)
        for k, op in enumerate(program.ops):
            if loop is not None and loop.length is None and k == loop.tested:
                mask = _both(found[program.results[-1][0]], mask)
            args = [found[a] for a in op.args]
            for c in replacing(op):
                if (k, c) not in written:
                    args[c] = self._copied(args[c], (*path, k, ~c))
            match op.name:
                case "input":
                    found.append(_input(given[op.attr[0]], op))
                case "const":
                    found.append(jnp.full(self._block, op.attr))
                case "array":
                    found.append(self._array((*path, k), args))
                case "view":
                    found.append(args[0].view(*op.attr))
                case "entry":
                    found.append(args[0].load(op.attr, op.dtype))
                case "read":
                    found.append(self._read(op, *args))
                case "write":
                    found.append(self._write(args[0], args[1], args[2], mask))
                case "loop":
                    arrays = self._stacks(program, k, path)
                    found.append(self._loop(op.attr, args, arrays, (*path, k), mask))
                case "part":
                    stacked = is_stacked(program, op)
                    found.append(self._whole((*path, k)) if stacked else args[0][op.attr])
                case _:
                    found.append((self._apply if path else self._outside)(op, args))
        return found

    def _whole(self, where: Path) -> View:
        ref = self._refs[where]
        return View(ref, length=ref.shape[0])

    def _array(self, where: Path, entries: Sequence[Any]) -> View:
        """An array; what is no table is written."""
        view = self._whole(where)
        if where in self._written:
            for k, value in enumerate(entries):
                view.ref[k] = value.astype(view.ref.dtype)
        return view

    def _stacks(self, program: ScalarProgram, loop: int, path: Path) -> dict[int, View]:
        """Where the arrays are that a loop stacks, by the numbers of its results."""
        ops = enumerate(program.ops)
        own = ((i, op) for i, op in ops if op.args[:1] == (loop,) and is_stacked(program, op))
        return {op.attr: self._whole((*path, i)) for i, op in own}

    def _copied(self, view: View, where: Path) -> View:
        """The entries of an array in memory of its own."""
        to = self._whole(where)
        move(view, to)
        return to

    def _write(self, view: View, place: jax.Array, value: jax.Array, mask: Any) -> View:
        """Each lane's own entry, where a mask is true: all are gone through."""

        def step(k: Any, _: Any) -> Any:
            here, at = _both(place == k, mask), view.start + view.stride * k
            view.ref[at] = jnp.where(here, value.astype(view.ref.dtype), view.ref[at])
            return 0

        lax.fori_loop(0, view.length, step, 0)
        return view

    def _read(self, op: Op, view: View, place: jax.Array) -> jax.Array:
        """Each lane's own entry: all are gone through, as no reference is read lane by lane."""

        def step(k: Any, found: jax.Array) -> jax.Array:
            return jnp.where(place == k, view.ref[view.place(k)], found)

        found = lax.fori_loop(0, view.length, step, view.ref[view.start])
        return of_memory(found, op.dtype)

    def _loop(
        self, loop: Loop, args: Sequence[Any], arrays: Mapping[int, View], path: Path, mask: Any
    ) -> list[jax.Array]:
        """What a loop carries at its end; what it stacks is in memory."""
        first, body = loop.carries + loop.stacked, loop.body
        dtypes = [leaf.dtype for leaf in body.inputs]
        single = [k for k in range(loop.carries) if not body.inputs[k].shape]
        bools = [dtypes[k] == "bool" for k in single]
        columns, same = args[loop.carries : first], args[first:]

        def kept(values: Sequence[Any]) -> tuple[Any, ...]:
            pairs = zip(values, bools, strict=False)  # flags as numbers, as loops carry them
            return tuple(v.astype(jnp.int32) if flag else v for v, flag in pairs)

        def numbers(values: Sequence[Any]) -> list[Any]:
            return [v != 0 if flag else v for v, flag in zip(values, bools, strict=False)]

        def at(k: Any, carries: Sequence[Any]) -> list[Any]:
            pairs = zip(columns, dtypes[loop.carries :], strict=False)
            return [*every(numbers(carries)), *(c.load(k, dtype) for c, dtype in pairs), *same]

        def every(values: Sequence[Any]) -> list[Any]:  # with the arrays that are carried
            given = dict(zip(single, values, strict=True))
            return [given.get(k, args[k]) for k in range(loop.carries)]

        def put(values: Sequence[Any], where: Any) -> list[Any]:
            results = [values[i] for (i,) in body.results]
            _bring(results, args, set(range(loop.carries)) - {*single}, where)
            return [results[k] for k in single]

        def step(k: Any, carries: Sequence[Any]) -> tuple[Any, ...]:
            k = (loop.length or 0) - 1 - k if loop.reverse else k
            values = self.values(body, at(k, carries), path, mask, loop)
            for result, view in arrays.items():
                view.ref[k] = values[body.results[result][0]].astype(view.ref.dtype)
            return kept(put(values, mask))

        def once(state: Any) -> Any:
            carries = state[1]
            values = self.values(body, at(0, carries), path, mask, loop)
            goes_on = _both(values[body.results[-1][0]], mask)
            pairs = zip(kept(put(values, goes_on)), carries, strict=True)
            any_lane = jnp.max(goes_on.astype(jnp.float32)) > 0
            return any_lane, tuple(jnp.where(goes_on, new, old) for new, old in pairs)

        start = kept([args[k] for k in single])
        if loop.length is not None:
            return every(numbers(lax.fori_loop(0, loop.length, step, start)))
        ended = lax.while_loop(lambda s: s[0], once, (jnp.bool_(True), start))[1]
        return every(numbers(ended))


def _input(given: Any, op: Op) -> Any:
    """An input, or its entry."""
    whole = op.attr[1] is None or not isinstance(given, View)
    return given if whole else given.load(op.attr[1], op.dtype)


def _bring(results: Sequence[Any], to: Sequence[Any], which: Iterable[int], where: Any) -> None:
    """Copies some arrays to where they belong, but those that are there."""
    for k in which:
        if results[k] is not to[k]:
            move(results[k], to[k], where)


def _both(where: jax.Array, mask: Any) -> jax.Array:
    """Where both are true; a mask that is None is true everywhere."""
    return where if mask is None else where & mask


class Waves:
    """Operations on a TPU, with sines and cosines of moderate arguments, one reduction for both."""

    def __init__(self, apply: Callable[[Op, Sequence[Any]], jax.Array]):
        self._apply = apply
        self._known: dict[int, tuple[jax.Array, tuple[jax.Array, jax.Array]]] = {}

    def __call__(self, op: Op, args: Sequence[Any]) -> jax.Array:
        """One operation."""
        if op.name != "call" or op.attr not in _WAVES:
            return self._apply(op, args)
        (x,) = args
        if id(x) not in self._known:
            self._known[id(x)] = x, expansions.sine_and_cosine(x)
        return self._known[id(x)][1][_WAVES.index(op.attr)]

    def largest(self) -> jax.Array:
        """The largest sizes of arguments; NaN where one is."""
        return functools.reduce(jnp.maximum, (jnp.abs(x) for x, _ in self._known.values()))


_WAVES = ("sin", "cos")


def has_waves(program: ScalarProgram) -> bool:
    """Whether a program has sines outside of loops, and is small enough to be compiled twice."""
    calls = {op.attr for op in program.ops if op.name == "call" and op.dtype == "float32"}
    return program.size <= _CODE and not calls.isdisjoint(_WAVES)


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
_NARROW = frozenset({"int8", "uint8", "int16", "uint16"})
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
            views = [View(ref, length=leaf.size) for ref, leaf in pairs]
            run = Run(known, stacked, tuple(values), apply, outside)
            found = run.values(program, views)
            for out, k in zip(outs, written, strict=True):
                for entry, i in enumerate(program.results[k]):
                    out[entry] = found[i].astype(out.dtype)
            for out in outs:
                out.write()

        def all_parts(refs: Sequence[Any]) -> None:
            lax.fori_loop(0, parts, lambda t, _: compute(refs, t), None)

        def body(*refs: Any) -> None:
            if not has_waves(program):
                return all_parts(refs)

            def quickly(t: Any, largest: jax.Array) -> jax.Array:
                waves = Waves(apply)
                compute(refs, t, waves)
                return jnp.maximum(largest, waves.largest())

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
    return np.dtype("int32" if leaf.dtype == "bool" or leaf.dtype in _NARROW else leaf.dtype)


def apply(op: Op, args: Sequence[Any]) -> jax.Array:
    """One operation on JAX arrays of one shape."""
    if op.name == "convert":
        return args[0] != 0 if op.dtype == "bool" else args[0].astype(op.dtype)
    if op.name == "bitcast":
        return lax.bitcast_convert_type(args[0], np.dtype(op.dtype))
    name = op.attr if op.name == "call" else op.name
    function = expansions.TPU.get(name) or OPERATIONS[name].jax
    if function is None or name == "nextafter":
        raise CannotFuseError(f"function {name!r} cannot be part of a Pallas kernel", name)
    return _on_tpu(op, function, args)


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
        if op.name == "shr_l":  # of its own bits, without those of the sign in front
            wide[0] &= jnp.int32((1 << np.dtype(kind).itemsize * 8) - 1)
        return function(*wide).astype(op.dtype)
    return function(*args)
