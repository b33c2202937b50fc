"""Selects, in a trace, the form of a Jacobian with the least price at the batch.

In: a `Request` and functions that trace its `Candidates`. Out: the Jacobian in the cheapest form.

Forms are eliminations in one order or several, JAX's modes, and one of the eliminations as one
kernel. All have the same results; `veenv.kernel.price` predicts the seconds of each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from math import inf, sqrt
from typing import Any, NamedTuple, TypeVar

import jax
import jax.core
import jax.numpy as jnp

from veenv import _compat, limits
from veenv._support import attempt, setting
from veenv.engine import materialise
from veenv.engine.alternatives import Candidates, JaxMode
from veenv.engine.request import Request
from veenv.graph.program import normalise_argnums
from veenv.kernel.fusing import Traced, run_at_batch, run_kernel, trace_leaves, trace_point
from veenv.kernel.price import (
    LEAST,
    counts_of,
    equations_of,
    kernel_seconds,
    kernel_size,
    least_seconds,
    operations_of,
    seconds,
)
from veenv.kernel.scalar_program import ScalarProgram
from veenv.rules import walk
from veenv.rules.base import is_key
from veenv.rules.passes import REFUSALS

T = TypeVar("T")
_TYPICAL = 1, 256  # small and large batch that stand for an unknown one
_SELDOM = 0.65  # of an elimination's time: JAX's modes seldom take less, and are not traced for it
_LACKING = (*REFUSALS, jax.errors.UnexpectedTracerError)
"""Errors where JAX lacks a mode, or the mode needs a value of a trace that has ended."""


Run = Callable[..., list[Any]]
"""A function from the operands of the elimination to the leaves of a result."""
OperandMap = Callable[[Sequence[Any]], Sequence[Any]]
"""A map from the operands of the elimination to those of another form."""


def choosing(
    request: Request,
    jacobian: Callable[..., Any],
    candidates: Callable[[Sequence[Any], dict[str, Any]], Candidates | None],
) -> Callable[..., Any]:
    """Returns a Jacobian in the form of the least price.

    Args:
      request: what is asked for.
      jacobian: by elimination, called where nothing is compiled.
      candidates: of positional and keyword arguments all results at once, every value that might be
        expensive pinned; None where only the elimination can be run.
    """

    @functools.wraps(jacobian, updated=())
    def chosen(*args: Any, **kwargs: Any) -> Any:
        if not any(map(_compat.is_traced, jax.tree.leaves((args, kwargs)))):
            return jacobian(*args, **kwargs)
        errors: list[Exception] = []  # where the function is traced and eliminated
        alone, several = _noting(errors, jacobian), _noting(errors, candidates)

        def best() -> Any:
            considered = _considered(request, alone, several, args, kwargs)
            return alone(*args, **kwargs) if considered is None else _run_cheapest(considered)

        return attempt(best, lambda: jacobian(*args, **kwargs), lambda error: error in errors)

    return chosen


def _considered(
    request: Request,
    jacobian: Callable[..., Any],
    candidates: Callable[[Sequence[Any], dict[str, Any]], Candidates | None],
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Considered | None:
    """Traces the forms that there are to choose from."""
    known: Candidates | None = None
    leaves, tree = jax.tree.flatten((args, kwargs))
    kernels = request.kernel == "auto"

    def trace(results: Callable[..., list[Any]]) -> Traced:
        if kernels:
            return trace_point(results, args, kwargs, normalise_argnums(request.argnums, len(args)))
        places = [k for k, x in enumerate(leaves) if _compat.is_traced(x)]
        return trace_leaves(results, leaves, tree, places)

    @functools.wraps(jacobian, updated=())
    def eliminations(*args: Any, **kwargs: Any) -> list[Any]:
        nonlocal known
        several = candidates(args, kwargs)
        known = several and several._replace(eliminations=[])  # those are of this trace
        return several.eliminations if several else []

    traced = trace(eliminations)
    if known is None:
        return None
    # Where only part of the values differs by device, JAX's reverse mode sums over devices.
    alike = _compat.vary_alike(traced.operands)
    modes = _Modes(tuple(known.modes if alike else ()), tuple(leaves), tree, traced.dynamic)
    if not traced.tree.children():
        first, later = modes.split()
        if first:
            return Considered(first, later, 0 if kernels else None)
        traced = trace(lambda *args, **kwargs: [jacobian(*args, **kwargs)])
    # Beside reverse stands another order of fewer operations; "auto" comes first.
    place = -1 if request.compared == "reverse" else 0
    source = place if kernels and alike else None
    return Considered(_separate(traced), modes, source)


def _noting(raised: list[Exception], fun: Callable[..., T]) -> Callable[..., T]:
    """Returns a function that adds to a list what it raises."""

    @functools.wraps(fun, updated=())
    def noting(*args: Any, **kwargs: Any) -> T:
        try:
            return fun(*args, **kwargs)
        except Exception as error:
            raised.append(error)
            raise

    return noting


@dataclass(frozen=True)
class _Modes:
    """JAX's modes of a function of some leaves, of which the `dynamic` ones are arguments."""

    modes: tuple[JaxMode, ...]
    leaves: tuple[Any, ...]
    tree: Any
    dynamic: tuple[int, ...]

    def traced(self) -> list[Traced]:
        """Returns the modes that JAX has of the function, and that can be traced still."""

        def trace(mode: JaxMode) -> Traced | None:
            try:
                traced = trace_leaves(mode.run, self.leaves, self.tree, self.dynamic)
                return replace(traced, name=mode.name)
            except _LACKING:
                return None  # a solver, a function with a batching rule, … has the other mode only

        attempts = (attempt(functools.partial(trace, mode), lambda: None) for mode in self.modes)
        return [one for one in attempts if one is not None]

    def in_trace(self, operands: Sequence[Any]) -> Callable[[], list[Form]]:
        """Returns the modes as forms of an elimination's operands, traced when called."""
        return functools.cache(lambda: _forms(self.traced(), operands))

    def after_trace(self, operands: Sequence[Any]) -> Callable[[], list[Form]]:
        """Returns `in_trace` for after this trace: what needs an outer one is traced now."""
        if not self._is_alone(operands):
            forms = _forms(self.traced(), operands)
            return lambda: forms
        constants = tuple(None if _compat.is_traced(x) else x for x in operands)
        leaves = [
            _compat.shape_of(x) if k in self.dynamic else x for k, x in enumerate(self.leaves)
        ]
        return replace(self, leaves=tuple(leaves)).in_trace(constants)

    def _is_alone(self, operands: Sequence[Any]) -> bool:
        """Returns whether the function depends on no other trace than that of its arguments."""
        static = [x for k, x in enumerate(self.leaves) if k not in self.dynamic]
        captured = operands[len(self.dynamic) :]
        traced = any(map(_compat.is_traced, (*static, *captured)))
        return not (traced or any(map(_compat.variance, operands)))

    def split(self) -> tuple[list[Traced], _Modes]:
        """Returns the first mode that JAX has, traced, if there is one, and the modes after it."""
        for k, mode in enumerate(self.modes):
            if traced := replace(self, modes=(mode,)).traced():
                return traced, replace(self, modes=self.modes[k + 1 :])
        return [], replace(self, modes=())


