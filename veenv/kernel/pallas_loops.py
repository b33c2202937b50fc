"""What a program with loops and arrays computes in the body of a Pallas kernel.

Arrays are references whose first axis counts entries: leaves, tables of constants, and memory that
the kernel writes for what loops stack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from veenv.kernel.program import Leaf, Loop, Op, ScalarProgram

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


def tables(program: ScalarProgram, path: Path = ()) -> dict[Path, np.ndarray]:
    """The arrays of constants of a program and of its loops."""
    return {
        where: np.array([part.ops[a].attr for a in op.args], op.dtype)
        for where, part, op in _arrays(program, path)
        if op.name == "array" and part.is_constant[list(op.args)].all()
    }


def memory(program: ScalarProgram) -> dict[Path, Leaf]:
    """The arrays that the kernel writes, with their sizes."""
    found = {}
    known = tables(program)
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
