"""The scalar operations of kernels: a NumPy function, and text for LLVM and C, for each.

A function of libm needs its name and NumPy's function: `_function` adds it.  An elementwise
primitive of JAX whose name is an operation's is that operation (see
`veenv.kernel.building.elementwise`).

Text is a template.  ``{0}``, ``{1}`` and ``{2}`` are the arguments.  In LLVM ``{t}`` is the type
of the vectors, ``{e}`` of a lane; ``{s}`` is ``s`` for signed integers and ``u`` for others;
``{j}`` lets a product and a sum be joined.  Text that begins with ``@`` is an intrinsic, with its
flag.  In C ``{f}`` is the suffix of functions of floats, ``{T}`` the type, ``{U}`` the unsigned one
of its width, ``{W}`` one that wraps.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

FILE = Path(__file__).with_name("weights.json")
"""What operations take, measured on a processor by ``benchmark.py fit --parts weights``."""
WEIGHTS: Mapping[str, int] = MappingProxyType(
    json.loads(FILE.read_text(encoding="utf-8"))["weights"]
)
_OTHER_FUNCTION = 25
SHARED = max(0, WEIGHTS["sin"] + WEIGHTS["cos"] - WEIGHTS["sincos"])
"""What a sine and a cosine of one number take less than both alone."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A scalar operation: its NumPy function, its text in LLVM and C, its weight."""

    name: str  # as in `veenv.kernel.scalar_program`; of a function its name in libm
    numpy: Callable[..., Any]  # it on NumPy scalars or arrays of its arguments' dtype
    llvm: str  # it of floats; empty for what takes several instructions
    llvm_int: str  # it of integers and bools
    c: str  # it of floats
    c_int: str  # it of integers and bools
    weight: int = 1  # what it takes, in multiplications
    commutative: bool = False  # its arguments can change places
    function: bool = False  # it is a function of libm, of floats


OPERATIONS: dict[str, Operation] = {}


def weight(name: str, function: str | None = None) -> int:
    """Returns the cost of an operation of a scalar program, in multiplications.

    Examples:
      >>> weight("mul"), weight("call", "sin") == WEIGHTS["sin"]
      (1, True)
    """
    return OPERATIONS[function or name].weight if (function or name) in OPERATIONS else 1


def _add(
    name: str,
    numpy: Callable[..., Any],
    llvm: str,
    c: str,
    llvm_int: str = "",
    c_int: str = "",
    commutative: bool = False,
) -> None:
    weight = WEIGHTS.get(name, 1)
    fields = name, numpy, llvm, llvm_int or llvm, c, c_int or c, weight
    OPERATIONS[name] = Operation(*fields, commutative=commutative)


def _function(name: str, numpy: Callable[..., Any] | None = None) -> None:
    of = numpy or getattr(np, name)
    weight = WEIGHTS.get(name, _OTHER_FUNCTION)
    arguments = ", ".join(f"{{{k}}}" for k in range(getattr(of, "nin", 1)))
    c = f"{name}{{f}}({arguments})"
    OPERATIONS[name] = Operation(name, of, "", "", c, c, weight, function=True)


def _divide(x: Any, y: Any) -> Any:
    """Divides floats, or integers towards zero."""
    if np.issubdtype(np.asarray(x).dtype, np.floating):
        return x / y
    return (x - np.fmod(x, y)) // y


def _of_libm(fun: Callable[[float], float]) -> Callable[[float], float]:
    """A function of `math` that is infinite where that raises: at poles, and where it overflows."""

    def of(x: float) -> float:
        try:
            return fun(x)
        except (ValueError, OverflowError):
            return math.inf

    return of


def _shift_logical(x: Any, y: Any) -> Any:
    x = np.asarray(x)
    unsigned = np.dtype(f"u{x.dtype.name.removeprefix('u')}")
    return np.right_shift(x.view(unsigned), np.asarray(y).astype(unsigned)).astype(x.dtype)


