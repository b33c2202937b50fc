"""Identifies a jaxpr by a digest of its canonical text, the same in every process.

Two jaxprs with one text compute the same in the same way; of derivatives it says nothing.
Parameters of equations are described by what they are, calls and primitives of other libraries by
what they run. What cannot be described so, such as a callback, has no text.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.core
import numpy as np

from veenv import _compat
from veenv.rules import walk
from veenv.rules.base import is_key
from veenv.rules.definitions import definition_of
from veenv.rules.table import TABLE

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type, np.dtype)
_UNSPECIFIED = "UnspecifiedValue"  # JAX's mark of an unspecified sharding


class _UndescribedError(Exception):
    """A part of the program has no text."""


def digest_of_jaxpr(closed: Any) -> str | None:
    """Returns the SHA-256 of a closed jaxpr's text, in hex; None where a part has no text."""
    try:
        return _Text().value(closed)
    except _UndescribedError:
        return None


class _Text:
    """Builds texts of programs; equal objects are described once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, str]] = {}

    def _jaxpr(self, closed: Any) -> Iterator[str]:
        jaxpr = _compat.open_jaxpr(closed)
        variables = (*jaxpr.invars, *jaxpr.constvars)
        names: dict[Any, int] = {v: n for n, v in enumerate(variables)}
        yield f"{len(jaxpr.invars)} {[self.aval(v.aval) for v in variables]}"
        yield from map(self.value, getattr(closed, "consts", ()))
        yield from (self._equation(equation, names) for equation in jaxpr.eqns)
        yield f"{self._atoms(jaxpr.outvars, names)}"

    def _equation(self, equation: Any, names: dict[Any, int]) -> str:
        operands, results = self._atoms(equation.invars, names), []
        for variable in equation.outvars:
            dropped = _compat.is_dropped(variable)
            number = None if dropped else names.setdefault(variable, len(names))
            results.append((number, self.aval(variable.aval)))
        return f"{self._computation(equation)} {operands} {results}"

    def _computation(self, equation: Any) -> str:
        """Returns the text of an equation's computation, without its operands."""
        name, params = equation.primitive.name, equation.params
        body = _compat.inlinable(equation) or _compat.call_body(name, params)
        if body is not None:
            return f"call {self.value(body)}"
        meaning = definition_of(equation)
        if _compat.effects_of(equation) or (meaning is None and name not in TABLE):
            raise _UndescribedError(name)
        return f"{name} {self.value(walk.loop_of(equation) or params)} {self.value(meaning)}"

    def _atoms(self, atoms: Sequence[Any], names: Any) -> list[Any]:
        return [
            f"{self.value(a.val)} {self.aval(a.aval)}" if walk.is_literal(a) else names[a]
            for a in atoms
        ]

    def aval(self, aval: Any) -> str:
        """Returns shape, dtype and weakness of a variable that is on no mesh."""
        nowhere = _is_nowhere(getattr(aval, "sharding", None))
        if _compat.variance_of(aval) or not nowhere or _compat.is_ref(aval):
            raise _UndescribedError(repr(aval))
        shape, dtype = getattr(aval, "shape", None), getattr(aval, "dtype", None)
        if not isinstance(shape, tuple) or not all(isinstance(n, int) for n in shape):
            raise _UndescribedError(repr(aval))
        return f"{dtype}{shape}{getattr(aval, 'weak_type', False)}"

    def value(self, x: Any) -> str:
        """Returns the text of a parameter or a constant."""
        known = self._known.get(id(x))
        if known is None:  # the object is stored, so that its id is not reused
            known = self._known[id(x)] = (x, self._value(x))
        return known[1]

    def _value(self, x: Any) -> str:
        kind = type(x).__qualname__
        if isinstance(x, enum.Enum):
            return f"{kind}.{x.name}"
        if isinstance(x, _PLAIN) and not hasattr(x, "__array__"):
            return f"{kind} {x!r}"
        if isinstance(x, (np.ndarray, np.generic, jax.Array)) or hasattr(x, "__array__"):
            return self._array(x)
        if isinstance(x, Mapping):
            return f"{kind} {sorted((repr(k), self.value(v)) for k, v in x.items())}"
        if isinstance(x, (set, frozenset)):
            return f"{kind} {sorted(map(self.value, x))}"
        if isinstance(x, (tuple, list)):
            return f"{kind} {list(map(self.value, x))}"
        if hasattr(_compat.open_jaxpr(x), "eqns"):
            return hashlib.sha256("\n".join(self._jaxpr(x)).encode()).hexdigest()
        if isinstance(x, (jax.core.ShapedArray, jax.ShapeDtypeStruct)):
            return self.aval(x)
        if dataclasses.is_dataclass(x) and not callable(x):
            return f"{kind} {[self.value(getattr(x, f.name)) for f in dataclasses.fields(x)]}"
        if kind == _UNSPECIFIED or (isinstance(x, jax.sharding.Sharding) and _is_nowhere(x)):
            return _UNSPECIFIED
        raise _UndescribedError(f"{kind} of {type(x).__module__}")

    def _array(self, x: Any) -> str:
        if _compat.is_traced(x):
            raise _UndescribedError("a value of another trace")
        if is_key(x):
            return f"{x.dtype} {self._array(jax.random.key_data(x))}"
        array = np.asarray(x)
        if array.dtype.hasobject:
            raise _UndescribedError("an array of objects")
        data = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        return f"{array.dtype}{array.shape}{getattr(x, 'weak_type', False)} {data}"


def _is_nowhere(sharding: Any) -> bool:
    """Returns whether a sharding is empty: there is no mesh."""
    return bool(getattr(getattr(sharding, "mesh", None), "empty", sharding is None))
