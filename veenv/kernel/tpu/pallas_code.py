"""A scalar program as operations of JAX in a Pallas kernel, for TPUs (Mosaic)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from veenv.kernel import expansions
from veenv.kernel.backend import Backend, InLoop, Scope
from veenv.kernel.ordering import Place, entries, owned
from veenv.kernel.scalar_program import CannotFuseError, Leaf, Op, ScalarProgram, Strided
from veenv.rules.operations import OPERATIONS

Path = tuple[int, ...]
"""Where an operation is: its position, after those of the loops that it is in."""
NARROW = frozenset({"int8", "uint8", "int16", "uint16"})
"""Integers that are larger ones in memory, as a TPU reads single rows of 32-bit numbers only."""
Apply = Callable[[Op, Sequence[Any]], jax.Array]
"""Computes an operation."""


@dataclass(frozen=True, eq=False)
class View(Strided):
    """Entries of a reference."""

    ref: Any
    dtype: str


def tables_of(program: ScalarProgram) -> dict[Path, np.ndarray]:
    """The arrays of constants of a program and of its loops."""
    return {
        where: np.array([part.ops[a].attr for a in op.args], op.dtype)
        for where, part, op, _ in _arrays(program, ())
        if op.name == "array" and part.is_constant[list(op.args)].all()
    }


def memory_of(program: ScalarProgram) -> dict[Path, Leaf]:
    """The arrays that the kernel writes, with their sizes."""
    known = tables_of(program)
    return {where: leaf for where, _, _, leaf in _arrays(program, ()) if where not in known}


def _arrays(
    program: ScalarProgram, path: Path, carries: int = 0
) -> Iterator[tuple[Path, ScalarProgram, Op, Leaf]]:
    """The arrays that are not another's memory, with the program that each is in."""
    for (k, c), leaf in owned(program, carries):
        yield (*path, k) if c is None else (*path, k, ~c), program, program.ops[k], leaf
    for k, op in enumerate(program.ops):
        if op.name == "loop":
            yield from _arrays(op.attr.body, (*path, k), op.attr.carries)


