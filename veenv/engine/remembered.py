"""Kernels of Jacobians that another process has made, known by what the function computes."""

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
from veenv.graph.identity import UndescribedError, text_of
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
    """The place of a Jacobian's kernel on disk."""

    name: str
    again: Callable[..., Any]  # the function as it was traced
    found: Finished | None  # what is there

    def keep(self, base: Traced, program: ScalarProgram, batch: int) -> None:
        """Remembers that at so many points nothing is faster than a kernel."""
        plain = not base.lifted and not base.static and len(program.outputs) == len(base.avals)
        if plain and not any(map(is_key, base.avals)):
            self._keep(program, [batch])

    def add(self, batch: int) -> None:
        """Remembers this of what was found."""
        if self.found is not None:
            self._keep(self.found, [*self.found.batches, batch])

    def _keep(self, program: ScalarProgram | Finished, batches: Sequence[int]) -> None:
        from veenv.kernel.cpu import finished  # it loads llvmlite

        finished.keep(self.name, program, batches)


def memory_of(program: Program, wanted: str, leaves: Sequence[Any]) -> Memory | None:
    """Where the kernel of a Jacobian is remembered, if it is anywhere.

    Args:
      program: the traced function.
      wanted: of it all that is asked for, as a text.
      leaves: those of its arguments.
    """
    if _forgotten.get() or not _compat.compilation_cache()[1] or jax.default_backend() != "cpu":
        return None
    if not all(map(is_differentiable, program.avals[: program.num_inputs])):
        return None
    try:
        text = text_of(program, leaves)
    except UndescribedError:
        return None
    settings = jnp.result_type(float), getattr(jax.config, "values", {})
    places = [_compat.is_traced(x) for x in leaves]
    name = f"{wanted} {settings} {places} {text}"
    from veenv.kernel.cpu import finished

    digest = hashlib.sha256(name.encode()).hexdigest()
    return Memory(digest, program.again, finished.find(digest))