@dataclass(eq=False)
class Form:
    """A form of a Jacobian for XLA, which holds no value of the trace that it comes from."""

    closed: Any  # its jaxpr
    count: int  # the first arguments, of which a batch surely has one for each point
    operands_of: OperandMap  # from the elimination's operands to its own
    name: str = ""  # of a mode of JAX, in which nothing is materialised
    _counts: dict[frozenset[Any], Any] = field(default_factory=dict)

    @classmethod
    def of(cls, traced: Traced, operands_of: OperandMap = lambda operands: operands) -> Form:
        """Returns a traced form."""
        return cls(traced.closed, len(traced.dynamic), operands_of, traced.name)

    @functools.cached_property
    def _stored_from(self) -> dict[Any, float]:
        return {} if self.name else materialise.stored_from(self.closed)

    def seconds(self, batch: int) -> float:
        """Returns the price at a batch, on which depends what is stored."""
        dropped = frozenset(v for v, least in self._stored_from.items() if least > batch)
        if dropped not in self._counts:
            self._counts[dropped] = counts_of(self.closed, dropped, count=self.count)
        return seconds(self._counts[dropped], batch)

    def run(self, wanted: Sequence[int]) -> Run:
        """Returns the form as a function of the operands of the elimination, to some leaves."""
        closed, avals = self.closed, self.closed.out_avals

        def plain(operands: Sequence[Any]) -> list[Any]:
            return jax.core.eval_jaxpr(_compat.open_jaxpr(closed), closed.consts, *operands)

        def pinned(operands: Sequence[Any]) -> list[Any]:
            stored = lambda: materialise.run(closed, self._stored_from, operands)  # noqa: E731
            return attempt(stored, lambda: plain(operands))

        def run(*operands: Any) -> list[Any]:
            with jax.enable_checks(False):  # JAX checks nothing where it binds an equation
                leaves = (plain if self.name else pinned)(self.operands_of(operands))
            return [_compat.as_weak_as(avals[k], jnp.asarray(leaves[k])) for k in wanted]

        return run


