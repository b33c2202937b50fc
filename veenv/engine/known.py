"""Evaluates, while tracing, the variables of a program that depend on constants alone.

In: a `Program`. Out: a NumPy array for each known variable, such as the indices of a gather. Inside
of jit JAX stages even operations on constants; here they are computed at once.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import inf
from typing import Any

import jax
import numpy as np

from veenv import _compat
from veenv.graph.equations import Equation
from veenv.graph.program import Literal, Program
from veenv.rules import indexmap, walk
from veenv.rules.base import is_key
from veenv.rules.operations import OPERATIONS
from veenv.rules.table import facts, named

_SIMPLE = frozenset(name for name, of in OPERATIONS.items() if not of.function) - {"round", "rem"}
"""Primitives that NumPy computes like JAX, without compiling, for arrays of one dtype."""

_QUICK = _SIMPLE.union(
    named(form="move"), named(selects=True), named(sums=True), ("convert_element_type", "iota")
)
"""Primitives that `results` mostly computes by NumPy."""


class Known:
    """The variables of a program whose values are known when tracing.

    Examples:
      >>> from veenv.graph.program import trace
      >>> program = trace(lambda x: x[np.array([2, -1])], (jax.ShapeDtypeStruct((4,), "float32"),))
      >>> gather = next(e for e in program.equations if e.primitive.name == "gather")
      >>> Known(program)(gather.invars[1]).ravel().tolist()
      [2, 3]
    """

    def __init__(self, program: Program, outer: Known | None = None, of: Sequence[Any] = ()):
        self._program, self._outer, self._of = program, outer, of
        self.makers: dict[Any, tuple[Equation, int]] = {}
        self._values: dict[Any, np.ndarray | None] = {}
        for e in program.equations:
            self.add(e)

    def add(self, e: Equation) -> None:
        """Adds an equation that the program does not have yet."""
        self.makers.update((v, (e, k)) for k, v in enumerate(e.outvars) if v is not None)

    def __call__(self, atom: Any) -> np.ndarray | None:
        """Returns the value of a variable or `Literal`; None if it is not known."""
        if isinstance(atom, Literal):
            return None if _compat.is_traced(atom.val) else np.asarray(atom.val)
        if atom not in self._values:
            self._values[atom] = self._find(atom)
        return self._values[atom]

    def _find(self, variable: int) -> np.ndarray | None:
        program = self._program
        number = variable - program.num_inputs
        if number < 0:
            return None
        if number < len(self._of):
            assert self._outer is not None
            return self._outer(self._of[number])
        if variable not in self.makers:
            return held(program.constants[number])
        equation, k = self.makers[variable]
        if any(_compat.bodies(equation.params)) or equation.primitive.name == "dim_as_value":
            return None
        if any(is_key(aval) for aval in (*equation.in_avals, *equation.out_avals)):
            return None
        ins = [self(a) for a in equation.invars]
        return None if any(x is None for x in ins) else results(equation, ins)[k]

    def quickly(self, atom: Any) -> np.ndarray | None:
        """Returns a value that NumPy can compute; None where it would take JAX, or is not known."""
        return self(atom) if isinstance(atom, Literal) or atom in self._quick else None

    @functools.cached_property
    def _quick(self) -> set[Any]:
        """The constants, and the variables that NumPy can compute from them."""
        count = self._program.num_inputs
        quick = {*range(count, count + len(self._program.constants))}
        for e in self._program.equations:
            if e.primitive.name in _QUICK and quick.issuperset(walk.operands(e)):
                quick.update(v for v in e.outvars if v is not None)
        return quick


def held(constant: Any, most: float = inf) -> np.ndarray | None:
    """Returns a constant's numbers; None if traced, of keys, or more than `most`."""
    plain = isinstance(constant, (jax.Array, np.ndarray, np.generic, int, float))
    if not plain or _compat.is_traced(constant) or is_key(constant):
        return None
    return np.asarray(constant) if np.size(constant) <= most else None


def is_exact(dtype: Any) -> bool:
    """Returns whether a dtype is integer or bool, which NumPy converts as JAX does."""
    return dtype == np.bool_ or jax.numpy.issubdtype(dtype, np.integer)


def _converts(source: Any, wanted: Any) -> bool:
    """Returns whether NumPy converts from one dtype to another as JAX does: rounded once."""
    if not is_exact(source) and source not in (np.float32, np.float64):
        return False
    if is_exact(wanted):
        return is_exact(source)
    return wanted in (np.float32, np.float64, np.complex64, np.complex128)


def results(equation: Equation, ins: list[Any]) -> list[np.ndarray]:
    """Returns the results of an equation at known operands, one array each."""
    name, aval = equation.primitive.name, equation.out_avals[0]
    if name in _SIMPLE and (name != "div" or aval.dtype in (np.float32, np.float64)):
        with np.errstate(all="ignore"):
            return [np.asarray(OPERATIONS[name].numpy(*ins), aval.dtype)]
    if facts(name).sums:
        return [np.sum(ins[0], tuple(equation.params["axes"]), aval.dtype)]
    if facts(name).selects and len(ins) == 3:
        return [np.where(ins[0], ins[2], ins[1])]
    rearranged = indexmap.move_elements(name, equation.params, ins, aval.shape)
    if rearranged is not None:
        return rearranged
    if name == "convert_element_type" and _converts(ins[0].dtype, aval.dtype):
        return [ins[0].astype(aval.dtype)]
    if name == "iota" and _converts(np.dtype(int), aval.dtype):
        axis = equation.params["dimension"]
        counted = np.arange(aval.shape[axis]).astype(aval.dtype)
        counted = counted.reshape(-1, *(1 for _ in aval.shape[axis + 1 :]))
        return [np.broadcast_to(counted, aval.shape)]
    with jax.ensure_compile_time_eval():
        operands = [jax.numpy.asarray(x) for x in ins]
        return [np.asarray(x) for x in _compat.bind(equation.primitive, equation.params, operands)]
