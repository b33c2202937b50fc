"""Where JAX's own modes give what an elimination gives: no product of a zero and infinity.

An elimination leaves out what is known to be zero. A mode multiplies by it: reverse mode the zeros
that a mask lets through, forward mode the zeros of its seeds. That is the same as long as what is
multiplied is finite. What is looked at are finite values of the function; where a value itself is
infinite or NaN the Jacobian is, too.
"""

from __future__ import annotations

import functools
from math import inf
from typing import Any

import numpy as np

from veenv.engine.known import Known, is_quick
from veenv.graph.linearisation import Linearisation
from veenv.graph.program import Equation, Literal, Program
from veenv.rules import walk
from veenv.rules.table import facts

_REAL = "fiu"
"""Kinds of NumPy's dtypes that are ordered."""
_APART = 1e-10
"""The least bound of a divisor whose powers do not overflow."""
_LARGEST_POWER = 3
"""Exponents up to which a power counts as a product."""


def has_infinite_partials(lin: Linearisation, bounds: Bounds) -> bool:
    """Whether partials can be infinite where the function is finite, as a root's at zero.

    A root of what is certainly positive, as ``x**2 + 1``, has none, nor has a power with a known
    exponent that is no root.

    Args:
      lin: the function.
      bounds: of its program.
    """
    pairs = zip(lin.program.equations, lin.elementals, strict=True)
    if any(used and bounds.is_root(equation) for equation, used in pairs):
        return True
    inner = [c.linearisation for c in lin.customs if c is not None]
    return any(has_infinite_partials(one, Bounds(one.program)) for one in inner)


def shut_out(lin: Linearisation, bounds: Bounds, *, reverse: bool) -> bool:
    """Whether a mode might multiply by infinity the zeros that a mask makes of its numbers.

    Reverse mode has them in what a mask shuts out: above it everything must be total. Forward mode
    chooses between tangents as a select does between values, and has zeros below it: there no
    partial may be infinite where values are finite. What custom rules compute is not looked into
    any closer: all of it has to be total.

    Args:
      lin: the function.
      bounds: of its program.
      reverse: of reverse mode; else of forward mode.
    """
    infinite, computed, tame = set[int](), False, True
    for number, used in enumerate(lin.elementals):
        if not used:
            continue
        equation, custom = lin.program.equations[number], lin.customs[number]
        name, total = equation.primitive.name, _is_total(lin, number, bounds)
        masked = [e for e in used if e.partial.mask is not None]
        if custom is not None and _masks(custom.linearisation):
            masked = list(used)
            if not total:
                return True
        pole = facts(name).partials == "poles" or (name == "pow" and not bounds.is_root(equation))
        tame = tame and (total or (pole and not bounds.is_almost_zero(equation)))
        if not reverse and name == "select_n":
            computed = computed or bool(masked and bounds.value(equation.inputs[0]) is None)
            masked = []
        if any(e.source in infinite for e in masked):
            return True
        if facts(name).partials != "defined":
            infinite.update(e.target for e in used if not total or e.source in infinite)
    return computed and not tame


def _masks(lin: Linearisation) -> bool:
    """Whether there is a mask anywhere in a function."""
    own = any(e.partial.mask is not None for used in lin.elementals for e in used)
    return own or any(_masks(c.linearisation) for c in lin.customs if c is not None)


def _is_total(lin: Linearisation, number: int, bounds: Bounds) -> bool:
    """Whether an equation has finite values and partials at all finite operands."""
    equation, custom = lin.program.equations[number], lin.customs[number]
    if custom is not None:  # what depends on the operands alone is a coefficient of the rule
        return all(map(_is_total_anywhere, custom.linearisation.program.equations))
    name, first = equation.primitive.name, equation.inputs[0] if equation.inputs else None
    if name == "div":
        return bounds.is_apart_from_zero(equation.inputs[1])
    if name in ("sqrt", "cbrt", "rsqrt", "pow", "log"):
        return bounds.lower(first) >= _APART
    return _is_total_anywhere(equation)


def _is_total_anywhere(equation: Any) -> bool:
    """As `_is_total`, of an equation of a program or a jaxpr, whatever its operands are."""
    return all(map(_is_total_itself, (equation, *walk.inside(equation.params))))


