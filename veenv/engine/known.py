"""Variables of a program that are known when it is traced: indices, mostly.

Inside of jit JAX stages every operation, those on constants too.  What indices are computed from
is worked out here at once, if it depends on nothing that is traced or differentiated by.
"""

from __future__ import annotations

from math import inf
from typing import Any

import jax
import numpy as np

from veenv import _compat
from veenv.graph.equations import Equation
from veenv.graph.program import Literal, Program
from veenv.rules.dtypes import is_key

_SIMPLE = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.logical_and,
}
"""What NumPy does as JAX, without compiling anything, to arrays of one dtype."""

_QUICK = {*_SIMPLE, "select_n", "reshape", "squeeze", "expand_dims", "broadcast_in_dim", "rev"}
_QUICK |= {"convert_element_type", "transpose", "concatenate", "split", "iota"}
"""What `results` leaves to NumPy, mostly."""


class Known:
    """The variables of a program whose values are known when tracing.

    Example:
      >>> from veenv.graph.program import trace
      >>> program = trace(lambda x: x[np.array([2, -1])], (jax.ShapeDtypeStruct((4,), "float32"),))
      >>> gather = next(e for e in program.equations if e.primitive.name == "gather")
      >>> Known(program)(gather.inputs[1]).ravel().tolist()
      [2, 3]
    """

    def __init__(self, program: Program):
        self._program = program
        self.makers = {
            variable: (e, k)
            for e in program.equations
            for k, variable in enumerate(e.outputs)
            if variable is not None
        }
        self._found: dict[Any, np.ndarray | None] = {}

    def __call__(self, atom: Any) -> np.ndarray | None:
        """The value of a variable or `Literal`; None if it is not known."""
        if isinstance(atom, Literal):
            return None if _compat.is_traced(atom.value) else np.asarray(atom.value)
        if atom not in self._found:
            self._found[atom] = self._find(atom)
        return self._found[atom]

    def _find(self, variable: int) -> np.ndarray | None:
        program = self._program
        number = variable - program.num_inputs
        if number < 0:
            return None
        if variable not in self.makers:
            return held(program.constants[number])
        equation, k = self.makers[variable]
        if any(_compat.bodies(equation.params)):
            return None
        if any(is_key(aval) for aval in (*equation.in_avals, *equation.out_avals)):
            return None
        ins = [self(a) for a in equation.inputs]
        return None if any(x is None for x in ins) else results(equation, ins)[k]

    def quickly(self, atom: Any) -> np.ndarray | None:
        """As a call, of constants and what NumPy makes of them; None where JAX would have to."""
        if isinstance(atom, Literal) or atom not in self.makers:
            return self(atom)
        equation, _ = self.makers[atom]
        if not is_quick(equation):
            return None
        return None if any(self.quickly(a) is None for a in equation.inputs) else self(atom)


def is_quick(equation: Equation) -> bool:
    """Whether NumPy mostly does an equation's work if its operands are known."""
    return equation.primitive.name in _QUICK


def held(constant: Any, most: float = inf) -> np.ndarray | None:
    """A constant's numbers; None if it is traced, holds keys, or holds more than `most` numbers."""
    plain = isinstance(constant, (jax.Array, np.ndarray, np.generic, int, float))
    if not plain or _compat.is_traced(constant) or is_key(constant):
        return None
    return np.asarray(constant) if np.size(constant) <= most else None


def is_exact(dtype: Any) -> bool:
    """Whether numbers of a dtype are converted by NumPy as by JAX: integers and bools."""
    return dtype == np.bool_ or jax.numpy.issubdtype(dtype, np.integer)


def _converts(given: Any, wanted: Any) -> bool:
    """Whether NumPy converts numbers from one dtype to another as JAX does: rounded once."""
    if not is_exact(given) and given not in (np.float32, np.float64):
        return False
    if is_exact(wanted):
        return is_exact(given)
    return wanted in (np.float32, np.float64, np.complex64, np.complex128)


def results(equation: Equation, ins: list[Any]) -> list[np.ndarray]:
    """The results of an equation at known operands, one array each."""
    name, aval = equation.primitive.name, equation.out_avals[0]
    if name in _SIMPLE and (name != "and" or aval.dtype == np.bool_):
        return [np.asarray(_SIMPLE[name](*ins), aval.dtype)]
    if name == "select_n" and len(ins) == 3:
        return [np.where(ins[0], ins[2], ins[1])]
    if name in {"reshape", "squeeze", "expand_dims"} and equation.params.get("dimensions") is None:
        return [ins[0].reshape(aval.shape)]
    if name == "broadcast_in_dim":
        shape = [1] * len(aval.shape)
        for axis, n in zip(equation.params["broadcast_dimensions"], ins[0].shape, strict=True):
            shape[axis] = n
        return [np.broadcast_to(ins[0].reshape(shape), aval.shape)]
    if name == "convert_element_type" and _converts(ins[0].dtype, aval.dtype):
        return [ins[0].astype(aval.dtype)]
    if name == "iota" and _converts(np.dtype(int), aval.dtype):
        axis = equation.params["dimension"]
        counted = np.arange(aval.shape[axis]).astype(aval.dtype)
        counted = counted.reshape(-1, *(1 for _ in aval.shape[axis + 1 :]))
        return [np.broadcast_to(counted, aval.shape)]
    if name == "rev":
        return [np.flip(ins[0], equation.params["dimensions"])]
    if name == "transpose":
        return [ins[0].transpose(equation.params["permutation"])]
    if name == "concatenate":
        return [np.concatenate(ins, equation.params["dimension"])]
    if name == "split":
        ends = np.cumsum(equation.params["sizes"])[:-1]
        return np.split(ins[0], ends, equation.params["axis"])
    with jax.ensure_compile_time_eval():
        given = [jax.numpy.asarray(x) for x in ins]
        return [np.asarray(x) for x in _compat.bind(equation.primitive, equation.params, given)]
