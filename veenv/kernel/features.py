"""What of a program takes time: counts of a jaxpr that go with it, from its equations alone.

The compiler puts elementwise operations into loops that end where a value is stored: for an output,
for a primitive that is no loop (a contraction, a decomposition, a `scan`), for a barrier.  What
several such loops need, each of them computes (`veenv.kernel.repeats`).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Any, NamedTuple

import numpy as np
from jax.extend import core

from veenv import _compat
from veenv.kernel.contractions import contracted, is_turned, matrices_of, narrow
from veenv.kernel.joins import Joins
from veenv.kernel.loops import called_from, varying
from veenv.kernel.parts import needed_equations
from veenv.kernel.repeats import REPEATED, find_repeats
from veenv.linear.barrier import EXPENSIVE
from veenv.linear.batch_barrier import BARRIERS
from veenv.rules.dtypes import is_complex

NAMES = (
    "calls", "loops", "inner", "steps", "inlined", "turns", "simple", "joined", "functions",
    "repeated", "reduced", "stored", "flops", "turned", "narrow", "contractions", "convolved",
    "solvers", "decomposed", "pieces", "moved",
)  # fmt: skip
"""The features: one for each call; loops and other programs that are started, and those inside of
`scan`s; steps of `scan`s; the same two of `scan`s that are one function (`veenv.kernel.loops`);
simple operations of elementwise loops, entries that these pad or join (branches), functions, and
functions that the compiler repeats (what is repeated counts as often); entries that are summed or
compared away; entries that are written; operations of contractions, those of contractions that are
not of rows by columns and those by few columns (once more), and the matrices that are multiplied;
operations of
convolutions; calls of decompositions and triangular solves, the entries they go through, and the
matrices they are of; entries that are gathered, scattered, sorted."""
_INDEX = {name: k for k, name in enumerate(NAMES)}
_FREE = frozenset(
    "broadcast_in_dim reshape transpose squeeze rev copy iota expand_dims stop_gradient "
    "convert_element_type slice split unstack".split()
)
_ELEMENTWISE = frozenset(
    "add add_any sub mul neg max min abs sign select_n eq ne lt le gt ge and or not xor floor ceil "
    "round clamp integer_pow square one_minus_square pad is_finite real imag concatenate stack "
    "tile rem".split()
)
_FUSED = EXPENSIVE | _FREE | _ELEMENTWISE
_DECOMPOSED = frozenset("cholesky triangular_solve lu eigh eig svd qr householder_product".split())
_CALLS = frozenset("custom_jvp_call custom_vjp_call custom_vjp_call_jaxpr custom_lin".split())
_CHANGED = {
    "dynamic_update_slice": 1,
    **dict.fromkeys("scatter scatter-add scatter-max scatter-min scatter-mul".split(), 2),
}
"""Which operand of what changes an array is put there."""
_JOINED = frozenset(["pad", "concatenate", "stack"])
WEIGHTS = {"integer_pow": 2.0, "div": 0.2, "sqrt": 0.2, "rsqrt": 0.2}
"""What operations are of a simple one, and divisions and roots of a function."""
_OF_COMPLEX = 4.0
"""What an operation of complex numbers is of one of real numbers."""
_UNKNOWN_STEPS = 20
"""Steps that a loop of unknown length counts as."""


@dataclass(frozen=True, eq=False)
class Features:
    """The features of a program of one point, for any batch.

    Attributes:
      counts: float64 [2, len(NAMES)]: what does not depend on the batch, and what each point adds.
      loops: float64 [n, 3]: of each `scan` the least batch at which it is not one function, the
        loops and programs that its steps start, and its steps.
    """

    counts: np.ndarray
    loops: np.ndarray

    def at(self, batch: int) -> np.ndarray:
        """The features of a whole batch: float64 [len(NAMES)]."""
        total = self.counts[0] + batch * self.counts[1]
        called = batch >= self.loops[:, 0]
        for names, those in (("inner", "steps"), called), (("inlined", "turns"), ~called):
            total[[_INDEX[name] for name in names]] += self.loops[those, 1:].sum(0)
        return total


def features_of(jaxpr: Any, dropped: Container[Any] = (), points: float = inf) -> Features:
    """The features of a jaxpr of one point, for a batch over all of its arguments.

    Args:
      jaxpr: a jaxpr, open or closed, or a part of one.
      dropped: results of barriers that are left out.
      points: the number of points, which says what barriers of batches there are; all by default.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> found = features_of(jax.make_jaxpr(lambda x: jnp.exp(x) * x)(jnp.ones(3)))
      >>> float(dict(zip(NAMES, found.at(batch=2)))["functions"])
      6.0
    """
    total = np.zeros((2, len(NAMES)))
    total[0, _INDEX["calls"]] = 1.0
    opened = _compat.open_jaxpr(jaxpr)
    walk = _Walk(total, dropped, points)
    walk.run(opened, [True] * len(opened.invars), 1.0)
    return Features(total, np.array(walk.loops, float).reshape(-1, 3))


@dataclass(eq=False)
class _Value:
    """A variable: its number of entries, whether a batch runs over it, the loops that make it."""

    size: int
    varies: bool
    stored: bool = False
    computed: float = 0.0


@dataclass(eq=False)
class _Loop:
    """A `scan` or `while`: the least batch at which it is not one function, and what it starts."""

    called_from: float = inf
    started: float = 0.0


class _Step(NamedTuple):
    """An equation, calls inlined."""

    name: str
    equation: Any
    ins: tuple[_Value, ...]
    outs: tuple[_Value, ...]


class _Walk:
    """Adds up what the equations of a jaxpr come to, those inside of equations included."""

    def __init__(self, total: np.ndarray, dropped: Container[Any], points: float):
        self._total, self._dropped, self._points = total, dropped, points
        self._joins: Joins[_Value] = Joins()
        self._inside: list[_Loop] = []
        self.loops: list[tuple[float, float, float]] = []

    def run(self, jaxpr: Any, varies: Sequence[bool], times: float) -> list[bool]:
        """Adds a jaxpr that runs so many times; says which of its results vary."""
        ins = [_Value(_size(v), flag) for v, flag in zip(jaxpr.invars, varies, strict=True)]
        steps: list[_Step] = []
        outs = self._flatten(jaxpr, ins, steps)
        for value in outs:
            value.stored = True
        for step in steps:
            if step.name not in _FUSED:
                for value in (*step.ins, *step.outs):
                    value.stored = True
        find_repeats(steps, _FUSED)
        for step in steps:
            if self._inside:
                least = called_from(step.equation, [v.varies for v in step.ins])
                self._inside[-1].called_from = min(self._inside[-1].called_from, least)
            if step.name in _FUSED:
                self._elementwise(step, times)
            elif step.name not in BARRIERS:
                self._alone(step, times)
        for value in {id(v): v for step in steps for v in step.outs if v.stored}.values():
            self._add("stored", value.size * times, value.varies)
        return [value.varies for value in outs]

    def _flatten(self, jaxpr: Any, ins: Sequence[_Value], steps: list[_Step]) -> list[_Value]:
        """Appends the equations that the results need, and gives the results."""
        values: dict[Any, _Value] = dict(zip(jaxpr.invars, ins, strict=True))
        values.update((v, _Value(_size(v), False)) for v in jaxpr.constvars)

        def read(atom: Any) -> _Value:
            return _Value(1, False) if isinstance(atom, core.Literal) else values[atom]

        for equation in needed_equations(jaxpr.eqns, jaxpr.outvars):
            name, operands = equation.primitive.name, tuple(map(read, equation.invars))
            body = _compat.inlinable(equation)
            if body is None and name in _CALLS:
                body = next(_compat.bodies(equation.params), None)
            opened = None if body is None else _compat.open_jaxpr(body)
            if name in BARRIERS and self._is_dropped(equation):
                results = operands
            elif opened is not None and len(opened.invars) == len(operands):
                results = self._flatten(opened, operands, steps)
            else:
                results = self._results(equation, operands, steps)
            values.update(zip(equation.outvars, results, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def _is_dropped(self, barrier: Any) -> bool:
        return barrier.outvars[0] in self._dropped or barrier.params.get("points", 1) > self._points

    def _results(
        self, equation: Any, operands: tuple[_Value, ...], steps: list[_Step]
    ) -> Sequence[_Value]:
        """The results of an equation, which is appended unless it only reads what was joined."""
        name, params, atoms = equation.primitive.name, equation.params, equation.invars
        shape = getattr(atoms[0].aval, "shape", ()) if atoms else ()
        parts = self._joins.read(name, params, operands[0], shape) if operands else None
        if parts is not None:
            return parts
        varies = any(v.varies for v in operands)
        results = tuple(_Value(_size(v), varies) for v in equation.outvars)
        if name.startswith("reduce_") and results[0].size == operands[0].size:
            name = "reshape"  # a sum over axes of one entry
        steps.append(_Step(name, equation, operands, results))
        if results:
            self._joins.add(name, params, operands, [a.aval.shape for a in atoms], results[0])
        return results

    def _add(self, name: str, amount: float, varies: bool) -> None:
        self._total[int(varies), _INDEX[name]] += amount

    def _start(self, times: float) -> None:
        if self._inside:
            self._inside[-1].started += times
        else:
            self._total[0, _INDEX["loops"]] += times

    def _elementwise(self, step: _Step, times: float) -> None:
        out, name = step.outs[0], step.name
        if any(v.stored for v in step.outs):
            self._start(times)
        if name in _FREE:
            return
        weight = WEIGHTS.get(name, 1.0) * (_OF_COMPLEX if _is_complex(step.equation) else 1.0)
        self._add(_kind(name), weight * out.computed * times, out.varies)

    def _alone(self, step: _Step, times: float) -> None:
        name, varies = step.name, any(v.varies for v in step.outs)
        written = sum(v.size for v in step.outs)
        self._start(times)
        if name == "conv_general_dilated":
            self._add("convolved", 2.0 * written * contracted(step.equation) * times, varies)
        elif name == "dot_general":
            flags = [v.varies for v in step.ins]
            flops = 2.0 * written * contracted(step.equation) * times
            self._add("flops", flops, varies)
            self._add("turned", flops if is_turned(step.equation) else 0.0, varies)
            few, each = narrow(step.equation, flags)
            self._add("narrow", few * times, each)
            matrices, each = matrices_of(step.equation, flags)
            self._add("contractions", matrices * times, each)
        elif name in _DECOMPOSED:
            shape = step.equation.invars[0].aval.shape
            self._add("decomposed", (step.ins[0].size * shape[-1] + written) * times, varies)
            self._total[0, _INDEX["solvers"]] += times
            self._add("pieces", prod(shape[:-2]) * times, varies)
        elif name in ("scan", "while", "cond"):
            self._loop(step, times)
        elif name.startswith("reduce_") and "window" not in name:
            self._add("reduced", step.ins[0].size * times, varies)
        else:
            changed = _CHANGED.get(name)  # where an array is changed, as much as is put there
            amount = written if changed is None else step.ins[changed].size
            self._add("moved", amount * times, varies)

    def _loop(self, step: _Step, times: float) -> None:
        params, varies = step.equation.params, any(v.varies for v in step.outs)
        length = times * (1 if step.name == "cond" else params.get("length", _UNKNOWN_STEPS))
        if step.name == "cond":
            for body in _compat.bodies(params):
                self.run(body, [varies] * len(body.invars), length)
            return
        self._inside.append(_Loop())
        for body in _compat.bodies(params):
            flags = varying(step.equation, body, [v.varies for v in step.ins])
            self.run(body, flags, length)
        loop = self._inside.pop()
        self.loops.append((loop.called_from, loop.started, length))
        if self._inside:
            self._inside[-1].called_from = min(self._inside[-1].called_from, loop.called_from)


def _kind(name: str) -> str:
    """Which feature an elementwise operation adds to."""
    if name in REPEATED:
        return "repeated"
    if name in EXPENSIVE:
        return "functions"
    return "joined" if name in _JOINED else "simple"


def _size(variable: Any) -> int:
    return prod(getattr(variable.aval, "shape", ()))


def _is_complex(equation: Any) -> bool:
    return any(is_complex(v.aval) for v in (*equation.invars, *equation.outvars))