def _is_total_itself(equation: Any) -> bool:
    name, params = equation.primitive.name, equation.params
    if name == "integer_pow":
        return bool(0 <= params["y"] <= _LARGEST_POWER)
    if name == "gather":  # out of bounds it may fill with NaN
        return "FILL" not in str(params["mode"]).upper()
    return facts(name).partials == "finite"


class Bounds:
    """Lower bounds of the variables of a program, where they are easily known."""

    def __init__(self, program: Program):
        self._program = program
        self._known = Known(program)
        self._lowers: dict[Any, float] | None = None

    def is_root(self, equation: Equation) -> bool:
        """Whether an equation may have infinite partials where its result is finite."""
        name = equation.primitive.name
        partials = facts(name).partials
        if partials not in ("root", "end"):
            return False
        if name == "pow":
            exponent = self.value(equation.inputs[1])
            if exponent is not None and bool(((exponent <= 0) | (exponent >= 1)).all()):
                return False
        return partials == "end" or self.lower(equation.inputs[0]) < self._tiny(equation)

    def is_apart_from_zero(self, atom: Any) -> bool:
        """Whether no entry of a variable or `Literal` is zero."""
        value = self.value(atom)
        apart = value is not None and bool((np.abs(value) >= _APART).all())
        return apart or self.lower(atom) >= _APART

    def is_almost_zero(self, equation: Equation) -> bool:
        """Whether what is divided by, or a power is of, is kept from zero by a tiny number only."""
        place = 1 if equation.primitive.name == "div" else 0
        return 0 < self.lower(equation.inputs[place]) < _APART

    def _tiny(self, equation: Equation) -> float:
        """The least positive number that is no denormal: processors may take those for zero."""
        return float(np.finfo(equation.out_avals[0].dtype).tiny)

    def lower(self, atom: Any) -> float:
        """What no entry of a variable or `Literal` is less than; minus infinity if unknown."""
        value = self.value(atom)
        if value is None:
            return -inf if isinstance(atom, Literal) else self._all_lowers().get(atom, -inf)
        if not value.size or value.dtype.kind not in _REAL or np.isnan(value).any():
            return -inf
        return float(value.min())

    def value(self, atom: Any) -> np.ndarray | None:
        """What is known of constants, and of what NumPy makes of them."""
        if isinstance(atom, Literal) or atom in self._constants:
            return self._known(atom)
        return None

    @functools.cached_property
    def _constants(self) -> set[Any]:
        """The variables whose values are known without compiling anything."""
        program = self._program
        count = program.num_inputs
        found = {*range(count, count + len(program.constants))}
        for equation in program.equations:
            if is_quick(equation) and all(
                isinstance(a, Literal) or a in found for a in equation.inputs
            ):
                found.update(v for v in equation.outputs if v is not None)
        return found

    def _all_lowers(self) -> dict[Any, float]:
        """The lower bounds of what equations make, where there are any."""
        if self._lowers is None:
            self._lowers = {}  # `_of` reads in it what comes first
            for equation in self._program.equations:
                bound = self._of(equation)
                if bound > -inf:
                    self._lowers.update((v, bound) for v in equation.outputs if v is not None)
        return self._lowers

    def _of(self, equation: Equation) -> float:
        name, ins = equation.primitive.name, equation.inputs
        bound = facts(name).bound
        if name == "sqrt":
            return max(0.0, self.lower(ins[0])) ** 0.5
        if bound == "positive" or (name == "integer_pow" and equation.params["y"] % 2 == 0):
            return 0.0
        if name == "mul" and ins[0] == ins[1] and not isinstance(ins[0], Literal):
            return 0.0
        if bound is None:
            return -inf
        if name == "select_n":
            chosen = self.value(ins[0])
            cases = range(len(ins) - 1) if chosen is None else np.unique(chosen)
            return min(self.lower(ins[1 + int(k)]) for k in cases)
        bounds = [self.lower(a) for a in ins]
        if bound == "entries":
            return bounds[0]
        if name in ("mul", "div", "reduce_sum"):
            return 0.0 if min(bounds) >= 0 else -inf
        if name == "add":  # sums are rounded
            return max(bounds) if min(bounds) >= 0 else -inf
        return max(bounds) if name == "max" else min(bounds)