@dataclass(frozen=True)
class Menu:
    """The forms of a Jacobian from which the cheapest is chosen."""

    forms: Sequence[Form]  # the requested form first
    modes: Callable[[], list[Form]]  # JAX's own, traced only where they may be cheaper
    has_modes: bool  # whether there are any
    precision: Any = field(default_factory=lambda: jnp.result_type(float))

    def cheapest(self, batch: int | None, kernel: float = inf) -> Any:
        """Returns the form of least price, at typical batches by default; None: the kernel is."""
        without = functools.partial(replace, self.forms[0], name="as it is")
        return attempt(lambda: self._least(batch, kernel), without)

    def _least(self, batch: int | None, kernel: float) -> Form | None:
        """Returns the form of least price, or raises."""

        def price(form: Form) -> float:
            return _at(form.seconds, batch)

        if kernel == inf and not self.has_modes and len(self.forms) == 1:
            return self.forms[0]
        best = min(self.forms, key=price)
        same_width = jnp.result_type(float) == self.precision  # modes are traced with this one
        if self.has_modes and same_width and max(LEAST, _SELDOM * price(best)) < kernel:
            best = min([best, *self.modes()], key=price)
        return best if price(best) < kernel else None


def _run_cheapest(considered: Considered) -> Any:
    """Computes the Jacobian in the cheapest form; where it may it waits for the batch."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher(considered)
    traced, modes, source = considered
    asked, every = traced[0], range(len(traced[0].closed.out_avals))
    kernel_form = attempt(lambda: kernel_of(considered), KernelForm)
    base, program = kernel_form.traced, kernel_form.program
    if base is not None and program is not None and program.written():
        wanted = [k for k in program.written() if k in every]  # further ones report callbacks
        several = menu_of(considered, kernel_form, base, modes.after_trace)

        def faster_at(batch: int) -> Run | None:
            kernel = kernel_seconds(program, batch)
            if kernel <= least_seconds(program, batch):
                return None
            cheaper = several.cheapest(batch, kernel)
            return cheaper and cheaper.run(wanted)

        return run_kernel(base, program, several.forms[0].run(wanted), faster_at)
    if source is not None and (len(traced) > 1 or modes.modes) and _is_pure(traced):
        later = menu_of(considered, kernel_form, asked, modes.after_trace)
        usual = lambda *operands: later.cheapest(None).run(every)(*operands)  # noqa: E731
        return run_at_batch(asked, usual, lambda batch: later.cheapest(batch).run(every))
    now = menu_of(considered, kernel_form, asked, modes.in_trace)
    return asked.result(now.cheapest(None).run(every)(*asked.operands))


class Considered(NamedTuple):
    """The forms that there were to choose from."""

    traced: Sequence[Traced]  # eliminations, or a mode of JAX alone
    modes: _Modes  # JAX's own beside them
    source: int | None  # index of the form that becomes the kernel; None: none may


_watcher: ContextVar[Callable[[Considered], None] | None] = ContextVar("watcher", default=None)


def watched(watcher: Callable[[Considered], None]) -> AbstractContextManager[None]:
    """Has `watcher` see each choice's forms, while their values can be traced."""
    return setting(_watcher, watcher)


