"""Explains which form of a Jacobian was chosen, why, and what would change it.

In: a function, its arguments, a batch. Out: an `Explanation`: predicted times of all forms,
reasons against kernels, operations by line of the user's code, and advice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from math import inf
from typing import Any, NamedTuple

import jax

from veenv import _compat, limits
from veenv._support import attempt, check_flags
from veenv.engine.alternatives import (
    JaxMode,
    has_infinite_partials,
    num_passes,
    other_orders,
    shut_out,
)
from veenv.engine.api import jacve
from veenv.engine.form_selection import (
    Considered,
    Form,
    KernelForm,
    kernel_of,
    largest_kernel,
    menu_of,
    watched,
)
from veenv.engine.jacobian import entries_of
from veenv.graph.graph import Graph
from veenv.graph.linearisation import Linearisation, linearise
from veenv.graph.program import hiding_aux, normalise_argnums, plain_argnums, trace
from veenv.kernel.building.unrolling import called_by
from veenv.kernel.fusing import Traced, trace_point
from veenv.kernel.price import kernel_seconds, least_seconds, unrolled
from veenv.kernel.scalar_program import CannotFuseError, ScalarProgram
from veenv.orders.resolve import resolve_order
from veenv.rules import walk
from veenv.rules.table import facts

_SHOWN = 5  # lines of the user's that are named, those of the most operations


class FormRow(NamedTuple):
    """A row of an explanation: a form that was considered, or a mode of JAX that was not.

    Attributes:
      form: an elimination in some order, or one of JAX's modes.
      program: "kernel", or "XLA".
      seconds: predicted of a call; None where it is refused.
      operations: of the kernel's code; None of XLA's programs and where it is refused.
      refused: why it cannot be taken; empty where it can be.
      taken: whether it is the form that is taken.
      passed: why it is not taken though it is predicted to be faster; empty of all others.
    """

    form: str
    program: str
    seconds: float | None
    operations: int | None
    refused: str
    taken: bool
    passed: str = ""

    @property
    def label(self) -> str:
        """The name of the form in the table."""
        return f"{self.form}, {self.program}"


@dataclass(frozen=True)
class Explanation:
    """The result of `explain`; `str` is a text of it, `rows` its table.

    Attributes:
      name: of the function.
      batch: the number of points.
      rows: the forms, the fastest first.
      lines: for each of the user's lines about how many operations the function takes there, by
        what depends on its arguments; each step of a `scan` counts, and most come first.
      advice: what would change the choice.
    """

    name: str
    batch: int
    rows: tuple[FormRow, ...]
    lines: tuple[tuple[str, int], ...]
    advice: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self._text())

    def _text(self) -> Iterator[str]:
        points = "one point" if self.batch == 1 else f"{self.batch:,} points"
        yield f"The Jacobian of {self.name} at {points}; predicted microseconds of a call:"
        width = max((len(row.label) for row in self.rows), default=0)
        for row in self.rows:
            time = "refused" if row.seconds is None else f"{1e6 * row.seconds:,.0f}"
            mark = "  <- taken" if row.taken else ""
            yield f"  {row.label:{width}}{time:>12}{mark}"
        for row in self.rows:
            if row.passed:
                yield f"{row.label} is not taken: {row.passed}"
        for row in self.rows:
            if row.refused:
                yield f"{row.form} is no kernel: {row.refused}"
        total = sum(count for _, count in self.lines)
        if total:
            yield f"Operations of the function (not of its Jacobian) by line, of about {total:,}:"
            yield from (f"  {count:>10,}  {line}" for line, count in self.lines[:_SHOWN])
        yield from ("What would change it:", *(f"  - {each}" for each in self.advice))


def explain(
    fun: Callable[..., Any],
    *args: Any,
    batch: int = 1,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    **kwargs: Any,
) -> Explanation:
    """Explains which forms of a Jacobian `jacve` considers in a trace, and which one it chooses.

    JAX's modes are priced beside them. Nothing is compiled or measured; `veenv.tune` measures.

    Args:
      fun: the function of one point.
      args: arguments of one point: arrays or `jax.ShapeDtypeStruct`s.
      batch: number of points of the `jax.vmap` around the Jacobian; 1 without one.
      argnums: positional arguments to differentiate by.
      has_aux: whether `fun` returns ``(output, aux)``; every form computes both.
      holomorphic: `fun` is a holomorphic function of complex arguments.
      kwargs: other keyword arguments of `fun`.

    Returns:
      The forms with their predicted times, why some are no kernels, and what would change that.

    Raises:
      ValueError: `batch` is no positive integer, or as `jacve`.
      TypeError: as `jacve`.

    Examples:
      >>> import jax.numpy as jnp
      >>> print(explain(lambda x: jnp.fft.rfft(x, 100).real, jnp.ones(4)).advice[0].split(",")[0])
      'fft' has no form in a kernel: write it otherwise
    """
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise ValueError(f"batch must be a positive number of points, got {batch!r}")
    check_flags(has_aux=has_aux, holomorphic=holomorphic)
    hidden = hiding_aux(fun, has_aux)
    function = _Function(hidden, args, kwargs, plain_argnums(argnums), has_aux, holomorphic)
    choices: list[Considered] = []  # Jacobians inside come later
    explanations: list[Explanation] = []

    def tell(considered: Considered) -> None:
        choices.append(considered)
        if len(choices) == 1:
            explanations.append(_explained(considered, function, batch))

    def run(*args: Any, **kwargs: Any) -> None:
        function.by(jacve)(*args, **kwargs)  # auxiliary output may be anything

    with watched(tell):
        jax.make_jaxpr(run)(*args, **kwargs)
    if explanations:
        return explanations[0]
    advice = "there is one form only: the function is differentiated as it runs, by its own rules"
    return Explanation(function.name, batch, (), (), (advice,))


@dataclass(frozen=True)
class _Function:
    """A function at a point, and the options of its derivative."""

    fun: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    argnums: int | tuple[int, ...]
    has_aux: bool
    holomorphic: bool

    @property
    def name(self) -> str:
        """The name of the function."""
        return getattr(self.fun, "__name__", "the function")

    def by(self, transform: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the Jacobian by a transformation."""
        return transform(
            self.fun, argnums=self.argnums, has_aux=self.has_aux, holomorphic=self.holomorphic
        )

    def value(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the output that is differentiated."""
        result = self.fun(*args, **kwargs)
        return result[0] if self.has_aux else result

    def traced(self, fun: Callable[..., Any]) -> Traced:
        """Traces a function of these arguments."""
        wanted = normalise_argnums(self.argnums, len(self.args))
        return trace_point(fun, self.args, self.kwargs, wanted, abstract=True)

    def linearised(self) -> Linearisation:
        """Returns the graph of the function."""
        options = {"argnums": self.argnums, "has_aux": self.has_aux}
        return linearise(trace(self.fun, self.args, self.kwargs, **options))

    def entries(self, lin: Linearisation | None) -> tuple[int, int]:
        """Counts the entries of the Jacobian that can be nonzero, and all of them."""
        if lin is None:
            return 1, 1
        wanted = normalise_argnums(self.argnums, len(self.args))
        return entries_of(lin, [self.args[a] for a in wanted], lin.graph.reverse())


@dataclass
class _Candidate:
    """A traced form, its program if it can be a kernel, else the reason why not."""

    name: str
    traced: Traced
    program: ScalarProgram | None = None
    error: CannotFuseError | None = None
    asked: bool = False  # whether kernel="fused" can make it one
    unlike: str = ""  # the primitive that only kernel="fused" supports
    unoffered: str = ""  # why it is not considered; empty where it is

    @classmethod
    def of(cls, name: str, traced: Traced, limit: int, *, pinned: bool) -> _Candidate:
        """Returns a form as a kernel, if it can be one, else with the reason that counts."""
        candidate = cls(name, traced)
        try:
            candidate.program = traced.automatic(limit)
        except CannotFuseError as error:
            candidate.error = error
            candidate.unlike = error.primitive if "is left to XLA" in error.reason else ""
        if candidate.error and pinned and "cannot be fused" not in candidate.error.reason:
            try:
                candidate.asked = traced.program() is not None
            except CannotFuseError as error:
                candidate.error = error
        return candidate


def _explained(considered: Considered, function: _Function, batch: int) -> Explanation:
    traced, modes = considered.traced, considered.modes.traced()
    lin = attempt(function.linearised, lambda: None)
    size = largest_kernel(considered)
    names = attempt(lambda: _names(considered, lin), lambda: _names(considered, None))
    named = zip(names, traced, strict=True)
    candidates = [_Candidate.of(name, one, size, pinned=True) for name, one in named]
    candidates += [_Candidate.of(one.name, one, size, pinned=False) for one in modes]
    kernel = kernel_of(considered, modes)
    price = inf if kernel.program is None else kernel_seconds(kernel.program, batch)
    form: Form | None = None
    if kernel.program is None or price > least_seconds(kernel.program, batch):
        menu = menu_of(considered, kernel, kernel.traced or traced[0], considered.modes.in_trace)
        form = menu.cheapest(batch, price)
    candidates += _unoffered(function, lin, {one.name for one in candidates})
    rows = [row for one in candidates for row in _rows(one, kernel, form, batch)]
    rows.sort(key=lambda row: (row.seconds or inf, not row.taken))
    lines = _lines(function)
    entries = attempt(lambda: function.entries(lin), lambda: (1, 1))
    advice = _advice(rows, candidates, lines, entries, batch)
    # slower forms need no reason
    first_taken = next((k for k, row in enumerate(rows) if row.taken), 0)
    rows[first_taken:] = [row._replace(passed="") for row in rows[first_taken:]]
    counts = tuple(lines.counts.most_common())
    return Explanation(function.name, batch, tuple(rows), counts, tuple(advice))


def _names(considered: Considered, lin: Linearisation | None) -> list[str]:
    """Returns the names of the forms that were asked for."""
    count, mode = len(considered.traced), considered.traced[0].name
    if mode or lin is None:
        return [mode or "elimination"] * count
    ids = resolve_order("auto", lin.graph)
    several = [ids, *other_orders(lin, ids, "auto", considered.modes.modes)]
    return [f"elimination in {_order_name(lin.graph, ids)} order" for ids in several[:count]]


def _order_name(graph: Graph, ids: tuple[int, ...]) -> str:
    """Returns the name of an order; "automatic" if it is none of the named ones."""
    names = "reverse", "forward", "markowitz"
    return next((name for name in names if resolve_order(name, graph) == ids), "automatic")


def _unoffered(
    function: _Function, lin: Linearisation | None, known: set[str]
) -> Iterator[_Candidate]:
    """Yields JAX's modes that were not considered, with the reason."""
    for name in sorted({"jacfwd", "jacrev"} - known):
        mode = JaxMode(function.by(getattr(jax, name)), name, 0)
        try:
            traced = replace(function.traced(mode.run), name=name)
        except Exception:  # JAX has no such mode of it
            continue
        yield _Candidate(name, traced, unoffered=_why_not(lin, name))


def _why_not(lin: Linearisation | None, name: str) -> str:
    """Returns the reason why a mode of JAX is not considered."""
    if lin is None or not lin.realify:
        return "its results may be others"
    forward, reverse = num_passes(lin.program)
    passes, passes_of_other = (forward, reverse) if name == "jacfwd" else (reverse, forward)
    if has_infinite_partials(lin) or shut_out(lin, reverse=name == "jacrev"):
        return "it may multiply zero by an infinite partial, which gives NaN"
    if passes > passes_of_other:
        return f"it takes {passes:,} passes, and JAX's other mode {passes_of_other:,}"
    return "an elimination is expected to take no longer, and modes are not looked at then"


def _rows(
    candidate: _Candidate, kernel: KernelForm, form: Form | None, batch: int
) -> Iterator[FormRow]:
    """Yields the form for XLA, and as a kernel if it is considered."""
    closed, program, error = candidate.traced.closed, candidate.program, candidate.error
    chosen = form is not None and form.closed is closed
    why = candidate.unoffered or "it is not looked at where another form is fast enough"
    time = Form.of(candidate.traced).seconds(batch)
    yield FormRow(candidate.name, "XLA", time, None, "", chosen, why)
    if candidate.unoffered:
        return
    seconds = None if program is None else kernel_seconds(program, batch)
    source = f", at {error.source}" if error and error.source else ""
    refused = "" if error is None else error.reason + source
    chosen = form is None and kernel.traced is candidate.traced
    why = "one form becomes a kernel: that of fewest counted operations, if it is short"
    yield FormRow(candidate.name, "kernel", seconds, program and program.size, refused, chosen, why)


def _advice(
    rows: Sequence[FormRow],
    candidates: Sequence[_Candidate],
    lines: _Lines,
    entries: tuple[int, int],
    batch: int,
) -> Iterator[str]:
    """Yields advice to the user, the likeliest first."""
    errors = [one.error for one in candidates if one.error is not None]
    kernels = [row for row in rows if row.program == "kernel" and row.seconds is not None]
    nonzero, every = entries
    written = sum(row.operations or 0 for row in kernels if row.taken)
    # a kernel that writes mostly zeros
    sparse = limits.THIN * nonzero <= every and every - nonzero > written
    if sparse:
        yield (
            f"{nonzero:,} of {every:,} entries can be nonzero: "
            "jacve(f, sparse_representation=True) computes and stores these alone"
        )
    unknown = {e.primitive for e in errors if "cannot be fused" in e.reason and e.primitive}
    for primitive in sorted(unknown):
        if primitive.startswith("debug_"):
            yield f"{primitive!r} keeps it from being a kernel: remove it, or print outside"
        else:
            yield f"{primitive!r} has no form in a kernel: write it otherwise, or {_AROUND}"
    if errors and not (unknown or kernels or sparse or any("dtype" in e.reason for e in errors)):
        yield from _smaller(candidates, lines)
    if batch == 1 and kernels:
        yield "give batch=, the number of points of the jax.vmap around it: kernels win with many"
        by_xla = min(row.seconds or inf for row in rows if row.program == "XLA")
        if min(row.seconds or inf for row in kernels) > limits.SLOWER * by_xla:
            yield "veenv.fuse is XLA's program at one point where its kernel is slower, as here"
    if any(row.taken for row in kernels):
        yield (
            "nothing needs changing; veenv.fuse around the whole step that uses the Jacobian keeps "
            "its entries in registers"
        )
    yield "these are predictions: veenv.tune measures the forms and keeps the fastest"


_AROUND = "put veenv.fuse around what comes before it and after it"


def _smaller(candidates: Sequence[_Candidate], lines: _Lines) -> Iterator[str]:
    """Yields advice that makes a program of known primitives fit into a kernel."""
    reasons = " ".join(one.error.reason for one in candidates if one.error is not None)
    alike = sorted({one.unlike for one in candidates if one.unlike})
    if any(one.asked for one in candidates):
        signs = ", whose vectors have signs of their own" if alike else ", which compiles longer"
        yield f'jacve(f, kernel="fused") makes a kernel all the same{signs}'
    elif alike:
        yield f"leave {alike[0]!r} to XLA: {_AROUND}"
    if alike:
        return
    if "stack" in reasons:
        yield (
            "the loop stores each of its steps for the way back: by few parameters forward mode "
            "stores none, and several shorter loops store less"
        )
        return
    if "products" in reasons:
        yield "large products are left to XLA, where they are fast: veenv.fuse around the rest"
    if lines.counts:
        (line, count), *_ = lines.counts.most_common(1)
        share = count / lines.counts.total()
        how = {
            "matrix": "nothing to change, linear algebra of large matrices is fast in XLA",
            "loop": "a step of fewer numbers, or a smaller carry, stays a loop in a kernel",
        }
        yield f"{share:.0%} of the operations come from {line}: " + how.get(
            lines.kind(line),
            "a jax.lax.scan or jax.vmap over equal parts, each of them small, stays a loop in a "
            "kernel; else XLA is the place for them",
        )
    yield (
        "if an axis of an argument is a batch, write the function for one point of it and call "
        "jax.vmap(veenv.jacve(f))"
    )


@dataclass
class _Lines:
    """Operations by line of the user's; those of veenv and JAX count where they are called."""

    counts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)  # by line and kind

    def kind(self, line: str) -> str:
        """Returns the kind of most operations of a line."""
        return max((n, kind) for (one, kind), n in self.kinds.items() if one == line)[1]

    def add(self, jaxpr: Any, variables: Iterable[Any], line: str, times: int) -> None:
        """Adds the operations of a jaxpr, run `times` times, that depend on some variables."""
        depends = walk.dependent(jaxpr, variables)
        for equation in walk.needed(jaxpr, _compat.open_jaxpr(jaxpr).outvars):
            if depends.isdisjoint(walk.operands(equation)):
                continue
            here = _compat.source_line(equation) or line
            flags = [_is_in(v, depends) for v in equation.invars]
            called, loop = called_by(equation), walk.loop_of(equation)
            if called is not None:
                self._enter(called[0], [flags[k] for k in called[1]], here, times)
            elif loop is not None and loop.length is not None:
                self._enter(loop.body, loop.dependent(flags)[0], here, times * loop.length)
            elif facts(equation.primitive.name).form:
                for body in _compat.bodies(equation.params):
                    self._enter(body, [True] * len(body.invars), here, times)
            operations = 0 if called is not None else times * unrolled(equation)
            if operations:
                matrix = facts(equation.primitive.name).form == "matrix"
                kind = "matrix" if matrix else "loop" if times > 1 else ""
                self.counts[here or "what JAX adds"] += operations
                self.kinds[here or "what JAX adds", kind] += operations

    def _enter(self, body: Any, flags: Sequence[bool], line: str, times: int) -> None:
        opened = _compat.open_jaxpr(body)
        self.add(opened, compress(opened.invars, flags), line, times)


def _is_in(atom: Any, variables: Container[Any]) -> bool:
    return not walk.is_literal(atom) and atom in variables


def _lines(function: _Function) -> _Lines:
    """Counts the operations of a function by line."""
    lines, closed = _Lines(), function.traced(function.value).closed
    lines.add(closed, _compat.open_jaxpr(closed).invars, "", 1)
    return lines
