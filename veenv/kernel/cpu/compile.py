"""Compiles LLVM IR to machine code in this process, for the processor it runs on."""

from __future__ import annotations

import ctypes
import functools
import importlib
import re
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from traceback import clear_frames
from typing import Any, NamedTuple, TypeVar

from llvmlite import binding as llvm
from llvmlite.binding import ffi

from veenv.kernel.scalar_program import ScalarProgram

T = TypeVar("T")


@dataclass(frozen=True)
class Host:
    """The properties of the processor."""

    cpu: str  # LLVM's name for it
    features: str  # its instruction sets, as LLVM writes them
    vector_bytes: int  # width of its registers
    registers: int = 16  # how many of them there are
    avx512: bool = False  # whether it has AVX-512 for registers of any width
    fma: bool = False  # whether it multiplies and adds in one instruction, rounded once
    # the processor whose timing code is written for, where LLVM takes far longer for its own
    tuned: str = ""

    def lanes(self, program: ScalarProgram) -> int:
        """Computes how many points a vector holds: a register's worth of the widest float."""
        return self.vector_bytes // (8 if "float64" in program.dtypes else 4)


@functools.cache
def host() -> Host:
    """The processor of this process."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    wide = all(features.get(name) for name in ("avx512f", "avx512vl", "avx512dq"))
    width = 64 if wide else 32 if features.get("avx2") else 16
    arm = llvm.get_process_triple().startswith(("aarch64", "arm64"))
    name, flags = llvm.get_host_cpu_name(), features.flatten()
    registers, fma = 32 if wide or arm else 16, arm or bool(features.get("fma"))
    # for AMD's, LLVM orders instructions twice, and writes gathers as loads of each lane
    tuned = ("skylake-avx512" if wide else "skylake") if name.startswith("znver") else ""
    return Host(name, flags, width, registers, wide, fma, tuned)


def _machine() -> Any:
    known = host()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(cpu=known.cpu, features=known.features, opt=2, jit=True)


def in_thread(function: Callable[[], T]) -> T:
    """The result of a function, in a thread of its own.

    No KeyboardInterrupt comes in there, which could leave llvmlite's lock taken. What is raised
    refers to nothing of LLVM: collected as garbage, a context could go before its modules.
    """

    def alone() -> T:
        try:
            return function()
        except BaseException as error:
            clear_frames(error.__traceback__)
            raise

    pool = ThreadPoolExecutor(1)
    try:
        future = pool.submit(alone)
    except RuntimeError:  # the interpreter is about to end
        return alone()
    finally:
        pool.shutdown(wait=False)
    return future.result()


class Objects(NamedTuple):
    """Machine code as LLVM writes it, which is not in memory yet: plain data."""

    code: tuple[bytes, ...]  # object files, which may call one another
    symbols: tuple[str, ...]  # the functions of this process that they call
    stack: int = 0  # the most bytes that a call takes of the stack

    def are_callable(self) -> bool:
        """Tests whether the functions that they call are here; LLVM ends a process without one."""
        return all(map(is_known, self.symbols))


def objects_of(text: str, stack: int = 0) -> Objects:
    """The machine code of a module of LLVM IR."""
    symbols = {*_DECLARED.findall(text)} - {*_DEFINED.findall(text)}
    return Objects((in_thread(lambda: _object(text)),), tuple(sorted(symbols)), stack)


_DECLARED = re.compile(r'^declare [^@]*@"?(?!llvm\.)([\w.]+)', re.MULTILINE)
_DEFINED = re.compile(r'^define [^@]*@"?([\w.]+)', re.MULTILINE)


def _object(text: str) -> bytes:
    """The object file of a module of LLVM IR.

    llvmlite holds a lock while it calls LLVM, so that one thread at a time would do so. What is
    made here is in a context of its own, for which LLVM needs none.
    """
    module = llvm.parse_assembly(text, llvm.create_context())
    module.triple = llvm.get_process_triple()
    module.verify()
    with ffi.OutputString() as error:
        buffer = _emit()(_machine(), module, 1, error)
        if not buffer:
            raise RuntimeError(str(error))
    try:
        start, size = ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer)
        return ctypes.string_at(start, size)
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


@functools.cache
def _emit() -> Callable[..., Any]:
    """Writes the object file of a module, without llvmlite's lock."""
    locked = ffi.lib.LLVMPY_TargetMachineEmitToMemory
    emit = ctypes.CDLL(ffi.lib._name).LLVMPY_TargetMachineEmitToMemory
    emit.argtypes, emit.restype = locked.argtypes, locked.restype
    return emit


@functools.cache
def _libraries() -> tuple[ctypes.CDLL, ...]:
    """Returns the libraries that LLVM does not search by itself: this process, libm, libmvec."""
    libraries = [ctypes.CDLL(None)]
    for name in ("libm.so.6", "libmvec.so.1"):
        with suppress(OSError):
            libraries.append(ctypes.CDLL(name))
    return tuple(libraries)


LIBRARY = "scipy_"
"""Beginning of the symbols of routines of LAPACK and BLAS, which SciPy exports, as JAX has them."""


def is_known(symbol: str) -> bool:
    """Whether there is a function of this name; if so, LLVM knows it from now on."""
    if llvm.address_of_symbol(symbol) is None:
        if symbol.startswith(LIBRARY):
            address = _routine(symbol.removeprefix(LIBRARY))
        else:
            function = next(filter(None, (getattr(x, symbol, None) for x in _libraries())), None)
            address = function and ctypes.cast(function, ctypes.c_void_p).value
        if address is None:
            return False
        llvm.add_symbol(symbol, address)
    return True


def _routine(name: str) -> int | None:
    """The address of a routine of LAPACK or BLAS whose integers have 32 bits, if SciPy has it."""
    modules = map(
        importlib.import_module, ("scipy.linalg.cython_lapack", "scipy.linalg.cython_blas")
    )
    known = {key: routine for one in modules for key, routine in one.__pyx_capi__.items()}  # 0.1 s
    if name not in known:
        return None
    signature, address = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    signature.argtypes, signature.restype = [ctypes.py_object], ctypes.c_char_p
    address.argtypes, address.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    types = signature(known[name])
    return address(known[name], types) if re.search(rb"[(, ]int \*", types) else None


class MachineCode:
    """Code in memory; it is freed with this object. `stack` is that of the objects."""

    def __init__(self, objects: Objects):
        machine, module = _machine(), llvm.parse_assembly("", llvm.create_context())
        module.triple = llvm.get_process_triple()
        if not objects.are_callable():
            raise RuntimeError(f"not all of {objects.symbols} are functions of this process")
        self._engine = llvm.create_mcjit_compiler(module, machine)
        # held from outside it is no garbage itself, whose parts go in any order: a context too soon
        weakref.finalize(self, self._engine.close).atexit = False
        self.stack = objects.stack
        for one in objects.code:
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(one))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        """The address of a function or variable."""
        return self._engine.get_function_address(name)

    def variable(self, name: str) -> int:
        """The address of a variable."""
        return self._engine.get_global_value_address(name)
