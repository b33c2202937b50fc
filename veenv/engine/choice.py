"""``order="auto"``: the elimination by XLA or as one kernel, or JAX's own mode, as predicted."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal

import jax

from veenv import _compat
from veenv.engine import pins
from veenv.graph.linearisation import Linearisation
from veenv.kernel.features import Features, features_of
from veenv.kernel.fusing import (
    Traced,
    kernel_size,
    run_kernel,
    trace_leaves,
    trace_point,
)
from veenv.kernel.parts import Part, part_of
from veenv.kernel.program import DTYPES, ScalarProgram
from veenv.kernel.times import kernel_seconds, seconds
from veenv.kernel.unrolling import FUSABLE

Others = Literal["none", "all", "beside a kernel"]
"""Which forms are wanted besides the elimination: none, or all that can take its place; none beside
a small kernel."""
Results = tuple[list[Any], list[Any]]
"""Of the elimination and of those by other orders; of JAX's own modes."""
Forms = Callable[[Sequence[Any], dict[str, Any], Others], Results]
"""From positional and keyword arguments to results."""
Predicted = Callable[[int], float]
"""From a number of points to the seconds that a program is predicted to take."""
_NOMINAL = (1, 256)
"""Batches for which a program is chosen that does not know its own."""
_GAIN = 0.75
"""Share of its time that what takes the place of JAX's own mode must be predicted to take at most;
also of a kernel's against XLA's."""
_KEPT = 1.1
"""How many times the time of another elimination one is predicted to take that is not kept."""
_FEW = 800
"""Operations and entries of a kernel that takes about as long as XLA takes to be called."""
_ALIKE = 0.95
"""Share from which on two predicted times say nothing of which is the shorter."""


def choosing(
    jacobian: Callable[..., Any],
    forms: Forms,
    argnums: Callable[[Sequence[Any]], Sequence[int]],
    *,
    kernel: bool,
    kept: bool = False,
) -> Callable[..., Any]:
    """A Jacobian in the form that is predicted to be fastest.

    Args:
      jacobian: by elimination, called where nothing is compiled.
      forms: all results at once, every value that might be expensive pinned.
      argnums: of the positional arguments those that are differentiated by.
      kernel: one kernel is a form, too.
      kept: the elimination stays unless another form is certainly faster; otherwise it has to be
        certainly faster than JAX's own modes.

    Returns:
      A function as `jacobian`.
    """
    others: Others = "beside a kernel" if kernel else "all"

    def every(*args: Any, **kwargs: Any) -> Results:
        return forms(args, kwargs, others)

    @functools.wraps(jacobian, updated=())
    def chosen(*args: Any, **kwargs: Any) -> Any:
        if kernel:
            traced = trace_point(every, args, kwargs, argnums(args))
        else:
            leaves, tree = jax.tree.flatten((args, kwargs))
            places = [k for k, x in enumerate(leaves) if _compat.is_traced(x)]
            if not places:
                return jacobian(*args, **kwargs)
            traced = trace_leaves(every, leaves, tree, places)
        eliminations = len(traced.tree.children()[0].children())
        return _Choice(_separate(traced), eliminations, kept).result(kernel=kernel)

    return chosen


def is_small_kernel(lin: Linearisation, ids: Sequence[int]) -> bool:
    """Whether a function is one kernel that takes no longer than XLA takes to be called.

    Nothing is much faster at one point then, nor as fast at many. JAX's own modes, of which tracing
    takes about as long as the rest, need not be looked at.

    Args:
      lin: the function.
      ids: vertex ids in elimination order.
    """
    program = lin.program
    if jax.default_backend() != "cpu":
        return False
    if any(equation.primitive.name not in FUSABLE for equation in program.equations):
        return False
    if any(aval.dtype.name not in DTYPES for aval in program.avals):
        return False
    outputs = sum(prod(aval.shape) for aval in program.out_avals)
    inputs = sum(prod(aval.shape) for aval in program.avals[: program.num_inputs])
    own = sum(prod(aval.shape) for aval in program.avals)
    return own + inputs * outputs + lin.graph.cost(ids, "operations") <= _FEW


