"""What another process has taken for a Jacobian, known by what the function computes."""

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
from veenv.kernel.program import ScalarProgram
from veenv.rules.base import is_differentiable, is_key

if TYPE_CHECKING:
    from veenv.kernel.cpu.finished import Finished

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
    modes: dict[int, Any]  # the modes of JAX that are taken at some batches

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return self.found is not None or bool(self.modes)

    def note(
        self, base: Traced, program: ScalarProgram | None, batch: int, mode: str | None
    ) -> None:
        """Remembers what is taken at a batch: a mode of JAX, or the kernel where that is None."""
        from veenv.kernel.cpu import finished  # it loads llvmlite

        if base.lifted or base.static or any(map(is_key, base.avals)):
            return
        if mode:
            finished.keep_modes(self.name, {**self.modes, batch: mode})
        elif mode is None and program is not None and len(program.outputs) == len(base.avals):
            same = self.found is not None and self.found.digest() == program.digest()
            known = self.found.batches if self.found is not None and same else ()
            finished.keep(self.name, program, [*known, batch])


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

    digest = hashlib.sha256(name.encode()).hexdigest()
    return Memory(digest, program.again, finished.find(digest), finished.find_modes(digest))
