"""The scalar operations of kernels: one record each, with its form in every backend.

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

import jax.numpy as jnp
import numpy as np
from jax import lax

FILE = Path(__file__).with_name("weights.json")
"""What operations take, measured on a processor by ``python scripts/benchmark.py weights``."""
WEIGHTS: Mapping[str, int] = MappingProxyType(
    json.loads(FILE.read_text(encoding="utf-8"))["weights"]
)
_OTHER_FUNCTION = 25
SHARED = max(0, WEIGHTS["sin"] + WEIGHTS["cos"] - WEIGHTS["sincos"])
"""What a sine and a cosine of one number take less than both alone."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A scalar operation."""

    name: str  # as in `veenv.kernel.scalar_program`; of a function its name in libm
    numpy: Callable[..., Any]  # it on NumPy scalars or arrays of its arguments' dtype
    # it on JAX arrays, in a Pallas kernel; None if JAX does not have it
    jax: Callable[..., Any] | None
    llvm: str  # it of floats; empty for what takes several instructions
    llvm_int: str  # it of integers and bools
    c: str  # it of floats
    c_int: str  # it of integers and bools
    weight: int = 1  # what it takes, in multiplications
    commutative: bool = False  # its arguments can change places
    function: bool = False  # it is a function of libm, of floats


OPERATIONS: dict[str, Operation] = {}


def weight(name: str, function: str | None = None) -> int:
    """What an operation of a scalar program takes, in multiplications.

    Examples:
      >>> weight("mul"), weight("call", "sin") == WEIGHTS["sin"]
      (1, True)
    """
    return OPERATIONS[function or name].weight if (function or name) in OPERATIONS else 1


def _add(
    name: str,
    numpy: Callable[..., Any],
    jax: Callable[..., Any] | None,
    llvm: str,
    c: str,
    llvm_int: str = "",
    c_int: str = "",
    commutative: bool = False,
) -> None:
    weight = WEIGHTS.get(name, 1)
    fields = name, numpy, jax, llvm, llvm_int or llvm, c, c_int or c, weight
    OPERATIONS[name] = Operation(*fields, commutative=commutative)


def _function(name: str, numpy: Callable[..., Any] | None = None) -> None:
    of = numpy or getattr(np, name)
    weight = WEIGHTS.get(name, _OTHER_FUNCTION)
    arguments = ", ".join(f"{{{k}}}" for k in range(getattr(of, "nin", 1)))
    c, jax = f"{name}{{f}}({arguments})", getattr(lax, name, None) or getattr(jnp, name, None)
    OPERATIONS[name] = Operation(name, of, jax, "", "", c, c, weight, function=True)


def _divide(x: Any, y: Any) -> Any:
    """Of integers towards zero."""
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


def _round(x: Any) -> Any:
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


def _trunc(x: Any) -> Any:
    return jnp.where(x < 0, lax.ceil(x), lax.floor(x))


for _name, _ufunc, _of, _sign in (
    ("add", np.add, lax.add, "+"),
    ("sub", np.subtract, lax.sub, "-"),
    ("mul", np.multiply, lax.mul, "*"),
):
    _add(_name, _ufunc, _of, f"f{_name}{{j}} {{t}} {{0}}, {{1}}", f"{{0}} {_sign} {{1}}",
         f"{_name} {{t}} {{0}}, {{1}}", f"({{T}})(({{W}}){{0}} {_sign} ({{W}}){{1}})",
         commutative=_name != "sub")  # fmt: skip
_add("div", _divide, lax.div, "fdiv {t} {0}, {1}", "{0} / {1}", "{s}div {t} {0}, {1}")
_add("rem", np.fmod, lax.rem, "", "fmod{f}({0}, {1})", "{s}rem {t} {0}, {1}", "{0} % {1}")
_add("neg", np.negative, lax.neg, "fneg {t} {0}", "-{0}", "sub {t} zeroinitializer, {0}",
     "({T})(0 - ({W}){0})")  # fmt: skip
_add("abs", np.abs, lax.abs, "@fabs", "fabs{f}({0})", "@abs false",
     "{0} < 0 ? ({T})(0 - ({W}){0}) : {0}")  # fmt: skip
for _name, _ufunc, _of, _sign in (
    ("max", np.maximum, lax.max, ">="),
    ("min", np.minimum, lax.min, "<="),
):
    _add(_name, _ufunc, _of, "", f"({{0}} {_sign} {{1}} || {{0}} != {{0}}) ? {{0}} : {{1}}",
         c_int=f"({{0}} {_sign} {{1}}) ? {{0}} : {{1}}", commutative=True)  # fmt: skip
_add("sqrt", np.sqrt, lax.sqrt, "@sqrt", "sqrt{f}({0})")
_add("floor", np.floor, lax.floor, "@floor", "floor{f}({0})")
_add("ceil", np.ceil, lax.ceil, "@ceil", "ceil{f}({0})")
_add("round", np.round, _round, "@roundeven", "rint{f}({0})")
_add("trunc", np.trunc, _trunc, "@trunc", "trunc{f}({0})")
for _name, _ufunc, _of, _float, _int, _sign in (
    ("eq", np.equal, lax.eq, "oeq", "eq", "=="),
    ("ne", np.not_equal, lax.ne, "une", "ne", "!="),
    ("lt", np.less, lax.lt, "olt", "{s}lt", "<"),
    ("le", np.less_equal, lax.le, "ole", "{s}le", "<="),
    ("gt", np.greater, lax.gt, "ogt", "{s}gt", ">"),
    ("ge", np.greater_equal, lax.ge, "oge", "{s}ge", ">="),
):
    _add(_name, _ufunc, _of, f"fcmp {_float} {{t}} {{0}}, {{1}}", f"{{0}} {_sign} {{1}}",
         f"icmp {_int} {{t}} {{0}}, {{1}}", commutative=_name in ("eq", "ne"))  # fmt: skip
for _name, _ufunc, _of, _sign in (
    ("and", np.bitwise_and, lax.bitwise_and, "&"),
    ("or", np.bitwise_or, lax.bitwise_or, "|"),
    ("xor", np.bitwise_xor, lax.bitwise_xor, "^"),
):
    _add(_name, _ufunc, _of, f"{_name} {{t}} {{0}}, {{1}}", f"{{0}} {_sign} {{1}}",
         commutative=True)  # fmt: skip
_add("not", np.invert, lax.bitwise_not, "xor {t} {0}, splat ({e} -1)", "({T})({0} ^ ({T})-1)")
_add("shl", np.left_shift, lax.shift_left, "shl {t} {0}, {1}", "({T})(({U}){0} << {1})")
_add("shr_a", np.right_shift, lax.shift_right_arithmetic, "ashr {t} {0}, {1}", "{0} >> {1}")
_add("shr_l", _shift_logical, lax.shift_right_logical, "lshr {t} {0}, {1}",
     "({T})(({U}){0} >> {1})")  # fmt: skip
_add("select", np.where, jnp.where, "", "{0} ? {1} : {2}")
for _name in "exp exp2 expm1 log log2 log1p sin cos tan sinh cosh tanh cbrt nextafter".split():
    _function(_name)
for _name in "asin acos atan asinh acosh atanh atan2 pow".split():
    _function(_name, getattr(np, "power" if _name == "pow" else _name.replace("a", "arc", 1)))
for _name in "erf erfc lgamma".split():
    _function(_name, np.vectorize(_of_libm(getattr(math, _name)), otypes=[float]))
