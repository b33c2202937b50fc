"""What another process has taken for a Jacobian, known by what the function computes.

That is a kernel, a mode of JAX, or an elimination as StableHLO, which is compiled, not executed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from veenv import _compat
from veenv._support import setting
from veenv.graph.identity import text_of
from veenv.graph.program import Program
from veenv.kernel.fusing import Traced
from veenv.kernel.scalar_program import ScalarProgram
from veenv.rules import walk
from veenv.rules.base import is_differentiable, is_key

if TYPE_CHECKING:
    from veenv.kernel.cpu.finished import Finished

Run = Callable[..., list[Any]]
"""From the operands of the elimination to the leaves of a result."""
BY_XLA = ""
"""In the place of the name of one of JAX's modes: an elimination, which XLA compiles."""
_NOT_EXPORTED = (ValueError, NotImplementedError)
"""What JAX raises where it cannot promise that a program is the same later."""
_forgotten: ContextVar[bool] = ContextVar("forgotten", default=False)


def forgetting() -> AbstractContextManager[None]:
    """Inside, everything is made anew and nothing kept."""
    return setting(_forgotten, True)


@dataclass(frozen=True)
class Memory:
    """The place on disk of what is taken for a Jacobian."""

    name: str
    again: Callable[..., Any]  # the function as it was traced
    found: Finished | None  # the kernel, if it is there
    # the modes of JAX that are taken at some batches, or `BY_XLA`
    modes: dict[int, str]
    wide: bool  # whether numbers are of 64 bits by default

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return self.found is not None or bool(self.modes)

    def note(
        self, base: Traced, program: ScalarProgram | None, batch: int, mode: str | None
    ) -> None:
        """Remembers what is taken at a batch: a mode of JAX, or the kernel where that is None."""
        from veenv.kernel.cpu import finished  # it loads llvmlite

        if base.static or any(map(is_key, base.avals)):
            return
        if mode is not None:
            finished.keep_modes(self.name, {**self.modes, batch: mode})
        elif program is not None and len(program.outputs) == len(base.avals):
            same = self.found is not None and self.found.digest() == program.digest()
            known = self.found.batches if self.found is not None and same else ()
            finished.keep(self.name, program, [*known, batch])

    def kept(self, run: Run, wanted: Sequence[int]) -> Run:
        """An elimination by XLA, whose program is kept for each shape that it is lowered for.

        `wanted` are the leaves that it returns: with a kernel those that the kernel writes.
        """
        return _Kept(run, f"{self.name} {[*wanted]}", self.wide)


@dataclass(frozen=True, eq=False)
class _Kept:
    """A function for XLA that is read from the disk where its program is there."""

    run: Run
    name: str
    wide: bool

    def __call__(self, *operands: Any) -> list[Any]:
        return self.run(*operands)

    def lowered(self, fun: Run, avals: Sequence[Any]) -> Run:
        """As `fun`, which is this one of a batch, by StableHLO: it is the same in any process."""
        from veenv.kernel.cpu import disk

        name = f"{self.name} {[(a.shape, str(a.dtype)) for a in avals]}"
        found = disk.find(name)
        text = found.parts[0] if found else self._exported(fun, avals)
        if text is None:
            return fun
        if found is None:
            disk.put(name, {}, [text])
        call = jax.export.deserialize(bytearray(text)).call

        def run(*operands: Any) -> list[Any]:
            with jax.enable_x64(self.wide):
                return list(call(*operands))

        return run

    def _exported(self, fun: Run, avals: Sequence[Any]) -> bytes | None:
        """The program; None where JAX does not promise that it is the same later."""
        made = jax.jit(fun)
        with jax.enable_x64(self.wide):
            shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
            every = walk.every(made.trace(*shapes).jaxpr)
            if any(e.primitive.name == _compat.KERNEL for e in every):
                return None  # machine code of this process
            try:
                return bytes(jax.export.export(made, platforms=["cpu"])(*shapes).serialize())
            except _NOT_EXPORTED:
                return None


def memory_of(program: Program, wanted: str, leaves: Sequence[Any]) -> Memory | None:
    """Where it is remembered what is taken for a Jacobian, if it is anywhere.

    Args:
      program: the traced function.
      wanted: of it all that is asked for, as a text.
      leaves: those of its arguments.
    """
    if _forgotten.get() or not _compat.compilation_cache()[1] or jax.default_backend() != "cpu":
        return None
    if not all(map(is_differentiable, program.avals[: program.num_inputs])):
        return None
    text = text_of(program, leaves)
    if text is None:
        return None
    settings = jnp.result_type(float), getattr(jax.config, "values", {})
    places = [_compat.is_traced(x) for x in leaves]
    name = f"{wanted} {settings} {places} {text}"
    from veenv.kernel.cpu import finished

    digest, wide = hashlib.sha256(name.encode()).hexdigest(), jnp.result_type(float) == jnp.float64
    found = finished.find(digest), finished.find_modes(digest)
    return Memory(digest, program.again, *found, wide)
