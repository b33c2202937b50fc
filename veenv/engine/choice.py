"""The forms of a Jacobian, and which is predicted to be the fastest at a batch."""

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
from veenv.engine.predicted import NOMINAL, Predicted, least, nominal, predicted_seconds
from veenv.engine.traced_modes import TracedModes
from veenv.kernel.cpu.spans import size_of
from veenv.kernel.fusing import Traced, kernel_size, run_kernel
from veenv.kernel.primitive import Batched, call
from veenv.kernel.program import ScalarProgram
from veenv.kernel.times import kernel_seconds, least_of_modes, least_seconds
from veenv.rules.dtypes import is_key

Run = Callable[..., list[Any]]
"""From the operands of the elimination to the leaves of a result."""
Lifted = Callable[[Sequence[Any]], Any]
"""From the operands of the elimination to a value that another form needs."""
_GAIN = 0.75
"""Share of the time of JAX's own mode that what takes its place is predicted to take at most."""
_OTHERWISE = 0.85
"""Share of the time of the form that is usual which another one is predicted to take at a batch to
be taken there."""
_SELDOM = 0.65
"""Share of the time of an elimination of which JAX's own modes seldom take less, as was measured of
functions that can be a kernel."""
_NEAR = 1.3
"""How many times what any call takes at least a call takes up to which no other is much faster."""


