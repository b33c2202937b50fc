"""How each primitive is written as a call of `jax.lax`, for `veenv.export`."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from veenv.linear.barrier import BARRIERS
from veenv.rules.table import facts

Writer = Callable[[Sequence[str], Mapping[str, Any]], str]
"""From operands and parameters, as text, to an expression."""

_RECORDS = (lax.GatherDimensionNumbers, lax.ScatterDimensionNumbers, lax.ConvDimensionNumbers)
_NO_MATTER = frozenset({"weak_type", "update_jaxpr", "update_consts", "input_dtype"})
"""Parameters that say nothing about the result."""


class CannotWriteError(ValueError):
    """A primitive or parameter that has no rule here."""

    def __str__(self) -> str:
        return f"{super().__str__()}; see docs/errors.md#cannotwriteerror"


def expression(name: str, operands: Sequence[str], params: Mapping[str, Any]) -> str:
    """A primitive's application to operands, as text, as an expression of `jax.lax`.

    It is a tuple's or list's where the primitive has several results.

    Raises:
      CannotWriteError: naming the primitive, or the parameter.
    """
    left = {k: v for k, v in params.items() if k not in _NO_MATTER and not _says_nothing(v)}
    if name in _SPECIAL:
        return _SPECIAL[name](operands, left)
    known = facts(name)
    if known.keywords is None:
        raise CannotWriteError(f"primitive {name!r} cannot be written as source code")
    _check_used(name, left, known.keywords)
    named = [f"{key}={text(left[key])}" for key in known.keywords if key in left]
    return f"{known.python or f'lax.{name}'}({', '.join([*operands, *named])})"


def _says_nothing(value: Any) -> bool:
    """Whether a parameter is absent: None, or a sharding over a mesh without axes."""
    mesh = getattr(value, "mesh", None)
    return value is None or (mesh is not None and not mesh.axis_names)


def _check_used(name: str, params: Mapping[str, Any], known: Any) -> None:
    for key, value in params.items():
        if key not in known and value is not False and value != ():
            raise CannotWriteError(
                f"primitive {name!r} with {key}={value!r} cannot be written as source code"
            )


def text(value: Any) -> str:
    """A parameter as Python source."""
    if value is None or isinstance(value, (bool, np.bool_)):
        return str(value)
    if isinstance(value, enum.Enum):
        kind = type(value).__name__
        if getattr(lax, kind, None) is type(value):
            return f"lax.{kind}.{value.name}"
    elif isinstance(value, (int, np.integer)):
        return str(int(value))
    elif isinstance(value, (float, np.floating)):
        return number(value)
    elif isinstance(value, _RECORDS):
        fields = ", ".join(f"{k}={text(v)}" for k, v in vars_of(value).items())
        return f"lax.{type(value).__name__}({fields})"
    elif isinstance(value, (tuple, list)):
        items = [text(v) for v in value]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    elif isinstance(value, (np.dtype, type)):
        return dtype(value)
    raise CannotWriteError(f"a parameter {value!r} cannot be written as source code")


def vars_of(value: Any) -> dict[str, Any]:
    """The fields of a named tuple or a dataclass."""
    if hasattr(value, "_asdict"):
        return value._asdict()
    return {key: getattr(value, key) for key in value.__dataclass_fields__}


def dtype(value: Any) -> str:
    """A dtype as source."""
    name = np.dtype(value).name if not jax.numpy.issubdtype(value, jax.dtypes.extended) else ""
    if name == "bool":
        return "jnp.bool_"
    if not name or not hasattr(jax.numpy, name):
        raise CannotWriteError(f"values of dtype {value} cannot be written as source code")
    return f"jnp.{name}"


def number(value: Any) -> str:
    """A number that reads back as the same number."""
    if isinstance(value, (complex, np.complexfloating)):
        return f"_complex({number(value.real)}, {number(value.imag)})"
    if np.isfinite(value):
        return repr(value.item() if hasattr(value, "item") else value)
    sign = "-" if value < 0 else ""
    return f"{sign}np.{'nan' if np.isnan(value) else 'inf'}"


def _barrier(operands: Sequence[str], params: Mapping[str, Any]) -> str:
    _check_used("optimization_barrier", params, ("points",))
    if len(operands) == 1:
        return f"lax.optimization_barrier({operands[0]})"
    return f"lax.optimization_barrier(({', '.join(operands)}))"


def _concatenate(operands: Sequence[str], params: Mapping[str, Any]) -> str:
    _check_used("concatenate", params, ("dimension",))
    return f"lax.concatenate([{', '.join(operands)}], dimension={params['dimension']})"


def _copy(operands: Sequence[str], params: Mapping[str, Any]) -> str:
    _check_used("copy", params, ("name",))
    return operands[0]


def _dynamic_slice(operands: Sequence[str], params: Mapping[str, Any]) -> str:
    _check_used("dynamic_slice", params, ("slice_sizes",))
    starts, sizes = ", ".join(operands[1:]), text(params["slice_sizes"])
    return f"lax.dynamic_slice({operands[0]}, ({starts},), {sizes}, {_CLAMPED})"


def _dynamic_update_slice(operands: Sequence[str], params: Mapping[str, Any]) -> str:
    _check_used("dynamic_update_slice", params, ())
    starts = ", ".join(operands[2:])
    return f"lax.dynamic_update_slice({operands[0]}, {operands[1]}, ({starts},), {_CLAMPED})"


_CLAMPED = "allow_negative_indices=False"
"""The primitives' starts: what is negative was counted from the end before them already."""


