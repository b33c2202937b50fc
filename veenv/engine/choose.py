"""In a trace: the form of a Jacobian with the least price at the batch.

Forms are eliminations in one order or several, JAX's own modes, and one of the eliminations as one
kernel.  All give the same; `veenv.kernel.price` predicts the seconds that each takes.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf, sqrt
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from veenv import _compat
from veenv.engine import pins
from veenv.engine.pins import Part, part_of
from veenv.kernel.fusing import Traced, run_kernel, trace_leaves, trace_point
from veenv.kernel.optional import attempt
from veenv.kernel.price import (
    counts_of,
    kernel_seconds,
    kernel_size,
    least_of_modes,
    least_seconds,
    seconds,
)
from veenv.kernel.primitive import Batched, call
from veenv.kernel.program import ScalarProgram
from veenv.rules import walk
from veenv.rules.base import is_key
from veenv.rules.passes import REFUSALS

Run = Callable[..., list[Any]]
"""From the operands of the elimination to the leaves of a result."""
_TYPICAL = 1, 256  # points of a small and a large batch, where the batch is not known
_SELDOM = 0.65  # of an elimination's time: JAX's modes seldom take less, and are not traced for it
_LACKING = (*REFUSALS, jax.errors.UnexpectedTracerError)
"""What is raised where JAX has no such mode, or it needs a value of a trace that has ended."""


class JaxMode(NamedTuple):
    """One of JAX's own modes of a function."""

    run: Callable[..., Any]  # of the function's arguments
    operations: float = 0.0  # multiplications that it does at a point, at least as far as is known


class NotTracedError(Exception):
    """A rule closes over values of the function: it is not traced and run again, but run."""


Results = tuple[list[Any], list[JaxMode]]
"""Of the elimination and of those by other orders, of none where only a mode of JAX is wanted;
JAX's own modes, whose results are the same."""
Forms = Callable[[Sequence[Any], dict[str, Any], bool], Results]
"""From positional and keyword arguments, and whether other forms are wanted, to results."""


def choosing(
    jacobian: Callable[..., Any],
    forms: Forms,
    argnums: Callable[[Sequence[Any]], Sequence[int]],
    *,
    kernel: bool,
    source: int = 0,
) -> Callable[..., Any]:
    """A Jacobian in the form of the least price.

    Args:
      jacobian: by elimination, called where nothing is compiled.
      forms: all results at once, every value that might be expensive pinned.
      argnums: of the positional arguments those that are differentiated by.
      kernel: one kernel is a form, too.
      source: the number of the elimination that becomes the kernel, of the fewest operations.
    """

    @functools.wraps(jacobian, updated=())
    def chosen(*args: Any, **kwargs: Any) -> Any:
        modes: list[JaxMode] = []
        raised: list[Exception] = []  # where the function is traced and eliminated

        @functools.wraps(jacobian, updated=())
        def eliminations(*args: Any, **kwargs: Any) -> list[Any]:
            with _noted(raised):
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

        def best() -> Any:
            traced = trace(eliminations)
            # Reverse mode of JAX sums over the devices where only some of the values differ.
            alike = _compat.vary_alike(traced.operands)
            own = _Modes(tuple(modes if alike else ()), tuple(leaves), tree, traced.dynamic)
            if not traced.tree.children():
                first, others = own.split()
                if first:
                    return Choice(first, others).result(kernel=kernel, waits=kernel)
                traced = trace(lambda *args, **kwargs: forms(args, kwargs, False)[0])
            choice = Choice(_separate(traced), own, source)
            return choice.result(kernel=kernel and alike, waits=kernel and alike)

        try:
            return attempt(best, lambda: jacobian(*args, **kwargs), lambda error: error in raised)
        except NotTracedError:
            return jacobian(*args, **kwargs)

    return chosen


@contextmanager
def _noted(raised: list[Exception]) -> Iterator[None]:
    """Adds what is raised to a list."""
    try:
        yield
    except Exception as error:
        raised.append(error)
        raise


