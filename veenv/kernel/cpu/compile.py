"""From LLVM IR to machine code in this process, for the processor it runs on."""

from __future__ import annotations

import ctypes
import functools
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from traceback import clear_frames
from typing import Any

from llvmlite import binding as llvm
from llvmlite.binding import ffi

from veenv.kernel.program import ScalarProgram


@dataclass(frozen=True)
class Host:
    """What is known of the processor."""

    cpu: str  # LLVM's name for it
    features: str  # its instruction sets, as LLVM writes them
    vector_bytes: int  # width of its registers
    avx512: bool = False  # whether it has AVX-512 for registers of any width
    fma: bool = False  # whether it multiplies and adds in one instruction, rounded once

    def lanes(self, program: ScalarProgram) -> int:
        """How many points a vector holds: a register's worth of the widest float."""
        return self.vector_bytes // (8 if "float64" in program.dtypes else 4)


@functools.cache
def host() -> Host:
    """The processor of this process."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    wide = all(features.get(name) for name in ("avx512f", "avx512vl", "avx512dq"))
    width = 64 if wide else 32 if features.get("avx2") else 16
    fma = bool(features.get("fma")) or llvm.get_process_triple().startswith(("aarch64", "arm64"))
    name, flags = llvm.get_host_cpu_name(), features.flatten()
    return Host(name, flags, width, avx512=wide, fma=fma)


def _machine() -> Any:
    known = host()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(cpu=known.cpu, features=known.features, opt=2, jit=True)


@functools.cache
def _generate() -> Callable[[Any], None]:
    """Makes the machine code of an engine.

    llvmlite holds a lock while it calls LLVM, so that one thread at a time would do so. What is
    made here is in a context of its own, for which LLVM needs none.
    """
    return ctypes.CDLL(ffi.lib._name).LLVMPY_FinalizeObject


def in_threads(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """The results for some items, each in a thread of its own, as far as there are cores.

    No KeyboardInterrupt comes in there, which could leave llvmlite's lock taken. What is raised
    refers to nothing of LLVM: collected as garbage, a context could go before its modules.
    """

    def alone(item: Any) -> Any:
        try:
            return function(item)
        except BaseException as error:
            clear_frames(error.__traceback__)
            raise

    items = list(items)
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        futures = [pool.submit(alone, item) for item in items]
    except RuntimeError:  # the interpreter is about to end
        return list(map(alone, items))
    finally:
        pool.shutdown(wait=False)
    return [future.result() for future in futures]


class MachineCode:
    """Compiled code; it is freed with this object. Several threads can compile at once.

    `calls` is other code that it calls; `stack` the most bytes that it takes of the stack.
    """

    def __init__(self, text: str, calls: Sequence[MachineCode] = (), stack: int = 0):
        machine = _machine()
        module = llvm.parse_assembly(text, llvm.create_context())
        module.triple = llvm.get_process_triple()
        module.verify()
        self._engine = llvm.create_mcjit_compiler(module, machine)
        # held from outside it is no garbage itself, whose parts go in any order: a context too soon
        weakref.finalize(self, self._engine.close).atexit = False
        self._calls, self.stack = calls, stack
        _generate()(self._engine)

    def address(self, name: str) -> int:
        """The address of a function or variable."""
        return self._engine.get_function_address(name)

    def variable(self, name: str) -> int:
        """The address of a variable."""
        return self._engine.get_global_value_address(name)
