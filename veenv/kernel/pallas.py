"""A scalar program as the body of a Pallas kernel, for GPUs (Triton) and TPUs (Mosaic).

A leaf is one array, its entries first and the points of the batch behind them; a program of the
grid computes one block of points. On a TPU the points of a block lie in a tile of 8 × 128 numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

from veenv.kernel import expansions
from veenv.kernel.program import CannotFuseError, Leaf, Loop, Op, Platform, ScalarProgram
from veenv.rules.operations import OPERATIONS

Path = tuple[int, ...]
"""Where an operation is: its position, after those of the loops that it is in."""


class View(NamedTuple):
    """Every so manieth entry of a reference, so many of them."""

    ref: Any
    start: int
    stride: int
    length: int

    def load(self, k: Any, is_bool: bool) -> jax.Array:
        """An entry."""
        value = self.ref[self.start + self.stride * k]
        return value != 0 if is_bool else value


def tables_of(program: ScalarProgram) -> dict[Path, np.ndarray]:
    """The arrays of constants of a program and of its loops."""
    return {
        where: np.array([part.ops[a].attr for a in op.args], op.dtype)
        for where, part, op in _arrays(program, ())
        if op.name == "array" and part.is_constant[list(op.args)].all()
    }


def memory_of(program: ScalarProgram) -> dict[Path, Leaf]:
    """The arrays that the kernel writes, with their sizes."""
    found = {}
    known = tables_of(program)
    for where, part, op in _arrays(program, ()):
        if op.name == "part":
            found[where] = Leaf((part.ops[op.args[0]].attr.length,), op.dtype)
        elif where not in known:
            found[where] = Leaf((len(op.args),), op.dtype)
    return found


def _arrays(program: ScalarProgram, path: Path) -> list[tuple[Path, ScalarProgram, Op]]:
    found = []
    for k, op in enumerate(program.ops):
        if op.name == "loop":
            found += _arrays(op.attr.body, (*path, k))
        elif op.name == "array" or _is_stacked(program, op):
            found.append(((*path, k), program, op))
    return found


def _is_stacked(program: ScalarProgram, op: Op) -> bool:
    return op.name == "part" and op.attr >= program.ops[op.args[0]].attr.carries


class Run:
    """Computes a program with JAX arrays of the shape of a block.

    `known` are the references of tables of constants, `written` those of arrays that it writes.
    """

    def __init__(
        self,
        known: Mapping[Path, Any],
        written: Mapping[Path, Any],
        block: tuple[int, ...],
        apply: Callable[[Op, Sequence[Any]], jax.Array],
    ):
        self._refs, self._written = {**known, **written}, frozenset(written)
        self._block, self._apply = block, apply

    def values(
        self, program: ScalarProgram, given: Sequence[Any], path: Path = (), mask: Any = None
    ) -> list[Any]:
        """The values of all operations, `given` a number or a view of an array for each input.

        `mask` tells where the loop, and those around it, go on; None is everywhere.
        """
        found: list[Any] = []
        for k, op in enumerate(program.ops):
            args = [found[a] for a in op.args]
            match op.name:
                case "input":
                    value, entry = given[op.attr[0]], op.attr[1]
                    if isinstance(value, View) and entry is not None:
                        value = value.load(entry, op.dtype == "bool")
                    found.append(value)
                case "const":
                    found.append(jnp.full(self._block, op.attr))
                case "array":
                    found.append(self._array((*path, k), args))
                case "view":
                    (ref, start, stride, _), (first, step, length) = args[0], op.attr
                    found.append(View(ref, start + stride * first, stride * step, length))
                case "entry":
                    found.append(args[0].load(op.attr, op.dtype == "bool"))
                case "read":
                    found.append(self._read(op, *args))
                case "loop":
                    arrays = {
                        o.attr: self._whole((*path, i))
                        for i, o in enumerate(program.ops)
                        if o.args[:1] == (k,) and _is_stacked(program, o)
                    }
                    found.append(self._loop(op.attr, args, arrays, (*path, k), mask))
                case "part":
                    stacked = _is_stacked(program, op)
                    found.append(self._whole((*path, k)) if stacked else args[0][op.attr])
                case _:
                    found.append(self._apply(op, args))
        return found

    def _whole(self, where: Path) -> View:
        ref = self._refs[where]
        return View(ref, 0, 1, ref.shape[0])

    def _array(self, where: Path, entries: Sequence[Any]) -> View:
        """An array; what is no table is written."""
        view = self._whole(where)
        if where in self._written:
            for k, value in enumerate(entries):
                view.ref[k] = value.astype(view.ref.dtype)
        return view

    def _read(self, op: Op, view: View, place: jax.Array) -> jax.Array:
        """Each lane's own entry: all are gone through, as no reference is read lane by lane."""

        def step(k: Any, found: jax.Array) -> jax.Array:
            return jnp.where(place == k, view.ref[view.start + view.stride * k], found)

        found = lax.fori_loop(0, view.length, step, view.ref[view.start])
        return found != 0 if op.dtype == "bool" else found

    def _loop(
        self, loop: Loop, args: Sequence[Any], arrays: Mapping[int, View], path: Path, mask: Any
    ) -> list[jax.Array]:
        """What a loop carries at its end; what it stacks is in memory."""
        first, body = loop.carries + loop.stacked, loop.body
        bools = [leaf.dtype == "bool" for leaf in body.inputs]
        columns, same = args[loop.carries : first], args[first:]

        def kept(values: Sequence[Any]) -> tuple[Any, ...]:
            """As loops carry them: flags as numbers."""
            pairs = zip(values, bools, strict=False)
            return tuple(v.astype(jnp.int32) if flag else v for v, flag in pairs)

        def numbers(values: Sequence[Any]) -> list[Any]:
            return [v != 0 if flag else v for v, flag in zip(values, bools, strict=False)]

        def at(k: Any, carries: Sequence[Any]) -> list[Any]:
            pairs = zip(columns, bools[loop.carries :], strict=False)
            return [*numbers(carries), *(c.load(k, flag) for c, flag in pairs), *same]

        def step(k: Any, carries: Sequence[Any]) -> tuple[Any, ...]:
            k = (loop.length or 0) - 1 - k if loop.reverse else k
            values = self.values(body, at(k, carries), path, mask)
            for result, view in arrays.items():
                view.ref[k] = values[body.results[result][0]].astype(view.ref.dtype)
            return kept([values[i] for (i,) in body.results[: loop.carries]])

        def once(state: Any) -> Any:
            carries = state[1]
            values = self.values(body, at(0, carries), path, mask)
            *ahead, goes_on = (values[i] for (i,) in body.results)
            goes_on = goes_on if mask is None else goes_on & mask
            pairs = zip(kept(ahead), carries, strict=True)
            any_lane = jnp.max(goes_on.astype(jnp.float32)) > 0
            return any_lane, tuple(jnp.where(goes_on, new, old) for new, old in pairs)

        start = kept(args[: loop.carries])
        if loop.length is not None:
            return numbers(lax.fori_loop(0, loop.length, step, start))
        return numbers(lax.while_loop(lambda s: s[0], once, (jnp.bool_(True), start))[1])


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
        tables = list(tables_of(program).values())
        for values in tables:
            values = jnp.asarray(values, _in_memory(Leaf((), values.dtype.name)))
            columns.append(jnp.broadcast_to(jnp.expand_dims(values, [*range(1, 1 + len(block))]),
                                            (len(values), *block)))  # fmt: skip
        written = [program.outputs[k] for k in program.written()]
        outputs = [*written, *memory_of(program).values()]
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
        tables, memory = tables_of(program), memory_of(program)
        written = program.written()

        def body(*refs: Any) -> None:
            rest = iter(refs)
            ins = [View(next(rest), 0, 1, leaf.size) for leaf in program.inputs]
            known = {where: next(rest) for where in tables}
            outs = [next(rest) for _ in written]
            stacked = {where: next(rest) for where in memory}
            apply_here = functools.partial(apply, platform=self.platform)
            values = Run(known, stacked, block, apply_here).values(program, ins)
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
    leaves = *program.inputs, *program.outputs, *memory_of(program).values()
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
