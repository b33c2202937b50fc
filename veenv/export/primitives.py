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

Special = tuple[Sequence[str], Callable[[Sequence[str], Mapping[str, Any]], str]]
"""Names of parameters, and from operands, as text, and parameters to an expression."""

_RECORDS = (lax.GatherDimensionNumbers, lax.ScatterDimensionNumbers, lax.ConvDimensionNumbers)
_NO_MATTER = frozenset({"weak_type", "update_jaxpr", "update_consts", "input_dtype"})
"""Parameters that say nothing about the result."""


class CannotWriteError(ValueError):
    """A primitive or parameter that has no rule here."""

    def __str__(self) -> str:
        return f"{super().__str__()}; see errors.html#cannotwriteerror"


def expression(name: str, operands: Sequence[str], params: Mapping[str, Any]) -> str:
    """A primitive's application to operands, as text, as an expression of `jax.lax`.

    It is a tuple's or list's where the primitive has several results.

    Raises:
      CannotWriteError: naming the primitive, or the parameter.
    """
    left = {k: v for k, v in params.items() if k not in _NO_MATTER and not _says_nothing(v)}
    if name in _SPECIAL:
        used, write = _SPECIAL[name]
        _check_used(name, left, used)
        return write(operands, left)
    known = facts(name)
    if known.keywords is None:
        raise CannotWriteError(f"primitive {name!r} cannot be written as source code")
    _check_used(name, left, known.keywords)
    named = _named({key: left[key] for key in known.keywords if key in left})
    return f"{known.python or f'lax.{name}'}({', '.join([*operands, *filter(None, [named])])})"


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


def _barrier(x: Sequence[str], params: Mapping[str, Any]) -> str:
    return f"lax.optimization_barrier({x[0] if len(x) == 1 else _tuple(x)})"


def _polynomial(operands: Sequence[str], params: Mapping[str, Any]) -> str:
    """Horner's rule; the constant coefficient comes first."""
    x, *coefficients, total = operands
    for c in reversed(coefficients):
        total = f"({c} + {x} * {total})"
    return f"jnp.asarray({total})"


def _top_k(x: Sequence[str], params: Mapping[str, Any]) -> str:
    # Stable is the default, and all there is in older versions.
    stated = {k: v for k, v in params.items() if (k, v) != ("is_stable", True)}
    return f"lax.top_k({x[0]}, {_named(stated)})"


def _arg(name: str) -> Special:
    def write(x: Sequence[str], params: Mapping[str, Any]) -> str:
        (axis,) = params["axes"]
        return f"lax.{name}({x[0]}, {int(axis)}, {text(params['index_dtype'])})"

    return ("axes", "index_dtype"), write


def _tuple(operands: Sequence[str]) -> str:
    return f"({', '.join(operands)},)"


def _named(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={text(value)}" for key, value in params.items())


_CLAMPED = "allow_negative_indices=False"
"""The primitives' starts: what is negative was counted from the end before them already."""
_COPY: Special = ("name",), lambda x, p: x[0]
_EMPTY: Special = (  # memory whose content does not matter
    ("shape", "dtype", "memory_space", "out_sharding"),
    lambda x, p: f"jnp.zeros({text(p.get('shape', ()))}, {text(np.dtype(p['dtype']))})",
)
_SPECIAL: Mapping[str, Special] = {
    "argmax": _arg("argmax"),
    "argmin": _arg("argmin"),
    "cholesky": ((), lambda x, p: f"lax.linalg.cholesky({x[0]}, symmetrize_input=False)"),
    "concatenate": (
        ("dimension",),
        lambda x, p: f"lax.concatenate([{', '.join(x)}], dimension={p['dimension']})",
    ),
    "copy": _COPY,
    "copy_p": _COPY,
    "name": _COPY,
    "dynamic_slice": (
        ("slice_sizes",),
        lambda x, p: f"lax.dynamic_slice({x[0]}, {_tuple(x[1:])}, {text(p['slice_sizes'])}, "
        f"{_CLAMPED})",
    ),
    "dynamic_update_slice": (
        (),
        lambda x, p: f"lax.dynamic_update_slice({x[0]}, {x[1]}, {_tuple(x[2:])}, {_CLAMPED})",
    ),
    "empty": _EMPTY,
    "empty2": _EMPTY,
    "one_minus_square": ((), lambda x, p: f"(1 - {x[0]}) * (1 + {x[0]})"),
    **dict.fromkeys(BARRIERS, (("points",), _barrier)),
    "polynomial": ((), _polynomial),
    "sort": (
        ("dimension", "is_stable", "num_keys"),
        lambda x, p: f"lax.sort({_tuple(x)}, {_named(dict(sorted(p.items())))})",
    ),
    "stack": (
        ("axis",), lambda x, p: f"jnp.stack([{', '.join(x)}], axis={int(p['axis'])})"
    ),
    "top_k": (("k", "operand", "axis", "is_stable"), _top_k),
}  # fmt: skip
"""What is no call of its own name: the parameters that are used, and the expression."""