def _separate(traced: Traced) -> list[Traced]:
    """The forms of a function that was traced with all of them."""
    found, start = [], 0
    for tree in (tree for group in traced.tree.children() for tree in group.children()):
        end = start + tree.num_leaves
        numbers = [k for k in range(start, end) if k not in traced.static]
        before = [sum(s < k for s in traced.static) for k in numbers]
        part = part_of(traced.closed, [k - b for k, b in zip(numbers, before, strict=True)])
        part = part.without(traced.lifted)
        static = {k - start: x for k, x in traced.static.items() if start <= k < end}
        found.append(replace(traced, closed=part, tree=tree, static=static))
        start = end
    return found


@dataclass(frozen=True)
class _Choice:
    """The forms of a Jacobian.

    Attributes:
      forms: by elimination, then JAX's own modes.
      eliminations: how many are eliminations; the first is by the order that was asked for.
      kept: whether that one stays if in doubt.
    """

    forms: Sequence[Traced]
    eliminations: int
    kept: bool

    def result(self, *, kernel: bool) -> Any:
        """The Jacobian in the form that is predicted to be fastest."""
        if not kernel and len(self.forms) == 1:
            return self._emitted(0)
        predicted = self._predicted()
        program = self._program() if kernel else None
        if program is None or not program.written():
            return self._emitted(self._nominal(predicted))
        wanted = program.written()
        forms = [t.xla(wanted, run) for t, run in self._runs()]

        def instead(batch: int) -> Callable[..., Any] | None:
            times = [seconds(batch) for seconds in predicted]
            best = self._fastest(times)
            return forms[best] if _GAIN * times[best] <= kernel_seconds(program, batch) else None

        return run_kernel(self.forms[0], program, forms[0], instead)

    def _emitted(self, number: int) -> Any:
        """The Jacobian in one of the forms."""
        traced, run = self._runs()[number]
        return traced.result(traced.xla(range(len(traced.closed.out_avals)), run)(*traced.operands))

    def _runs(self) -> list[tuple[Traced, Any]]:
        return [
            (form, functools.partial(pins.run, form.closed) if pin else form.closed.run)
            for form, pin in zip(self.forms, self._pinned(), strict=True)
        ]

    def _pinned(self) -> list[bool]:
        """Which forms have pins to be looked through."""
        return [k < self.eliminations for k in range(len(self.forms))]

    def _predicted(self) -> list[Predicted]:
        return [
            _predicted_seconds(form, pin)
            for form, pin in zip(self.forms, self._pinned(), strict=True)
        ]

    def _program(self) -> ScalarProgram | None:
        """The scalar program, where compiling it takes not much longer than XLA's takes."""
        limit = kernel_size(*(form.closed for form in self.forms))
        return self.forms[0].program_within(limit)

    def _nominal(self, predicted: Sequence[Predicted]) -> int:
        """The number of the fastest form where the batch is not known: over small and large."""
        return self._fastest([prod(seconds(n) for n in _NOMINAL) ** 0.5 for seconds in predicted])

    def _fastest(self, times: Sequence[float]) -> int:
        """The number of the fastest form for XLA by predicted times, in seconds."""
        if self.kept:
            return 0 if times[0] < _KEPT * min(times) else _first(times)
        best = min(range(self.eliminations), key=times.__getitem__)
        modes = times[self.eliminations :]
        if not modes or times[best] < _GAIN * min(modes):
            return best
        return self.eliminations + _first(modes)


def _first(times: Sequence[float]) -> int:
    """The number of the first that is about the least."""
    return next(k for k, seconds in enumerate(times) if _ALIKE * seconds <= min(times))


def _predicted_seconds(form: Traced, pin: bool) -> Predicted:
    """The predicted seconds of a form at a batch, on which depends what is stored."""
    part: Part = form.closed
    points = pins.stored_points(part, form.lifted) if pin else {}

    @functools.cache
    def features(dropped: frozenset[Any]) -> Features:
        return features_of(part, dropped)

    def at(batch: int) -> float:
        dropped = frozenset(v for v, least in points.items() if least > batch)
        return seconds(features(dropped), batch)

    return at
