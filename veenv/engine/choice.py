"""``order="auto"``: the elimination by XLA or as one kernel, or JAX's own mode, as predicted."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from veenv import _compat
from veenv.engine import pins
from veenv.kernel.features import Features, features_of
from veenv.kernel.fusing import (
    Traced,
    kernel_size,
    run_kernel,
    size_of,
    trace_leaves,
    trace_point,
)
from veenv.kernel.parts import Part, part_of
from veenv.kernel.program import CannotFuseError, ScalarProgram
from veenv.kernel.times import kernel_seconds, seconds

Forms = Callable[[Sequence[Any], dict[str, Any], bool], list[Any]]
"""From positional and keyword arguments, and whether JAX's own modes are wanted too, to results: of
the elimination and, where they can take its place, of those modes."""
_NOMINAL = (1, 256)
"""Batches for which a program is chosen that does not know its own."""
_GAIN = 0.75
"""Share of its time that what takes the place of JAX's own mode must be predicted to take at most;
also of a kernel's against XLA's."""


def choosing(
    jacobian: Callable[..., Any],
    forms: Forms,
    argnums: Callable[[Sequence[Any]], Sequence[int]],
    *,
    kernel: bool,
) -> Callable[..., Any]:
    """A Jacobian in the form that is predicted to be fastest.

    Args:
      jacobian: by elimination, called where nothing is compiled.
      forms: all results at once, every value that might be expensive pinned.
      argnums: of the positional arguments those that are differentiated by.
      kernel: one kernel is a form, too.

    Returns:
      A function as `jacobian`.
    """

    def every(*args: Any, **kwargs: Any) -> list[Any]:
        return forms(args, kwargs, True)

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
        return _Choice(_separate(traced)).result(kernel=kernel)

    return chosen


def _separate(traced: Traced) -> list[Traced]:
    """The forms of a function that was traced with all of them."""
    found, start = [], 0
    for tree in traced.tree.children():
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
      forms: by elimination, then by those of JAX's own modes that can take its place.
    """

    forms: Sequence[Traced]

    def result(self, *, kernel: bool) -> Any:
        """The Jacobian in the form that is predicted to be fastest."""
        predicted = self._features()
        program = self._program() if kernel else None
        if program is not None and program.written():
            wanted = program.written()
            forms = [t.xla(wanted, run) for t, run in self._runs()]
            times = functools.partial(_fastest, predicted, program)

            def instead(batch: int) -> Callable[..., Any] | None:
                best = times(batch)
                return None if best is None else forms[best]

            return run_kernel(self.forms[0], program, forms[0], instead)
        best = _nominal(predicted)
        traced, run = self._runs()[best]
        return traced.result(traced.xla(range(len(traced.closed.out_avals)), run)(*traced.operands))

    def _runs(self) -> list[tuple[Traced, Any]]:
        own, *others = self.forms
        with_pins = functools.partial(pins.run, own.closed)
        return [(own, with_pins), *((form, form.closed.run) for form in others)]

    def _features(self) -> list[Features]:
        own, *others = self.forms
        part: Part = own.closed
        first = features_of(part, pins.dropped(part, own.lifted))
        return [first, *(features_of(form.closed) for form in others)]

    def _program(self) -> ScalarProgram | None:
        """The scalar program, where compiling it takes not much longer than XLA's takes."""
        if jax.default_backend() != "cpu":
            return None
        limit = kernel_size(*(form.closed for form in self.forms))
        try:
            program = self.forms[0].program(limit)
        except CannotFuseError:
            return None
        return program if size_of(program) <= limit else None


def _fastest(predicted: Sequence[Features], program: ScalarProgram, batch: int) -> int | None:
    """The number of the fastest form for XLA at a batch; None: one kernel is faster."""
    best = _chosen([seconds(f, batch) for f in predicted])
    limit = _GAIN * seconds(predicted[best], batch)
    return None if kernel_seconds(program, batch) < limit else best


def _nominal(predicted: Sequence[Features]) -> int:
    """The number of the fastest form where the batch is not known: over small and large ones."""
    times = [[seconds(f, batch) for batch in _NOMINAL] for f in predicted]
    return _chosen([functools.reduce(lambda a, b: a * b, row) ** 0.5 for row in times])


def _chosen(times: Sequence[float]) -> int:
    """JAX's faster own mode, unless the elimination, the first, is certainly faster than that."""
    own, *modes = times
    if not modes or own < _GAIN * min(modes):
        return 0
    return max(k for k, seconds in enumerate(times) if k and seconds == min(modes))
