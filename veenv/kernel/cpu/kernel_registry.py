"""The kernels of this process: compiled once for each program, freed when nothing can call them.

XLA calls a kernel by a key, a hash of its program, so that JAX's compilation cache on disk holds no
addresses. A kernel is freed when no executable has its call (XLA says when an executable is
deleted; see ``driver.c``) and no `Kernel` object for it is left; the objects are kept
by traced programs and by the programs that JAX has lowered.

Garbage may be collected, and an interrupt come, between any two statements. No finaliser does
anything here; and what is in the driver's list is first in a dictionary, out of which comes only
what is out of the list. Both steps can be repeated, and are, where an interrupt came between.

Memory that is given back to the system for every call is cleared again for the next one. glibc
takes arrays of 128 KB and more from the system one by one, and gives back what is free at the end
of its heap, until a program frees a larger array: then both limits grow, up to 32 and 64 MB. A
program that calls nothing but a kernel never does so, and would take and return the pages of all
outputs with every call, which can take longer than to compute them. Larger arrays are always taken
from the system and given back. They can at least have large pages, of which the system has to clear
and count a few hundred times fewer.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import jax

from veenv.kernel.cpu import codegen, disk, records
from veenv.kernel.cpu.compile import MachineCode, in_thread, objects_of
from veenv.kernel.cpu.records import Finished, code_name
from veenv.kernel.scalar_program import ScalarProgram

TARGET = "veenv_fused_kernel"
TESTED = ((0, 3), (0, 4), (0, 5))
"""Versions of XLA's FFI, of jaxlib 0.10, 0.11.2 and 0.12; what ``driver.c`` uses is the same."""


class UntestedVersionError(RuntimeError):
    """This jaxlib calls kernels in a way in which they were never tested."""


class Kernel:
    """A reference to compiled code; while there is one, the code stays.

    Attributes:
      key: what XLA's call names it by, 60 bits of a hash of the program.
    """

    def __init__(self, key: int):
        self.key = key

    def __reduce__(self) -> NoReturn:
        raise ValueError(
            "a fused kernel is machine code of this process and an executable that calls it cannot "
            "be serialized; leave veenv.fuse away, and build the Jacobians of veenv.jacve with "
            'kernel="xla"'
        )


@dataclass(eq=False)
class _Entry:
    """A record that the driver reads, and what keeps its contents alive."""

    record: records.EntryRecord
    refers: Any  # what the record refers to
    # gives the `Kernel` object for it, None where there is none any more
    handle: Callable[[], Kernel | None] = lambda: None

    @property
    def address(self) -> int:
        return ctypes.addressof(self.record)