class Choice:
    """The forms of a Jacobian.

    Args:
      eliminations: the first is by the order that was asked for.
      own: JAX's own modes.
      kept: how many times the time of the fastest form the first one is predicted to take at most
        to be kept; None if an elimination has to be certainly faster than JAX's own modes.
    """

    def __init__(self, eliminations: Sequence[Traced], own: TracedModes, kept: float | None):
        self.eliminations = eliminations
        self._own, self._kept = own, kept
        self._operations = own.operations

    @functools.cached_property
    def forms(self) -> list[tuple[Traced, list[Lifted]]]:
        """By elimination, then by JAX's own modes, each with what it needs beside its arguments."""
        own = ((form, self._lifted(form)) for form in self._own.traced())
        known = [(form, lifted) for form, lifted in own if lifted is not None]
        every = [*((form, []) for form in self.eliminations), *known]
        return [(_without_values(form), lifted) for form, lifted in every]

    def result(self, *, kernel: bool, batched: bool) -> Any:
        """The Jacobian in the form that is predicted to be fastest.

        Args:
          kernel: one kernel is a form, too.
          batched: the choice may wait until the batch is known.
        """
        first, source = self.eliminations[0], self._source()
        program, quick = self._program(source) if kernel else (None, False)
        if program is None or not program.written():
            sure = {self._surely(batch) for batch in NOMINAL} if self._own.modes else set()
            if sure == {True}:
                self._own = replace(self._own, modes=())
            waits = batched and self._pure() and (len(sure) == 2 or self._differ())
            run = self._by_batch() if waits else self._run(self._nominal())
            return first.result(run(*first.operands))
        made = self.eliminations[source]
        self._forget()
        wanted, precision = program.written(), jnp.result_type(float)

        def instead(batch: int) -> Run | None:
            least = kernel_seconds(program, batch, quick)
            if least_seconds(program, batch) > least:
                return None
            if jnp.result_type(float) != precision:
                return None  # lowered with another width of numbers than traced
            own = min(seconds(batch) for seconds in self._eliminated)
            slow = max(least_of_modes(self._operations, batch), _SELDOM * own) > least
            best, times = self._fastest(batch, modes=not slow)
            return self._run(best, wanted) if times <= least else None

        return run_kernel(made, program, self._run(source, wanted), instead, quick)

    def _surely(self, batch: int) -> bool:
        """Whether an elimination takes certainly less than JAX's modes: than what they do at least.

        At one point no call takes much less than another one.
        """
        limit = _GAIN * least_of_modes(self._operations, batch)
        if batch == 1:
            limit = max(limit, _NEAR * least_of_modes(0.0, batch))
        return min(seconds(batch) for seconds in self._eliminated) < limit

    def _pure(self) -> bool:
        """Whether all that the forms do is compute, of what can wait for a batch."""
        if any(map(is_key, map(jax.typeof, self.eliminations[0].operands))):
            return False
        return not any(e.effects for form in self.eliminations for e in form.closed.eqns)

    def _differ(self) -> bool:
        """Whether other forms are the fastest at other batches."""
        return len(self.forms) > 1 and len({self._fastest(batch)[0] for batch in NOMINAL}) > 1

    def _by_batch(self) -> Run:
        """The forms as one function, of which the fastest is taken when the batch is known."""
        first = self.eliminations[0]
        inputs, outputs = list(map(jax.typeof, first.operands)), first.closed.out_avals
        self._forget()
        precision = jnp.result_type(float)

        def usual(*operands: Any) -> list[Any]:
            # lowered with another width of numbers than traced, no mode is traced any more
            known = None if jnp.result_type(float) == precision else self._eliminated
            return self._run(self._nominal(known))(*operands)

        def fastest(batch: int) -> Run:
            modes = jnp.result_type(float) == precision and not self._surely(batch)
            return self._run(self._fastest(batch, modes=modes)[0])

        forms = Batched(inputs, outputs, usual, fastest)

        def run(*operands: Any) -> list[Any]:
            found = call(forms, *map(jnp.asarray, operands))
            return list(map(_compat.as_weak_as, outputs, found))

        return run

    def _source(self) -> int:
        """The number of the elimination that becomes a kernel: of fewest operations, most likely.

        Beside reverse order stands another one where it takes fewer; others are the cheapest.
        """
        return len(self.eliminations) - 1 if self._kept else 0

    def _forget(self) -> None:
        """Drops the values of this trace, which are gone when the choice is made."""
        if _is_alone(self.eliminations[0], self._own.leaves):
            self._own = self._own.later()
        else:  # JAX's modes may need values of an outer trace
            _ = self.forms
            self._own = replace(self._own, modes=(), leaves=())
        self.eliminations = list(map(_without_values, self.eliminations))

    def _program(self, source: int) -> tuple[ScalarProgram | None, bool]:
        """The scalar program, where compiling it takes not much longer than XLA's takes.

        Returns:
          The program or None, and whether it has to be compiled quickly for that.
        """
        lengths = [len(_compat.open_jaxpr(one.closed).eqns) for one in self.eliminations]
        limit = kernel_size(lengths[source], min(lengths))
        most = kernel_size(lengths[source], max(lengths), quick=True)
        program = self.eliminations[source].program_within(most)
        return program, program is not None and size_of(program) > limit

    def _run(self, number: int, wanted: Sequence[int] | None = None) -> Run:
        """One of the forms, as a function of the operands of the elimination, to some leaves."""
        if wanted is None:
            wanted = range(len(self.eliminations[0].closed.out_avals))
        if number < len(self.eliminations):
            form = self.eliminations[number]
            return form.xla(wanted, functools.partial(pins.run, form.closed))
        form, lifted = self.forms[number]
        count, fun = len(form.dynamic), form.xla(wanted, form.closed.run)
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
    def _eliminated(self) -> list[Predicted]:
        """The predicted seconds of the eliminations."""
        return [predicted_seconds(_without_values(form), pin=True) for form in self.eliminations]

    @functools.cached_property
    def _predicted(self) -> list[Predicted]:
        """The predicted seconds of all forms."""
        modes = self.forms[len(self.eliminations) :]
        return [*self._eliminated, *(predicted_seconds(form, pin=False) for form, _ in modes)]

    def _fastest(self, batch: int, *, modes: bool = True) -> tuple[int, float]:
        """The number of the fastest form for XLA at a batch, and its predicted seconds.

        Predictions for one batch are less certain than those for two, so that it is the usual form
        unless another one is certainly faster.

        Args:
          batch: number of points.
          modes: JAX's own modes are compared, too.
        """
        predicted = self._predicted if modes else self._eliminated
        times = [seconds(batch) for seconds in predicted]
        best, usual = self._best(times), self._nominal(predicted)
        best = best if times[best] < _OTHERWISE * times[usual] else usual
        return best, times[best]

    def _nominal(self, predicted: Sequence[Predicted] | None = None) -> int:
        """The number of the fastest form where the batch is not known: over small and large."""
        if predicted is None:
            if len(self.forms) == 1:
                return 0
            predicted = self._predicted
        return self._best(list(map(nominal, predicted)))

    def _best(self, times: Sequence[float]) -> int:
        """The number of the fastest form for XLA by predicted times, in seconds."""
        if self._kept is not None:
            return 0 if times[0] < self._kept * min(times) else least(times)
        count = len(self.eliminations)
        best = min(range(count), key=times.__getitem__)
        modes = times[count:]
        if not modes or times[best] < _GAIN * min(modes):
            return best
        return count + least(modes)


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
