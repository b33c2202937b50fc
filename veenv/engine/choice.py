"""In a trace: an elimination by XLA or as one kernel, or JAX's own mode, as predicted."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from veenv import _compat
from veenv.engine import pins
from veenv.engine.predicted import Predicted, first, nominal, predicted_seconds
from veenv.engine.traced_modes import TracedModes
from veenv.kernel.cpu.spans import size_of
from veenv.kernel.fusing import (
    LITTLE,
    UNASKED,
    Traced,
    kernel_size,
    run_kernel,
    trace_leaves,
    trace_point,
)
from veenv.kernel.parts import part_of
from veenv.kernel.program import ScalarProgram
from veenv.kernel.times import kernel_seconds, least_seconds

Results = tuple[list[Any], list[Callable[..., Any]]]
"""Of the elimination and of those by other orders, of none where only a mode of JAX is wanted;
functions of the same arguments whose results are by JAX's own modes."""
Forms = Callable[[Sequence[Any], dict[str, Any], bool], Results]
"""From positional and keyword arguments, and whether other forms are wanted, to results."""
Run = Callable[..., list[Any]]
"""From the operands of the elimination to the leaves of a result."""
Lifted = Callable[[Sequence[Any]], Any]
"""From the operands of the elimination to a value that another form needs."""
_GAIN = 0.75
"""Share of its time that what takes the place of JAX's own mode must be predicted to take at most;
also of a kernel's against XLA's."""
_KEPT = 1.1
"""How many times the time of another elimination one is predicted to take that is not kept."""


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

    @functools.wraps(jacobian, updated=())
    def chosen(*args: Any, **kwargs: Any) -> Any:
        modes: list[Callable[..., Any]] = []

        def eliminations(*args: Any, **kwargs: Any) -> list[Any]:
            results, modes[:] = forms(args, kwargs, True)
            return results

        leaves, tree = jax.tree.flatten((args, kwargs))
        places = [k for k, x in enumerate(leaves) if _compat.is_traced(x)]
        if not places:
            return jacobian(*args, **kwargs)

        def trace(results: Callable[..., list[Any]]) -> Traced:
            if kernel:
                return trace_point(results, args, kwargs, argnums(args))
            return trace_leaves(results, leaves, tree, places)

        traced = trace(eliminations)
        # Reverse mode of JAX sums over the devices where only some of the values differ among them.
        alike = _compat.vary_alike(traced.operands)
        own = TracedModes(tuple(modes if alike else ()), tuple(leaves), tree, traced.dynamic)
        if not traced.tree.children():
            if (mode := own.fastest()) is not None:
                every = range(len(mode.closed.out_avals))
                return mode.result(_run_mode(mode, every)(*mode.operands))
            traced = trace(lambda *args, **kwargs: forms(args, kwargs, False)[0])
        return _Choice(_separate(traced), own, kept).result(kernel=kernel and alike)

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


