"""Which elements of a program's variables are always zero: padding, blocks that are not there.

What zeros are made of alone is zero, and so is what they are multiplied with.
"""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import Any

import numpy as np

from veenv.engine import places
from veenv.engine.known import Known
from veenv.graph.equations import Equation
from veenv.rules.table import ALL, facts

_MOST = 1 << 20
"""Most elements of a variable that is looked at."""


class Zeros:
    """The elements of a program's variables that are zero whatever its arguments are.

    Example:
      >>> import jax
      >>> from veenv.graph.program import trace
      >>> x = jax.ShapeDtypeStruct((2,), "float32")
      >>> program = trace(lambda x: jax.lax.pad(x, 0.0, [(1, 2, 0)]), (x,))
      >>> Zeros(Known(program))(program.equations[-1].outputs[0]).tolist()
      [True, False, False, True, True]
    """

    def __init__(self, known: Known):
        self._known = known
        self._found: dict[Any, np.ndarray | None] = {}

    def __call__(self, atom: Any) -> np.ndarray | None:
        """bool of the variable's shape; None if no element is known to be zero."""
        if not isinstance(atom, int):
            value = self._known(atom)
            return None if value is None else _some(value == 0)
        if atom not in self._found:
            self._found[atom] = _some(self._find(atom))
        return self._found[atom]

    def _find(self, variable: int) -> np.ndarray | None:
        value = self._known.quickly(variable)
        if value is not None:
            return value == 0
        if variable not in self._known.makers:
            return None
        equation, k = self._known.makers[variable]
        if prod(equation.out_avals[k].shape) > _MOST:
            return None
        given = [self(a) for a in equation.inputs]
        return None if all(x is None for x in given) else self._through(equation, given)

    def _through(self, equation: Equation, given: list[np.ndarray | None]) -> np.ndarray | None:
        name, params, shape = equation.primitive.name, equation.params, equation.out_avals[0].shape
        first, avals = given[0], equation.in_avals
        there = [
            np.zeros(a.shape, bool) if x is None else x for x, a in zip(given, avals, strict=True)
        ]
        if facts(name).zero or (name == "integer_pow" and params["y"] > 0):
            return None if first is None else np.broadcast_to(first, shape)
        if name == "mul":
            return np.broadcast_to(there[0], shape) | np.broadcast_to(there[1], shape)
        if facts(name).form == "entry" and facts(name).linear is ALL:
            return reduce(np.logical_and, [np.broadcast_to(x, shape) for x in there])
        if name == "select_n":
            return reduce(np.logical_and, there[1:])
        if name == "concatenate":
            return np.concatenate(there, params["dimension"])
        if name == "reduce_sum":
            return np.asarray(there[0].all(axis=tuple(params["axes"])))
        if name in {"squeeze", "expand_dims"}:
            return there[0].reshape(shape)
        if name == "transpose":
            return there[0].transpose(params["permutation"])
        if name == "broadcast_in_dim":
            full = [1] * len(shape)
            for axis, n in zip(params["broadcast_dimensions"], avals[0].shape, strict=True):
                full[axis] = n
            return np.broadcast_to(there[0].reshape(full), shape)
        return self._moved(equation, there)

    def _moved(self, equation: Equation, there: list[np.ndarray]) -> np.ndarray | None:
        """Of what takes each result from an operand, at places that are known."""
        shape = equation.out_avals[0].shape
        taken = places.moved(equation)
        if taken is not None:
            padding = bool(there[1].all()) if equation.primitive.name == "pad" else False
            return np.append(there[0], padding)[taken].reshape(shape)
        found = np.zeros(prod(shape), bool)
        indexed = places.takes(equation.primitive.name) and not places.adds(equation.primitive.name)
        taken_from = facts(equation.primitive.name).linear_in(len(there)) if indexed else None
        for operand in taken_from or ():
            taken = places.by_indices(equation, operand, self._known)
            if taken is None:
                return None
            found |= np.append(there[operand], False)[taken.reshape(-1)]
        return found.reshape(shape)


def _some(zero: np.ndarray | None) -> np.ndarray | None:
    return zero if zero is not None and zero.any() else None