@dataclass(frozen=True)
class _Modes:
    """JAX's own modes of a function of some leaves, of which the `dynamic` ones are arguments."""

    modes: tuple[JaxMode, ...]
    leaves: tuple[Any, ...]
    tree: Any
    dynamic: tuple[int, ...]

    @property
    def operations(self) -> float:
        """Multiplications that each of them does at a point, at least as far as is known."""
        return min((mode.operations for mode in self.modes), default=inf)

    def without_values(self) -> _Modes:
        """The same, to be traced when the values of this trace are gone."""
        leaves = list(self.leaves)
        for k in self.dynamic:
            leaves[k] = _compat.shape_of(leaves[k])
        return replace(self, leaves=tuple(leaves))

    def traced(self) -> list[Traced]:
        """Each mode that JAX has of the function, and that can be traced still."""

        def trace(mode: JaxMode) -> Traced | None:
            try:
                one = trace_leaves(mode.run, self.leaves, self.tree, self.dynamic)
            except _LACKING:
                return None  # a solver, a function with a batching rule, … has the other mode only
            part = part_of(one.closed, range(len(one.closed.out_avals)))
            return replace(one, closed=part.without(one.lifted))

        found = (attempt(functools.partial(trace, mode), lambda: None) for mode in self.modes)
        return [one for one in found if one is not None]

    def split(self) -> tuple[list[Traced], _Modes]:
        """The first mode that JAX has, traced, if there is one, and the modes after it."""
        for k, mode in enumerate(self.modes):
            found = replace(self, modes=(mode,)).traced()
            if found:
                return found, replace(self, modes=self.modes[k + 1 :])
        return [], replace(self, modes=())


@dataclass(eq=False)
class Form:
    """A form of a Jacobian for XLA."""

    traced: Traced  # the program, without the values of the trace that it was made in
    pinned: bool  # it is run with the pins that are needed (`veenv.engine.pins`)
    # what its lifted constants are of the operands of the elimination, one function each; None
    # where they are among them
    lifted: Sequence[Callable[[Sequence[Any]], Any]] | None = None
    _counts: dict[frozenset[Any], Any] = field(default_factory=dict)

    @functools.cached_property
    def _stored_from(self) -> dict[Any, float]:
        part: Part = self.traced.closed
        return pins.stored_points(part, self.traced.lifted) if self.pinned else {}

    def seconds(self, batch: int) -> float:
        """The price at a batch, on which depends what is stored."""
        dropped = frozenset(v for v, least in self._stored_from.items() if least > batch)
        if dropped not in self._counts:
            self._counts[dropped] = counts_of(self.traced.closed, dropped)
        return seconds(self._counts[dropped], batch)

    def run(self, wanted: Sequence[int]) -> Run:
        """The form as a function of the operands of the elimination, to some leaves."""
        part: Part = self.traced.closed

        def pinned(*given: Any) -> list[Any]:
            return attempt(lambda: pins.run(part, *given), lambda: part.run(*given))

        fun = self.traced.xla(wanted, pinned if self.pinned else part.run)
        if self.lifted is None:
            return fun
        count, lifted = len(self.traced.dynamic), self.lifted
        return lambda *operands: fun(*operands[:count], *(made(operands) for made in lifted))