def _arg(name: str) -> Writer:
    def write(operands: Sequence[str], params: Mapping[str, Any]) -> str:
        _check_used(name, params, ("axes", "index_dtype"))
        (axis,) = params["axes"]
        return f"lax.{name}({operands[0]}, {int(axis)}, {text(params['index_dtype'])})"

    return write


def _empty(operands: Sequence[str], params: Mapping[str, Any]) -> str:
    """Memory whose content does not matter (``empty2`` is a scalar)."""
    del operands
    return f"jnp.zeros({text(params.get('shape', ()))}, {text(np.dtype(params['dtype']))})"


def _cholesky(operands: Sequence[str], params: Mapping[str, Any]) -> str:
    _check_used("cholesky", params, ())
    return f"lax.linalg.cholesky({operands[0]}, symmetrize_input=False)"


def _one_minus_square(operands: Sequence[str], params: Mapping[str, Any]) -> str:
    _check_used("one_minus_square", params, ())
    return f"(1 - {operands[0]}) * (1 + {operands[0]})"


def _polynomial(operands: Sequence[str], params: Mapping[str, Any]) -> str:
    """Horner's rule; the constant coefficient comes first."""
    _check_used("polynomial", params, ())
    x, *coefficients, total = operands
    for c in reversed(coefficients):
        total = f"({c} + {x} * {total})"
    return f"jnp.asarray({total})"


def _stack(operands: Sequence[str], params: Mapping[str, Any]) -> str:
    _check_used("stack", params, ("axis",))
    return f"jnp.stack([{', '.join(operands)}], axis={int(params['axis'])})"


def _sort(operands: Sequence[str], params: Mapping[str, Any]) -> str:
    _check_used("sort", params, ("dimension", "is_stable", "num_keys"))
    several = f"({', '.join(operands)},)"
    named = ", ".join(f"{key}={text(params[key])}" for key in sorted(params))
    return f"lax.sort({several}, {named})"


def _top_k(operands: Sequence[str], params: Mapping[str, Any]) -> str:
    _check_used("top_k", params, ("k", "operand", "axis", "is_stable"))
    # Stable is the default, and all there is in older versions.
    stated = {k: v for k, v in params.items() if (k, v) != ("is_stable", True)}
    named = ", ".join(f"{key}={text(value)}" for key, value in stated.items())
    return f"lax.top_k({operands[0]}, {named})"


_SPECIAL: Mapping[str, Writer] = {
    "argmax": _arg("argmax"),
    "argmin": _arg("argmin"),
    "cholesky": _cholesky,
    "concatenate": _concatenate,
    "copy": _copy,
    "copy_p": _copy,
    "name": _copy,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "empty": _empty,
    "empty2": _empty,
    "one_minus_square": _one_minus_square,
    **dict.fromkeys(BARRIERS, _barrier),
    "polynomial": _polynomial,
    "sort": _sort,
    "stack": _stack,
    "top_k": _top_k,
}
