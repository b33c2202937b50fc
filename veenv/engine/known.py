"""What is known of a program's variables when it is traced: values and zeros.

Inside of jit JAX stages every operation, those on constants too.  What indices are computed from
is worked out here at once, if it depends on nothing that is traced or differentiated by.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from functools import reduce
from math import inf, prod
from typing import Any

import jax
import numpy as np

from veenv import _compat, limits
from veenv.graph.equations import Equation
from veenv.graph.program import Literal, Program
from veenv.rules import indexmap, walk
from veenv.rules.base import is_key
from veenv.rules.operations import OPERATIONS
from veenv.rules.table import ALL, facts, named

_SIMPLE = frozenset(name for name, of in OPERATIONS.items() if not of.function) - {"round", "rem"}
"""What NumPy does as JAX, without compiling anything, to arrays of one dtype."""

_QUICK = _SIMPLE.union(
    named(form="move"), named(selects=True), named(sums=True), ("convert_element_type", "iota")
)
"""What `results` leaves to NumPy, mostly."""


class Known:
    """The variables of a program whose values are known when tracing.

    Examples:
      >>> from veenv.graph.program import trace
      >>> program = trace(lambda x: x[np.array([2, -1])], (jax.ShapeDtypeStruct((4,), "float32"),))
      >>> gather = next(e for e in program.equations if e.primitive.name == "gather")
      >>> Known(program)(gather.inputs[1]).ravel().tolist()
      [2, 3]
    """

    def __init__(self, program: Program, others: Known | None = None, of: Sequence[Any] = ()):
        self._program, self._others, self._of = program, others, of
        self.makers: dict[Any, tuple[Equation, int]] = {}
        self._found: dict[Any, np.ndarray | None] = {}
        for e in program.equations:
            self.add(e)

    def add(self, e: Equation) -> None:
        """Takes an equation in that the program does not have yet."""
        self.makers.update((v, (e, k)) for k, v in enumerate(e.outputs) if v is not None)

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
        if number < len(self._of):
            assert self._others is not None
            return self._others(self._of[number])
        if variable not in self.makers:
            return held(program.constants[number])
        equation, k = self.makers[variable]
        if any(_compat.bodies(equation.params)) or equation.primitive.name == "dim_as_value":
            return None
        if any(is_key(aval) for aval in (*equation.in_avals, *equation.out_avals)):
            return None
        ins = [self(a) for a in equation.inputs]
        return None if any(x is None for x in ins) else results(equation, ins)[k]

    def quickly(self, atom: Any) -> np.ndarray | None:
        """As a call, of constants and what NumPy makes of them; None where JAX would have to."""
        return self(atom) if isinstance(atom, Literal) or atom in self._quick else None

    @functools.cached_property
    def _quick(self) -> set[Any]:
        """The constants, and the variables that NumPy mostly makes of them."""
        count = self._program.num_inputs
        found = {*range(count, count + len(self._program.constants))}
        for e in self._program.equations:
            if e.primitive.name in _QUICK and found.issuperset(walk.operands(e)):
                found.update(v for v in e.outputs if v is not None)
        return found


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
    if name in _SIMPLE and (name != "div" or aval.dtype in (np.float32, np.float64)):
        with np.errstate(all="ignore"):
            return [np.asarray(OPERATIONS[name].numpy(*ins), aval.dtype)]
    if facts(name).sums:
        return [np.sum(ins[0], tuple(equation.params["axes"]), aval.dtype)]
    if facts(name).selects and len(ins) == 3:
        return [np.where(ins[0], ins[2], ins[1])]
    moved = indexmap.move_elements(name, equation.params, ins, aval.shape)
    if moved is not None:
        return moved
    if name == "convert_element_type" and _converts(ins[0].dtype, aval.dtype):
        return [ins[0].astype(aval.dtype)]
    if name == "iota" and _converts(np.dtype(int), aval.dtype):
        axis = equation.params["dimension"]
        counted = np.arange(aval.shape[axis]).astype(aval.dtype)
        counted = counted.reshape(-1, *(1 for _ in aval.shape[axis + 1 :]))
        return [np.broadcast_to(counted, aval.shape)]
    with jax.ensure_compile_time_eval():
        given = [jax.numpy.asarray(x) for x in ins]
        return [np.asarray(x) for x in _compat.bind(equation.primitive, equation.params, given)]


class Zeros:
    """The elements of a program's variables that are zero whatever its arguments are.

    Examples:
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
        if prod(equation.out_avals[k].shape) > limits.LISTED:
            return None
        given = [self(a) for a in equation.inputs]
        return None if all(x is None for x in given) else self._through(equation, k, given)

    def _through(
        self, equation: Equation, k: int, given: list[np.ndarray | None]
    ) -> np.ndarray | None:
        name, params, shape = equation.primitive.name, equation.params, equation.out_avals[0].shape
        first, avals = given[0], equation.in_avals
        there = [
            np.zeros(a.shape, bool) if x is None else x for x, a in zip(given, avals, strict=True)
        ]
        if facts(name).zero or (facts(name).power(params) or 0) > 0:
            return None if first is None else np.broadcast_to(first, shape)
        if facts(name).multiplies:
            return np.broadcast_to(there[0], shape) | np.broadcast_to(there[1], shape)
        if facts(name).form == "entry" and facts(name).linear is ALL:
            return reduce(np.logical_and, [np.broadcast_to(x, shape) for x in there])
        if facts(name).selects:
            which = self._known.quickly(equation.inputs[0])
            if which is None:
                return reduce(np.logical_and, there[1:])
            return np.choose(np.broadcast_to(which, shape), there[1:])
        if facts(name).sums:
            return np.asarray(there[0].all(axis=tuple(params["axes"])))
        found = indexmap.sources(equation, self._known)
        if found is None:
            return None
        return np.append(np.concatenate([x.reshape(-1) for x in there]), False)[found[k]]


def _some(zero: np.ndarray | None) -> np.ndarray | None:
    return zero if zero is not None and zero.any() else None