class _Choice:
    """The forms of a Jacobian.

    Args:
      eliminations: the first is by the order that was asked for.
      own: JAX's own modes.
      kept: whether that elimination stays if in doubt.
    """

    def __init__(self, eliminations: Sequence[Traced], own: TracedModes, kept: bool):
        self.eliminations = eliminations
        self._own, self._kept = own, kept

    @functools.cached_property
    def forms(self) -> list[tuple[Traced, list[Lifted]]]:
        """By elimination, then by JAX's own modes, each with what it needs beside its arguments."""
        own = ((form, self._lifted(form)) for form in self._own.traced())
        known = [(form, lifted) for form, lifted in own if lifted is not None]
        every = [*((form, []) for form in self.eliminations), *known]
        return [(_without_values(form), lifted) for form, lifted in every]

    def result(self, *, kernel: bool) -> Any:
        """The Jacobian in the form that is predicted to be fastest."""
        first, source = self.eliminations[0], self._source()
        program, quick = self._program(source) if kernel else (None, False)
        if program is None or not program.written():
            run = self._run(self._nominal(), range(len(first.closed.out_avals)))
            return first.result(run(*first.operands))
        made = self.eliminations[source]
        self._forget()
        wanted, precision = program.written(), jnp.result_type(float)

        def instead(batch: int) -> Run | None:
            least = kernel_seconds(program, batch, quick)
            if _GAIN * least_seconds(program, batch) > least:
                return None
            if jnp.result_type(float) != precision:
                return None  # lowered with another width of numbers than traced
            best, times = self._fastest(batch)
            return self._run(best, wanted) if _GAIN * times <= least else None

        return run_kernel(made, program, self._run(source, wanted), instead, quick)

    def _source(self) -> int:
        """The number of the elimination that becomes a kernel: of fewest operations, most likely.

        Beside the default stands another order where it takes fewer; others are the cheapest.
        """
        return len(self.eliminations) - 1 if self._kept else 0

    def _forget(self) -> None:
        """Drops the values of this trace, which are gone when the choice is made."""
        if _is_alone(self.eliminations[0], self._own.leaves):
            self._own = self._own.later()
        else:  # JAX's modes may need values of an outer trace
            _ = self.forms
            self._own = replace(self._own, functions=(), leaves=())
        self.eliminations = list(map(_without_values, self.eliminations))

    def _program(self, source: int) -> tuple[ScalarProgram | None, bool]:
        """The scalar program, where compiling it takes not much longer than XLA's takes.

        Returns:
          The program or None, and whether it has to be compiled quickly for that.
        """
        form = self.eliminations[source]
        traced = (form, *self.eliminations)
        compared = [len(_compat.open_jaxpr(one.closed).eqns) for one in traced]
        little = UNASKED if self._kept else LITTLE
        limit, most = (kernel_size(*compared, little=little, quick=q) for q in (False, True))
        program = form.program_within(most)
        return program, program is not None and size_of(program) > limit

    def _run(self, number: int, wanted: Sequence[int]) -> Run:
        """One of the forms, as a function of the operands of the elimination."""
        if number < len(self.eliminations):
            form = self.eliminations[number]
            return form.xla(wanted, functools.partial(pins.run, form.closed))
        form, lifted = self.forms[number]
        count, fun = len(form.dynamic), _run_mode(form, wanted)
        return lambda *operands: fun(*operands[:count], *(made(operands) for made in lifted))

    def _lifted(self, form: Traced) -> list[Lifted] | None:
        """What the lifted constants of one of JAX's modes are of the operands of the elimination.

        Returns:
          For each of them a function of the operands; None where a value of an outer trace is not
          among them.
        """
        places = {id(x): k for k, x in enumerate(self.eliminations[0].operands)}
        lifted = form.operands[len(form.dynamic) :]
        if any(_compat.is_traced(x) and id(x) not in places for x in lifted):
            return None
        return [
            operator.itemgetter(places[id(x)]) if id(x) in places else (lambda _, x=x: x)
            for x in lifted
        ]

    @functools.cached_property
    def _predicted(self) -> list[Predicted]:
        return [
            predicted_seconds(form, pin=k < len(self.eliminations))
            for k, (form, _) in enumerate(self.forms)
        ]

    def _fastest(self, batch: int) -> tuple[int, float]:
        """The number of the fastest form for XLA at a batch, and its predicted seconds."""
        times = [seconds(batch) for seconds in self._predicted]
        best = self._best(times)
        return best, times[best]

    def _nominal(self) -> int:
        """The number of the fastest form where the batch is not known: over small and large."""
        if len(self.forms) == 1:
            return 0
        return self._best(list(map(nominal, self._predicted)))

    def _best(self, times: Sequence[float]) -> int:
        """The number of the fastest form for XLA by predicted times, in seconds."""
        if self._kept:
            return 0 if times[0] < _KEPT * min(times) else first(times)
        count = len(self.eliminations)
        best = min(range(count), key=times.__getitem__)
        modes = times[count:]
        if not modes or times[best] < _GAIN * min(modes):
            return best
        return count + first(modes)


def _run_mode(mode: Traced, wanted: Sequence[int]) -> Run:
    """One of JAX's own modes, as a function of its operands to some of its leaves."""
    return mode.xla(wanted, mode.closed.run)


def _is_alone(traced: Traced, leaves: Sequence[Any]) -> bool:
    """Whether a function of some leaves depends on no other trace than that of its arguments."""
    others = [x for k, x in enumerate(leaves) if k not in traced.dynamic]
    captured = traced.operands[len(traced.dynamic) :]
    return not any(map(_compat.is_traced, (*others, *captured))) and not any(
        map(_compat.variance, traced.operands)
    )


def _without_values(traced: Traced) -> Traced:
    """A function without the operands that are of a trace, which ends before it is used."""
    kept = (None if _compat.is_traced(x) else x for x in traced.operands)
    return replace(traced, operands=tuple(kept))