for _name, _ufunc, _sign in (
    ("add", np.add, "+"),
    ("sub", np.subtract, "-"),
    ("mul", np.multiply, "*"),
):
    _add(_name, _ufunc, f"f{_name}{{j}} {{t}} {{0}}, {{1}}", f"{{0}} {_sign} {{1}}",
         f"{_name} {{t}} {{0}}, {{1}}", f"({{T}})(({{W}}){{0}} {_sign} ({{W}}){{1}})",
         commutative=_name != "sub")  # fmt: skip
_add("div", _divide, "fdiv {t} {0}, {1}", "{0} / {1}", "{s}div {t} {0}, {1}")
_add("rem", np.fmod, "", "fmod{f}({0}, {1})", "{s}rem {t} {0}, {1}", "{0} % {1}")
_add("neg", np.negative, "fneg {t} {0}", "-{0}", "sub {t} zeroinitializer, {0}",
     "({T})(0 - ({W}){0})")  # fmt: skip
_add("abs", np.abs, "@fabs", "fabs{f}({0})", "@abs false",
     "{0} < 0 ? ({T})(0 - ({W}){0}) : {0}")  # fmt: skip
for _name, _ufunc, _sign in (
    ("max", np.maximum, ">="),
    ("min", np.minimum, "<="),
):
    _add(_name, _ufunc, "", f"({{0}} {_sign} {{1}} || {{0}} != {{0}}) ? {{0}} : {{1}}",
         c_int=f"({{0}} {_sign} {{1}}) ? {{0}} : {{1}}", commutative=True)  # fmt: skip
_add("sqrt", np.sqrt, "@sqrt", "sqrt{f}({0})")
_add("floor", np.floor, "@floor", "floor{f}({0})")
_add("ceil", np.ceil, "@ceil", "ceil{f}({0})")
_add("round", np.round, "@roundeven", "rint{f}({0})")
_add("trunc", np.trunc, "@trunc", "trunc{f}({0})")
for _name, _ufunc, _float, _int, _sign in (
    ("eq", np.equal, "oeq", "eq", "=="),
    ("ne", np.not_equal, "une", "ne", "!="),
    ("lt", np.less, "olt", "{s}lt", "<"),
    ("le", np.less_equal, "ole", "{s}le", "<="),
    ("gt", np.greater, "ogt", "{s}gt", ">"),
    ("ge", np.greater_equal, "oge", "{s}ge", ">="),
):
    _add(_name, _ufunc, f"fcmp {_float} {{t}} {{0}}, {{1}}", f"{{0}} {_sign} {{1}}",
         f"icmp {_int} {{t}} {{0}}, {{1}}", commutative=_name in ("eq", "ne"))  # fmt: skip
for _name, _ufunc, _sign in (
    ("and", np.bitwise_and, "&"),
    ("or", np.bitwise_or, "|"),
    ("xor", np.bitwise_xor, "^"),
):
    _add(_name, _ufunc, f"{_name} {{t}} {{0}}, {{1}}", f"{{0}} {_sign} {{1}}",
         commutative=True)  # fmt: skip
_add("not", np.invert, "xor {t} {0}, splat ({e} -1)", "({T})({0} ^ ({T})-1)")
_add("shl", np.left_shift, "shl {t} {0}, {1}", "({T})(({U}){0} << {1})")
_add("shr_a", np.right_shift, "ashr {t} {0}, {1}", "{0} >> {1}")
_add("shr_l", _shift_logical, "lshr {t} {0}, {1}",
     "({T})(({U}){0} >> {1})")  # fmt: skip
_add("select", np.where, "", "{0} ? {1} : {2}")
for _name in "exp exp2 expm1 log log2 log1p sin cos tan sinh cosh tanh cbrt nextafter".split():
    _function(_name)
for _name in "asin acos atan asinh acosh atanh atan2 pow".split():
    _function(_name, getattr(np, "power" if _name == "pow" else _name.replace("a", "arc", 1)))
for _name in "erf erfc lgamma".split():
    _function(_name, np.vectorize(_of_libm(getattr(math, _name)), otypes=[float]))