def menu_of(
    considered: Considered,
    kernel_form: KernelForm,
    base: Traced,
    modes: Callable[[Sequence[Any]], Callable[[], list[Form]]],
) -> Menu:
    """Returns the forms by the operands of one of them, which comes first.

    `modes` are those of JAX by such operands, where they have not been traced for the kernel.
    """
    rest = [one for one in considered.traced if one is not base]
    forms, has_modes = [Form.of(base), *_forms(rest, base.operands)], bool(considered.modes.modes)
    if kernel_form.modes is None:
        return Menu(forms, modes(base.operands), has_modes)
    known = _forms(kernel_form.modes, base.operands)
    return Menu(forms, lambda: known, has_modes)


class KernelForm(NamedTuple):
    """The form that becomes a kernel, if one can, and the modes traced to find it."""

    traced: Traced | None = None
    program: ScalarProgram | None = None
    modes: Sequence[Traced] | None = None  # JAX's own, if they have been traced


def largest_kernel(considered: Considered) -> int:
    """Returns the largest `size_of` that compiles in not much more time than the shortest form."""
    traced, modes, _ = considered
    lengths = *(equations_of(one.closed) for one in traced), *(mode.length for mode in modes.modes)
    return kernel_size(min(lengths))


def kernel_of(considered: Considered, modes: Sequence[Traced] | None = None) -> KernelForm:
    """Returns the likeliest kernel that takes not much longer to compile than XLA.

    JAX's modes, whose loops and axes stay loops, are looked at where the elimination is refused or
    long; one of them is tried first where it is estimated to compute less.
    """
    traced, untraced, source = considered
    if source is None:
        return KernelForm(modes=modes)
    asked, estimate = traced[source], operations_of(traced[source].closed)
    if asked.is_constant:
        return KernelForm(modes=modes)
    size = largest_kernel(considered)

    @functools.cache
    def program_of(number: int) -> ScalarProgram | None:
        return several[number].program_within(size)

    several: list[Traced] = [asked]
    program = program_of(0) if estimate < limits.UNSURE * limits.LONG else None
    if program is not None and min(estimate, program.executed) < limits.LONG:
        return KernelForm(asked, program, modes)
    modes = untraced.traced() if modes is None else modes
    several += modes
    known = estimate if program is None else program.executed / limits.FEWER
    estimates = [known, *(operations_of(one.closed) for one in modes)]
    for number in (estimates.index(min(estimates)), 0):
        program = program_of(number)
        if program is not None:
            return KernelForm(several[number], program, modes)
    return KernelForm(modes=modes)


def _is_pure(traced: Sequence[Traced]) -> bool:
    """Returns whether forms only compute, of operands that can wait for a batch."""
    if any(map(is_key, map(jax.typeof, traced[0].operands))):
        return False
    return not any(e.effects for form in traced for e in walk.equations(form.closed))


def _forms(several: Sequence[Traced], operands: Sequence[Any]) -> list[Form]:
    """Returns forms of such operands."""
    known = ((one, _operands_of(one, operands)) for one in several)
    return [Form.of(one, operands_of) for one, operands_of in known if operands_of is not None]


def _operands_of(mode: Traced, operands: Sequence[Any]) -> OperandMap | None:
    """Returns a map from an elimination's operands to a mode's; None if it lacks a traced one.

    `operands` are those of the elimination at this moment.
    """
    places = {id(x): k for k, x in enumerate(operands)}
    lifted = [(x, places.get(id(x))) for x in mode.lifted]
    if any(k is None and _compat.is_traced(x) for x, k in lifted):
        return None
    sources = [(None, k) if k is not None else (x, None) for x, k in lifted]
    count = len(mode.dynamic)
    return lambda values: [*values[:count], *(x if k is None else values[k] for x, k in sources)]


def _at(price: Callable[[int], float], batch: int | None) -> float:
    small, large = _TYPICAL
    return price(batch) if batch is not None else sqrt(price(small) * price(large))


def _separate(traced: Traced) -> list[Traced]:
    """Returns the eliminations of a function that was traced with all of them."""
    eliminations, start = [], 0
    for tree in traced.tree.children():
        end = start + tree.num_leaves
        numbers = [k for k in range(start, end) if k not in traced.static]
        places = [k - sum(s < k for s in traced.static) for k in numbers]
        closed = walk.part_of(traced.closed, places)
        static = {k - start: x for k, x in traced.static.items() if start <= k < end}
        avals = tuple(traced.avals[k] for k in places)
        eliminations.append(replace(traced, closed=closed, tree=tree, avals=avals, static=static))
        start = end
    return eliminations
