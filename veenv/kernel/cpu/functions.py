"""Which functions of libm there are for whole vectors, and where.

glibc's libmvec (2.22 and later; 2.35 has them all) takes SSE, AVX2 and AVX-512 vectors, with errors
of at most 4 units in the last place. Where it is not, each lane calls libm.
"""

from __future__ import annotations

import ctypes
import functools

from llvmlite import binding as llvm

from veenv.kernel.cpu.types import element

PURE = "nounwind willreturn memory(none)"
"""LLVM's attributes of a function of mathematics."""
_LANES = {("float32", 16): "e", ("float32", 8): "d", ("float32", 4): "b"} | {
    ("float64", 8): "e",
    ("float64", 4): "d",
    ("float64", 2): "b",
}
_BINARY = frozenset({"atan2", "pow", "nextafter", "fmod"})


@functools.cache
def _libmvec() -> ctypes.CDLL | None:
    if not llvm.get_process_triple().startswith("x86_64") or "linux" not in (
        llvm.get_process_triple()
    ):
        return None
    try:
        return ctypes.CDLL("libmvec.so.1")
    except OSError:
        return None


def arity(function: str) -> int:
    """How many arguments a function of libm takes."""
    return 2 if function in _BINARY else 1


def scalar_symbol(function: str, dtype: str) -> str:
    """The name of a function of libm for one number; made known to LLVM."""
    symbol = function + ("f" if dtype == "float32" else "")
    _make_known(symbol)
    return symbol


@functools.cache
def _make_known(symbol: str) -> None:
    """Tells LLVM the address of a symbol of this process or of libm."""
    if llvm.address_of_symbol(symbol) is None:
        library = ctypes.CDLL(None)
        if not hasattr(library, symbol):
            library = ctypes.CDLL("libm.so.6")
        address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
        assert address is not None
        llvm.add_symbol(symbol, address)


@functools.cache
def vector_symbol(function: str, dtype: str, lanes: int) -> str | None:
    """The name of a function for vectors, made known to LLVM; None where there is none.

    Args:
      function: its name in libm, for float64.
      dtype: "float32" or "float64".
      lanes: width of the vectors.
    """
    library, level = _libmvec(), _LANES.get((dtype, lanes))
    if library is None or level is None:
        return None
    suffix = "f" if dtype == "float32" else ""
    symbol = f"_ZGV{level}N{lanes}{'v' * arity(function)}_{function}{suffix}"
    if not hasattr(library, symbol):
        return None
    address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
    assert address is not None
    llvm.add_symbol(symbol, address)
    return symbol


def lanewise_name(function: str, dtype: str) -> str:
    """The name of the function that `lanewise` writes."""
    return f"lanes_{function}_{dtype}"


def lanewise(function: str, dtype: str, lanes: int) -> str:
    """LLVM IR of a function of vectors that calls a scalar function for each lane.

    Args:
      function: name of the function, as in `veenv.kernel.program`.
      dtype: of its arguments and its result.
      lanes: width of the vectors.
    """
    symbol, of = lanewise_name(function, dtype), element(dtype)
    kind, scalar, count = f"<{lanes} x {of}>", scalar_symbol(function, dtype), arity(function)
    types = ", ".join([of] * count)
    arguments = ", ".join(f"{kind} %x{k}" for k in range(count))
    parts = "\n".join(f"  %e{k} = extractelement {kind} %x{k}, i64 %i" for k in range(count))
    values = ", ".join(f"{of} %e{k}" for k in range(count))
    return f"""\
declare {of} @{scalar}({types}) {PURE}
define internal {kind} @{symbol}({arguments}) noinline {PURE} {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %n, %loop ]
  %r = phi {kind} [ zeroinitializer, %entry ], [ %s, %loop ]
{parts}
  %y = call {of} @{scalar}({values})
  %s = insertelement {kind} %r, {of} %y, i64 %i
  %n = add i64 %i, 1
  %done = icmp eq i64 %n, {lanes}
  br i1 %done, label %exit, label %loop
exit:
  ret {kind} %s
}}"""
