"""How dtypes, constants and modules are written in LLVM IR."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from veenv.kernel.cpu.compile import host
from veenv.kernel.program import FLOATS

_STACK = 16
"""Bytes to which every function's stack is aligned."""
_TYPES = {"float32": "float", "float64": "double", "bool": "i1"}


def element(dtype: str) -> str:
    """The LLVM type of one number in a register."""
    return _TYPES.get(dtype) or f"i{dtype.lstrip('uint')}"


def memory_element(dtype: str) -> str:
    """The LLVM type of one number in memory."""
    return "i8" if dtype == "bool" else element(dtype)


def suffix(kind: str) -> str:
    """An LLVM vector type as it stands in the name of an intrinsic."""
    count, _, of = kind.strip("<>").split()
    return f"v{count}{ {'float': 'f32', 'double': 'f64'}.get(of, of) }"


def intrinsic(
    emit: Callable[[str], str],
    declare: Callable[[str, str], None],
    name: str,
    kind: str,
    args: Sequence[str],
    flag: str = "",
) -> str:
    """Calls an intrinsic of LLVM whose arguments and result are of one type.

    Args:
      emit: takes an instruction and returns the name of its result.
      declare: takes a symbol and its declaration.
      name: such as "fma", without LLVM's prefix.
      kind: the type, a vector.
      args: names of the arguments.
      flag: one bit more that some take, "true" or "false".

    Returns:
      The name of the result.
    """
    symbol = f"llvm.{name}.{suffix(kind)}"
    types = [kind] * len(args) + ["i1"] * bool(flag)
    declare(symbol, f"declare {kind} @{symbol}({', '.join(types)})")
    values = [*args, flag] if flag else args
    pairs = ", ".join(f"{t} {v}" for t, v in zip(types, values, strict=True))
    return emit(f"call {kind} @{symbol}({pairs})")


def literal(value: Any) -> str:
    """A NumPy scalar as an LLVM constant; floats by their bits in double precision."""
    if value.dtype == np.bool_:
        return "true" if value else "false"
    if value.dtype.name in FLOATS:
        return f"0x{np.float64(value).view(np.uint64):016X}"
    return str(int(value))


def module(lanes: int, declarations: Iterable[str], function: str) -> str:
    """A module of one function.

    Its stack begins at a multiple of a vector: what does not fit the registers is kept there, and a
    vector in two lines of the cache takes two accesses.

    Args:
      lanes: width of the vectors.
      declarations: of what the function calls and reads.
      function: its definition, with the attributes `#0`.
    """
    width, aligned = lanes * 32, host().vector_bytes
    stack = f"alignstack={aligned} " if aligned > _STACK else ""
    return f"""\
{chr(10).join(declarations)}

{function}

!0 = !{{}}
!1 = !{{!"branch_weights", i32 1, i32 1000000}}
attributes #0 = {{ nounwind {stack}"prefer-vector-width"="512" "min-legal-vector-width"="{width}" }}
"""