class BlockRun(Backend[View]):
    """Computes a program with JAX arrays of the shape of a block, given a view of each input.

    `apply` computes an operation, `outside` one that is in no loop, if it is another. `known` are
    the references of tables of constants, `written` those of arrays that it writes.
    """

    READ = frozenset({"input", "const", "entry"})

    def __init__(
        self,
        program: ScalarProgram,
        inputs: Sequence[View],
        known: Mapping[Path, Any],
        written: Mapping[Path, Any],
        block: tuple[int, ...],
        apply: Apply,
        outside: Apply | None = None,
    ):
        self._refs, self._written = {**known, **written}, frozenset(written)
        self._block, self._apply, self._outside = block, apply, outside or apply
        self.scope = Scope(program, inputs, ())
        self.run(range(len(program.ops)))

    def inside(self, position: int) -> Path:
        """The path of a loop."""
        return (*self.scope.where, position)

    def memory(self, place: Place) -> View:
        """A table, or memory of the kernel."""
        (position, k), ops = place, self.scope.program.ops
        path = (*self.scope.where, position, *(() if k is None else [~k]))
        op = ops[position]
        return View(self._refs[path], op.dtype if k is None else ops[op.args[k]].dtype)

    def const(self, op: Op) -> jax.Array:
        """A block of equal numbers."""
        return jnp.full(self._block, op.attr)

    def load(self, array: View, index: Any) -> jax.Array:
        """An entry."""
        return of_memory(array.ref[array.place(index)], array.dtype)

    def put(self, array: View, index: Any, value: jax.Array) -> None:
        """Writes an entry."""
        array.ref[array.place(index)] = value.astype(array.ref.dtype)

    def copy(self, source: View, target: View, count: int, mask: Any = None) -> None:
        """Copies entries as they are in memory, where a mask is true."""

        def step(k: Any, _: Any) -> Any:
            value, at = source.ref[source.place(k)], target.place(k)
            value = value.astype(target.ref.dtype)
            target.ref[at] = value if mask is None else jnp.where(mask, value, target.ref[at])
            return 0

        lax.fori_loop(0, count, step, 0)

    def fill(self, position: int, args: Sequence[int]) -> None:
        """Writes entries that are in no table."""
        array = self.stored(position)
        if (*self.scope.where, position) in self._written:
            for k, a in enumerate(args):
                self.put(array, k, self.operand(a))

    def write(self, op: Op, array: View, place: jax.Array, value: jax.Array) -> None:
        """Each lane's own entry: all are gone through, as no reference is read lane by lane."""
        mask = self.scope.mask

        def step(k: Any, _: Any) -> Any:
            here, at = _both(place == k, mask), array.place(k)
            array.ref[at] = jnp.where(here, value.astype(array.ref.dtype), array.ref[at])
            return 0

        lax.fori_loop(0, entries(self.scope.program, op.args[0]), step, 0)

    def compute(self, op: Op) -> jax.Array:
        """An operation at a block of points."""
        if op.name != "read":
            apply = self._apply if self.scope.where else self._outside
            return apply(op, [self.operand(a) for a in op.args])
        array, place = self.stored(op.args[0]), self.operand(op.args[1])

        def step(k: Any, found: jax.Array) -> jax.Array:
            return jnp.where(place == k, array.ref[array.place(k)], found)

        count = entries(self.scope.program, op.args[0])
        return of_memory(lax.fori_loop(0, count, step, array.ref[array.start]), op.dtype)

    def repeat(self, loop: InLoop[View]) -> Sequence[jax.Array]:
        """A loop of JAX; it carries flags as numbers."""
        flags, of = [dtype == "bool" for dtype in loop.dtypes], loop.loop

        def kept(values: Sequence[Any]) -> tuple[Any, ...]:
            pairs = zip(values, flags, strict=True)
            return tuple(v.astype(jnp.int32) if flag else v for v, flag in pairs)

        def numbers(values: Sequence[Any]) -> list[Any]:
            return [v != 0 if flag else v for v, flag in zip(values, flags, strict=True)]

        def step(k: Any, carries: Sequence[Any]) -> tuple[Any, ...]:
            loop.begin(numbers(carries), (of.length or 0) - 1 - k if of.reverse else k)
            ahead = loop.finish()
            loop.bring()
            return kept(ahead)

        def once(state: Any) -> Any:
            carries = state[1]
            loop.begin(numbers(carries))
            goes_on = self.scope.mask = _both(self.operand(loop.condition), self.scope.mask)
            ahead = loop.finish()
            loop.bring()
            any_lane = jnp.max(goes_on.astype(jnp.float32)) > 0
            pairs = zip(kept(ahead), carries, strict=True)
            return any_lane, tuple(jnp.where(goes_on, new, old) for new, old in pairs)

        start = kept(loop.starts)
        if of.length is not None:
            return numbers(lax.fori_loop(0, of.length, step, start))
        return numbers(lax.while_loop(lambda s: s[0], once, (jnp.bool_(True), start))[1])


def of_memory(value: jax.Array, dtype: str) -> jax.Array:
    """A number from memory, where bools are integers and small integers may be larger ones."""
    return value != 0 if dtype == "bool" else value.astype(dtype)


def _both(where: jax.Array, mask: Any) -> jax.Array:
    """Where both are true; a mask that is None is true everywhere."""
    return where if mask is None else where & mask


class SinesAndCosines:
    """Operations on a TPU, with sines and cosines of moderate arguments, one reduction for both."""

    def __init__(self, apply: Apply):
        self._apply = apply
        self._known: dict[int, tuple[jax.Array, tuple[jax.Array, jax.Array]]] = {}

    def __call__(self, op: Op, args: Sequence[Any]) -> jax.Array:
        """One operation."""
        if op.name != "call" or op.attr not in SINES:
            return self._apply(op, args)
        (x,) = args
        if id(x) not in self._known:
            self._known[id(x)] = x, expansions.sine_and_cosine(x)
        return self._known[id(x)][1][SINES.index(op.attr)]

    def largest(self) -> jax.Array:
        """The largest sizes of arguments; NaN where one is."""
        return functools.reduce(jnp.maximum, (jnp.abs(x) for x, _ in self._known.values()))


SINES = ("sin", "cos")


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
    if kind in NARROW:  # results of 32 bits wrap as those of fewer
        wide = [x.astype(jnp.int32) if x.dtype.name in NARROW else x for x in args]
        if op.name in ("max", "min"):  # the compiler would compare in fewer bits, and fail
            less = (wide[0] - wide[1]) & ((wide[0] - wide[1]) >> 31)
            return (wide[0] - less if op.name == "max" else wide[1] + less).astype(op.dtype)
        if op.name == "shr_l":  # of its own bits, without those of the sign in front
            wide[0] &= jnp.int32((1 << np.dtype(kind).itemsize * 8) - 1)
        return function(*wide).astype(op.dtype)
    return function(*args)
