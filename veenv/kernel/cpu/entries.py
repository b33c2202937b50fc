"""The kernels of this process: compiled once for each program, freed when nothing can call them.

XLA calls a kernel by a key, a hash of its program, so that JAX's compilation cache on disk holds no
addresses. An entry is free for another kernel when no executable has its call (XLA says when an
executable is deleted; see `veenv.kernel.cpu.driver`) and no `Kernel` object for it is left; the
objects are kept by traced programs and by the programs that JAX has lowered.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from veenv.kernel.cpu import driver, records, tiles
from veenv.kernel.cpu.compile import MachineCode, host
from veenv.kernel.cpu.memory import keep_memory
from veenv.kernel.cpu.sections import compiled
from veenv.kernel.program import ScalarProgram

TARGET = "veenv_fused_kernel"


@dataclass
class _Entry:
    """A record that the driver reads, and what keeps its contents alive.

    Attributes:
      words: the record; it never moves and is never freed.
      arrays: what the record refers to.
      code: the machine code.
      handles: how many `Kernel` objects refer to it.
    """

    words: np.ndarray
    arrays: Sequence[np.ndarray] = ()
    code: MachineCode | None = None
    handles: int = 0

    @property
    def address(self) -> int:
        return self.words.ctypes.data


class Kernel:
    """A reference to compiled code; while there is one, the code stays.

    Attributes:
      key: what XLA's call names it by, 63 bits of a hash of the program.
    """

    def __init__(self, key: int):
        self.key = key


class _Registry:
    """All entries of the process, by key."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.entries: dict[int, _Entry] = {}
        self.free: list[_Entry] = []
        self.kernels: weakref.WeakValueDictionary[int, Kernel] = weakref.WeakValueDictionary()
        self.driver = MachineCode(str(driver.Driver().module))
        retire = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
        self.retire = retire(self.driver.address("veenv_retire"))
        self.head = ctypes.c_uint64.from_address(self.driver.variable("veenv_entries"))
        self._type_info = np.array([24, 0, self.driver.address("veenv_delete_state")], np.uint64)
        self._register()
        keep_memory()

    def _register(self) -> None:
        """Makes the handlers known to XLA."""
        type_id = self.driver.variable("veenv_type_id")
        jax.ffi.register_ffi_type(
            f"{TARGET}_state",
            {"type_id": _capsule(type_id), "type_info": _capsule(self._type_info.ctypes.data)},
            platform="cpu",
        )
        handlers = {
            "instantiate": _capsule(self.driver.address("veenv_instantiate")),
            "execute": _capsule(self.driver.address("veenv_execute")),
        }
        jax.ffi.register_ffi_target(TARGET, handlers, platform="cpu")

    def kernel(self, program: ScalarProgram, quick: bool) -> Kernel:
        digest = program.digest()
        key = int(digest[15:30] if quick else digest[:15], 16)
        with self.lock:
            known = self.kernels.get(key)
            if known is not None:
                return known
            if key not in self.entries:
                self._collect()
                self._add(key, program, quick)
            kernel = Kernel(key)
            self.entries[key].handles += 1
            self.kernels[key] = kernel
            weakref.finalize(kernel, self._drop, key).atexit = False
            return kernel

    def _drop(self, key: int) -> None:
        # May run in the middle of anything on this thread, hence the lock that can be taken again.
        with self.lock:
            entry = self.entries.get(key)
            if entry is not None:
                entry.handles -= 1

    def _collect(self) -> None:
        """Frees the code that nothing can call any more."""
        for key, entry in list(self.entries.items()):
            if entry.handles == 0 and self.retire(entry.address):
                del self.entries[key]
                entry.code, entry.arrays = None, ()
                self.free.append(entry)

    def _add(self, key: int, program: ScalarProgram, quick: bool) -> None:
        lanes = host().lanes(program)
        code = compiled(program, lanes, quick)
        entry = self.free.pop() if self.free else _Entry(np.zeros(tiles.ENTRY_WORDS, np.int64))
        fresh = entry.words[tiles.BODY] == 0
        entry.code = code
        entry.arrays = records.fill(entry.words, program, lanes, code)
        entry.words[tiles.KEY] = key
        entry.words[tiles.USERS] = 0  # from here on it can be found, if it is in the list
        if fresh:
            entry.words[tiles.NEXT] = np.uint64(self.head.value).astype(np.int64)
            self.head.value = entry.address
        self.entries[key] = entry


_registry: _Registry | None = None
_making = threading.Lock()


def registry() -> _Registry:
    """The registry of this process, made at the first use."""
    global _registry
    with _making:
        if _registry is None:
            _registry = _Registry()
        return _registry


def kernel(program: ScalarProgram, quick: bool = False) -> Kernel:
    """The compiled code of a program: compiled now, or earlier for an equal program.

    Args:
      program: what to compute; it writes at least one output leaf.
      quick: compile it quickly, to slower code.

    Returns:
      A handle; keep it as long as the code may be called.
    """
    return registry().kernel(program, quick)


def alive() -> int:
    """How many kernels hold machine code, after freeing those that nothing can call."""
    found = registry()
    with found.lock:
        found._collect()
        return len(found.entries)


def _after_fork() -> None:
    """A fork may have caught a lock taken by a thread that is not in the child."""
    global _making
    _making = threading.Lock()
    if _registry is not None:
        _registry.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _capsule(address: int) -> Any:
    return jax.ffi.pycapsule(ctypes.c_void_p(address))