class Choice:
    """The forms of a Jacobian.

    Args:
      first: traced eliminations, or one of JAX's modes alone; the first is what was asked for.
      own: JAX's own modes beside them, which are traced only where they may be cheaper.
      source: the number of the one that becomes the kernel.
    """

    def __init__(self, first: Sequence[Traced], own: _Modes, source: int = 0):
        self._first, self._source, self._own = first, source, own
        self._operations = own.operations
        self._precision = jnp.result_type(float)
        self._forms = [Form(_without_values(form), True) for form in first]

    def result(self, *, kernel: bool, waits: bool) -> Any:
        """The Jacobian in the cheapest form; it `waits` until the batch is known where it may."""
        first, count = self._first[0], len(self._first[0].closed.out_avals)
        program = attempt(self._program, lambda: None) if kernel else None
        if program is None or not program.written():
            if not (waits and self._is_open() and self._is_pure()):
                return first.result(self._cheapest(None).run(range(count))(*first.operands))
            return first.result(self._when_lowered(range(count)))
        made = self._first[self._source]
        wanted = [k for k in program.written() if k < count]  # the others tell of callbacks
        usual = Form(_without_values(made), True).run(wanted)
        self._forget()
        kernel_at = functools.partial(kernel_seconds, program)

        def instead(batch: int) -> Run | None:
            if kernel_at(batch) <= least_seconds(program, batch):
                return None
            form = self._cheapest(batch, kernel_at(batch))
            return form and form.run(wanted)

        return run_kernel(made, program, usual, instead)

    def _when_lowered(self, wanted: Sequence[int]) -> list[Any]:
        """The leaves, of a form that is chosen when the batch is known."""
        first = self._first[0]
        inputs, outputs = list(map(jax.typeof, first.operands)), first.closed.out_avals
        self._forget()
        forms = Batched(
            inputs,
            outputs,
            lambda *operands: self._cheapest(None).run(wanted)(*operands),
            lambda batch: self._cheapest(batch).run(wanted),
        )
        found = call(forms, *map(jnp.asarray, first.operands))
        return list(map(_compat.as_weak_as, outputs, found))

    def _cheapest(self, batch: int | None, kernel: float = inf) -> Any:
        """The form of the least price, at typical batches by default; None if the kernel is."""
        without = functools.partial(replace, self._forms[0], pinned=False)
        return attempt(lambda: self._least(batch, kernel), without)

    def _least(self, batch: int | None, kernel: float) -> Form | None:
        """The same, or an error."""

        def price(form: Form) -> float:
            return _at(form.seconds, batch)

        forms, alone = self._forms, kernel == inf
        if alone and len(forms) == 1 and self._operations == inf:
            return forms[0]
        best = min(forms, key=price)
        bound = _at(functools.partial(least_of_modes, self._operations), batch)
        bound = bound if alone else max(bound, _SELDOM * price(best))
        if bound < min(price(best), kernel):
            best = min([best, *self._modes()], key=price)
        return best if price(best) < kernel else None

    def _modes(self) -> list[Form]:
        """JAX's own modes; none where the program is lowered with another width of floats."""
        return self._traced_modes if jnp.result_type(float) == self._precision else []

    @functools.cached_property
    def _traced_modes(self) -> list[Form]:
        known = ((form, self._lifted(form)) for form in self._own.traced())
        return [Form(_without_values(f), False, made) for f, made in known if made is not None]

    def _lifted(self, form: Traced) -> list[Callable[[Sequence[Any]], Any]] | None:
        """What a mode's lifted constants are; None if one is of an outer trace and no operand."""
        places = {id(x): k for k, x in enumerate(self._first[0].operands)}
        lifted = form.operands[len(form.dynamic) :]
        if any(_compat.is_traced(x) and id(x) not in places for x in lifted):
            return None
        return [
            operator.itemgetter(places[id(x)]) if id(x) in places else (lambda _, x=x: x)
            for x in lifted
        ]

    def _is_open(self) -> bool:
        """Whether there is more than one form, of which not one is surely the cheapest."""
        several = len(self._forms) > 1
        if several or self._operations == inf:
            return several
        known = self._forms[0].seconds, functools.partial(least_of_modes, self._operations)
        return any(known[0](batch) >= known[1](batch) for batch in _TYPICAL)

    def _is_pure(self) -> bool:
        """Whether all that the forms do is compute, of what can wait for a batch."""
        if any(map(is_key, map(jax.typeof, self._first[0].operands))):
            return False
        return not any(e.effects for form in self._first for e in walk.equations(form.closed))

    def _forget(self) -> None:
        """Drops the values of this trace, which are gone when the choice is made."""
        if _is_alone(self._first[0], self._own.leaves):
            self._own = self._own.without_values()
        else:  # JAX's modes may need values of an outer trace
            _ = self._traced_modes
            self._own = replace(self._own, modes=(), leaves=())
        self._first = [_without_values(form) for form in self._first]

    def _program(self) -> ScalarProgram | None:
        """The scalar program, where compiling it takes not much longer than XLA's takes."""
        lengths = (len(walk.equations(one.closed)) for one in self._first)
        return self._first[self._source].program_within(kernel_size(min(lengths)))


def _at(price: Callable[[int], float], batch: int | None) -> float:
    small, large = _TYPICAL
    return price(batch) if batch is not None else sqrt(price(small) * price(large))


def _separate(traced: Traced) -> list[Traced]:
    """The eliminations of a function that was traced with all of them."""
    found, start = [], 0
    for tree in traced.tree.children():
        end = start + tree.num_leaves
        numbers = [k for k in range(start, end) if k not in traced.static]
        places = [k - sum(s < k for s in traced.static) for k in numbers]
        part = part_of(traced.closed, places)
        part = part.without(traced.lifted)
        static = {k - start: x for k, x in traced.static.items() if start <= k < end}
        avals = tuple(traced.avals[k] for k in places)
        found.append(replace(traced, closed=part, tree=tree, avals=avals, static=static))
        start = end
    return found


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
