"""Where arrays of a program are in a Pallas kernel: tables of constants, and memory of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from veenv.kernel.ordering import owned
from veenv.kernel.program import Leaf, Op, ScalarProgram, Strided

Path = tuple[int, ...]
"""Where an operation is: its position, after those of the loops that it is in."""


@dataclass(frozen=True)
class View(Strided):
    """Entries of a reference."""

    ref: Any

    def load(self, k: Any, dtype: str) -> jax.Array:
        """An entry."""
        return of_memory(self.ref[self.place(k)], dtype)


def of_memory(value: jax.Array, dtype: str) -> jax.Array:
    """A number from memory, where bools are integers and small integers may be larger ones."""
    return value != 0 if dtype == "bool" else value.astype(dtype)


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


def move(source: View, target: View, mask: Any = None) -> None:
    """Copies an array's entries where a mask is true."""

    def step(k: Any, _: Any) -> Any:
        value, at = source.ref[source.place(k)], target.place(k)
        value = value.astype(target.ref.dtype)
        target.ref[at] = value if mask is None else jnp.where(mask, value, target.ref[at])
        return 0

    lax.fori_loop(0, target.length, step, 0)
