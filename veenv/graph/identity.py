"""What a traced function computes, as a text that is the same in every process.

Two programs with one text compute the same in the same way and have the same derivatives.
Parameters of equations are described by what they are, functions with derivative rules of their own
by the programs of those rules. What cannot be described so, such as a callback, has no text.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.core
import numpy as np

from veenv import _compat
from veenv.graph.custom_rules import definition, inner_program
from veenv.graph.equations import Literal
from veenv.graph.program import Program
from veenv.rules import walk
from veenv.rules.base import Site, is_differentiable, is_key
from veenv.rules.table import TABLE

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type, np.dtype)
_UNSPECIFIED = "UnspecifiedValue"  # JAX's mark of a sharding that nobody gave


class _UndescribedError(Exception):
    """Something of a program has no text."""


def text_of(program: Program, given: Sequence[Any]) -> str | None:
    """The text of a program; None where something of it has none.

    Args:
      program: a traced function.
      given: values of the leaves of its arguments; of a tracer it says the number alone.
    """
    try:
        return "\n".join(_Text(given).program(program))
    except _UndescribedError:
        return None


def text_of_jaxpr(closed: Any) -> str | None:
    """The text of a closed jaxpr, likewise."""
    try:
        return _Text().value(closed)
    except _UndescribedError:
        return None


class _Text:
    """What programs are described with: equal objects are once."""

    def __init__(self, given: Sequence[Any] = (), around: Sequence[Hashable] = ()):
        self._around = around  # the functions whose rules this is of
        self._given = {id(x): n for n, x in enumerate(given) if _compat.is_traced(x)}
        self._known: dict[int, tuple[Any, str]] = {}

    def program(self, program: Program) -> Iterator[str]:
        """A line for each variable that is given, for each equation, and for the outputs."""
        names = range(len(program.avals))
        yield f"{program.num_inputs} {list(map(self.aval, program.avals[: program.num_inputs]))}"
        behind = program.avals[program.num_inputs :]  # of constants, then of results
        for value, aval in zip(program.constants, behind, strict=False):
            number = self._given.get(id(value))
            yield f"{self.value(value) if number is None else number} {self.aval(aval)}"
        yield from self._equations(program.equations, dict(enumerate(names)))
        yield f"{self._atoms(program.outputs, names)} {self.value(program.out_avals)}"
        if program.aux is not None:
            outputs, avals, _ = program.aux
            yield f"{self._atoms(outputs, names)} {self.value(avals)}"

    def _jaxpr(self, closed: Any) -> Iterator[str]:
        jaxpr = _compat.open_jaxpr(closed)
        variables = (*jaxpr.invars, *jaxpr.constvars)
        names: dict[Any, int] = {v: n for n, v in enumerate(variables)}
        yield f"{len(jaxpr.invars)} {[self.aval(v.aval) for v in variables]}"
        yield from map(self.value, getattr(closed, "consts", ()))
        yield from self._equations(jaxpr.eqns, names)
        yield f"{self._atoms(jaxpr.outvars, names)}"

    def _equations(self, equations: Sequence[Any], names: dict[Any, int]) -> Iterator[str]:
        for equation in equations:
            operands = self._atoms(equation.invars, names)
            avals = walk.out_avals(equation)
            results = []
            for variable, aval in zip(equation.outvars, avals, strict=True):
                dropped = variable is None or _compat.is_dropped(variable)
                if not dropped:
                    names.setdefault(variable, len(names))
                results.append((None if dropped else names[variable], self.aval(aval)))
            yield f"{self._meaning(equation)} {operands} {results}"

    def _meaning(self, equation: Any) -> str:
        """What an equation does with its operands."""
        name = equation.primitive.name
        body = _compat.inlinable(equation)
        if body is not None:
            return f"call {self.value(body)}"
        rule = _compat.own_rule(equation.primitive, equation.params)
        if _compat.effects_of(equation) or (rule is None and name not in TABLE):
            raise _UndescribedError(name)
        if rule:
            return f"{name} {self._rule(equation)}"
        return f"{name} {self.value(walk.loop_of(equation) or equation.params)}"

    def _rule(self, equation: Any) -> str:
        """A function with a derivative rule, and the rule."""
        params, avals = equation.params, walk.in_avals(equation)
        called = _compat.call_body(equation.primitive.name, params)
        if called is None or _compat.sees_symbolic_zeros(equation.primitive, params):
            raise _UndescribedError(equation.primitive.name)
        moving = list(map(is_differentiable, avals))
        site = Site(equation.primitive, params, avals, walk.out_avals(equation), moving, "", True)
        own = definition(site)
        if own in self._around:
            return f"{self.value(called)} of {self._around.index(own)}"
        try:
            inner = inner_program(site)
        except Exception as error:  # a user's rule may refuse with any
            raise _UndescribedError(equation.primitive.name) from error
        if inner is None:
            return self.value(called)
        lines = "\n".join(_Text((), [*self._around, own]).program(inner.program))
        return f"{self.value(called)} {inner.backward} {inner.operands} {inner.results} {lines}"

    def _atoms(self, atoms: Sequence[Any], names: Any) -> list[Any]:
        return [
            f"{self.value(a.val)} {self.aval(getattr(a, 'aval', None))}"
            if isinstance(a, Literal) or walk.is_literal(a)
            else names[a]
            for a in atoms
        ]

    def aval(self, aval: Any) -> str:
        """Shape, dtype and weakness, of a variable that is on no mesh."""
        if aval is None:
            return ""
        nowhere = _is_nowhere(getattr(aval, "sharding", None))
        if _compat.variance_of(aval) or not nowhere or _compat.is_ref(aval):
            raise _UndescribedError(repr(aval))
        shape, dtype = getattr(aval, "shape", None), getattr(aval, "dtype", None)
        if not isinstance(shape, tuple) or not all(isinstance(n, int) for n in shape):
            raise _UndescribedError(repr(aval))
        return f"{dtype}{shape}{getattr(aval, 'weak_type', False)}"

    def value(self, x: Any) -> str:
        """A parameter or a constant."""
        known = self._known.get(id(x))
        if known is None:  # the object is kept, so that no other has its number
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
    """Whether a sharding says nothing: there is no mesh."""
    return bool(getattr(getattr(sharding, "mesh", None), "empty", sharding is None))