class _Registry:
    """The entries of the process, by key."""

    def __init__(self) -> None:
        self.entries: dict[int, _Entry] = {}
        text = Path(__file__).with_name("driver.ll").read_text()
        self.driver = MachineCode(disk.objects(text, lambda: objects_of(text)))
        insert = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        remove = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
        self.insert = insert(self.driver.address("veenv_insert"))
        self.remove = remove(self.driver.address("veenv_remove"))
        self._list_lock = self._word("lock")
        self.unlock()
        for name, (major, minor) in {"oldest": min(TESTED), "newest": max(TESTED)}.items():
            self._word(name).value = major << 32 | minor
        self._word("advise").value = may_advise()
        self.refused = self._register()
        keep_memory()

    def _word(self, name: str) -> ctypes.c_int64:
        """A variable of the driver."""
        return ctypes.c_int64.from_address(self.driver.variable(f"veenv_{name}"))

    def unlock(self) -> None:
        """Makes locks: the dictionary's, one for each kernel that is being compiled, the list's."""
        self.lock = threading.RLock()
        self.making: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._list_lock.value = 0

    def _register(self) -> str:
        """Makes the handlers known to XLA; says why not where they cannot be."""
        types = {name: self.driver.variable(f"veenv_{name}") for name in ("type_id", "type_info")}
        stages = {name: self.driver.address(f"veenv_{name}") for name in ("instantiate", "execute")}
        jax.ffi.register_ffi_type(f"{TARGET}_state", _capsules(types), platform="cpu")
        try:
            jax.ffi.register_ffi_target(TARGET, _capsules(stages), platform="cpu")
        except Exception:
            seen = self._word("version").value
            version = seen >> 32, seen & 0xFFFFFFFF
            if version in TESTED:
                raise
            tested = ", ".join(f"{major}.{minor}" for major, minor in TESTED)
            return (
                f"this jaxlib has version {version[0]}.{version[1]} of XLA's foreign function "
                f"interface, in which fused kernels were not tested (but in {tested})"
            )
        return ""

    def kernel(self, program: ScalarProgram | Finished, points: int) -> Kernel:
        if self.refused:
            raise UntestedVersionError(self.refused)
        is_finished = isinstance(program, Finished)
        layout = program.layout if is_finished else records.layout_of(program)
        name = code_name(program.digest(), 1)
        if points == 1 and layout.single and not (is_finished and disk.known_objects(name) is None):
            layout = layout._replace(lanes=1)
        key = int(program.digest()[:14] + f"{layout.lanes % 16:x}", 16)

        def make() -> Kernel:
            with self.lock:
                making = self.making.setdefault(key, threading.RLock())
            with making:
                return self._known(key) or self._add(key, program, layout)

        return self._known(key) or in_thread(make)

    def _known(self, key: int) -> Kernel | None:
        """The kernel with a key, if it is compiled."""
        with self.lock:
            entry = self.entries.get(key)
            if entry is None:
                return None
            self.insert(entry.address)
            kernel = entry.handle()
            if kernel is None:
                kernel = Kernel(key)
                entry.handle = weakref.ref(kernel)
            return kernel

    def _add(self, key: int, program: ScalarProgram | Finished, layout: records.Layout) -> Kernel:
        name = code_name(program.digest(), layout.lanes)
        if isinstance(program, ScalarProgram):
            machine_code = disk.objects(
                name, functools.partial(codegen.objects, program, layout.lanes)
            )
        else:
            machine_code = program.objects if layout == program.layout else disk.known_objects(name)
            assert machine_code is not None
        code = MachineCode(machine_code)
        record, arrays = records.entry_of(key, layout, code)
        entry = _Entry(record, (code, arrays))
        self.collect()
        with self.lock:
            self.entries[key] = entry
            kernel = self._known(key)
            assert kernel is not None
            return kernel

    def collect(self) -> None:
        """Frees the code that nothing can call any more."""
        for key in list(self.entries):
            entry = self.entries.get(key)
            if entry is not None and entry.handle() is None:
                self._free(key, entry)

    def _free(self, key: int, entry: _Entry) -> None:
        with self.lock:
            if entry.handle() is None and self.remove(entry.address):
                self.entries.pop(key, None)


_registry: _Registry | None = None
_making = threading.Lock()


def registry() -> _Registry:
    """The registry of this process, made at the first use."""

    def fresh() -> _Registry:
        global _registry
        with _making:
            if _registry is None:
                _registry = _Registry()
                # executables count themselves off when Python has cleared its modules
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(_registry))
            return _registry

    return _registry or in_thread(fresh)


def kernel(program: ScalarProgram | Finished, points: int) -> Kernel:
    """The compiled code of a program for so many points, compiled now or for an equal program."""
    return registry().kernel(program, points)


def alive() -> int:
    """Counts the kernels that hold machine code, after freeing those that nothing can call."""
    entries = registry()
    in_thread(entries.collect)
    return len(entries.entries)


def _after_fork() -> None:
    """A fork may have caught a lock taken by a thread that is not in the child."""
    global _making
    _making = threading.Lock()
    if _registry is not None:
        _registry.unlock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _capsules(addresses: dict[str, int]) -> Any:
    return {name: jax.ffi.pycapsule(ctypes.c_void_p(a)) for name, a in addresses.items()}


SWITCH = "VEENV_KEEP_MEMORY"
"""The environment variable that leaves the limits as they are, where it is 0."""
_LARGEST = (32 << 20) - (64 << 10)
"""Bytes of an array that raises the limits as far as glibc lets them grow by themselves."""


def keep_memory() -> bool:
    """Lets the process keep free memory of up to 64 MB for its next arrays; says whether it did.

    It takes a large array and frees it, unused, as any other program might. Limits that the user
    has set (``MALLOC_TRIM_THRESHOLD_`` and the like) stay what they are.
    """
    if not may_advise():
        return False
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    library.malloc.argtypes = [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    library.free(library.malloc(_LARGEST))
    return True


def may_advise() -> bool:
    """Tells whether to advise the system on memory: on Linux, unless the variable is 0."""
    return sys.platform.startswith("linux") and os.environ.get(SWITCH) != "0"
