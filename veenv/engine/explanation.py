"""Why a Jacobian takes the form that it takes, and what would change that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

import jax

from veenv import _compat
from veenv.engine.api import jacve
from veenv.engine.choose import Considered, Form, Kernel, kernel_of, menu_of, watched
from veenv.kernel.fusing import Traced
from veenv.kernel.price import (
    equations_of,
    kernel_seconds,
    kernel_size,
    least_seconds,
    unrolled,
)
from veenv.kernel.program import CannotFuseError, ScalarProgram
from veenv.kernel.unrolling import called_by
from veenv.rules import walk
from veenv.rules.table import facts

_SHOWN = 5  # lines of the user's that are named, those of the most operations


class FormRow(NamedTuple):
    """A form that was considered.

    Attributes:
      form: an elimination, or one of JAX's modes.
      program: "kernel", or "XLA".
      seconds: predicted of a call; None where it is refused.
      operations: of the kernel's code; None of XLA's programs and where it is refused.
      refused: why it cannot be taken; empty where it can be.
      taken: whether it is the form that is taken.
    """

    form: str
    program: str
    seconds: float | None
    operations: int | None
    refused: str
    taken: bool


@dataclass(frozen=True)
class Explanation:
    """What `explain` found; `str` is a text of it, `rows` its table.

    Attributes:
      name: of the function.
      batch: the number of points.
      rows: the forms.
      lines: for each of the user's lines about how many operations a mode of JAX, or else the
        function, takes there; each step of a loop counts once, and most come first.
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
        for row in sorted(self.rows, key=lambda row: row.seconds or inf):
            time = "refused" if row.seconds is None else f"{1e6 * row.seconds:,.0f}"
            taken = "  <- taken" if row.taken else ""
            yield f"  {f'{row.form}, {row.program}':34}{time:>10}{taken}"
        for row in self.rows:
            if row.refused:
                yield f"{row.form} is no kernel: {row.refused}"
        total = sum(count for _, count in self.lines)
        if total:
            yield f"Operations of a point by line, of about {total:,}:"
            yield from (f"  {count:>10,}  {line}" for line, count in self.lines[:_SHOWN])
        yield from ("What would change it:", *(f"  - {each}" for each in self.advice))


def explain(
    fun: Callable[..., Any],
    *args: Any,
    batch: int = 1,
    argnums: int | Sequence[int] = 0,
    **kwargs: Any,
) -> Explanation:
    """Which forms of a Jacobian `jacve` considers in a trace, and which one it takes.

    Nothing is compiled or measured; `veenv.tune` measures.

    Args:
      fun: the function of one point.
      args: arguments of one point: arrays or `jax.ShapeDtypeStruct`s.
      batch: number of points of the `jax.vmap` around the Jacobian; 1 without one.
      argnums: positional arguments to differentiate by.
      kwargs: keyword arguments of `fun`.

    Returns:
      The forms with their predicted times, why some are no kernels, and what would change that.

    Raises:
      ValueError: `batch` is no positive integer, or as `jacve`.
      TypeError: as `jacve`.

    Examples:
      >>> import jax.numpy as jnp
      >>> print(explain(lambda x: jnp.fft.rfft(x).real, jnp.ones(4)).advice[0])
      'fft' has no form in a kernel: put veenv.fuse around what comes before it and after it
    """
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise ValueError(f"batch must be a positive number of points, got {batch!r}")
    found: list[Explanation] = []
    name = getattr(fun, "__name__", "the function")

    def tell(considered: Considered) -> None:
        if not found:  # those of Jacobians inside come later
            function = jax.make_jaxpr(fun)(*args, **kwargs)
            found.append(_explained(considered, function, name, batch))

    with watched(tell):
        jax.make_jaxpr(jacve(fun, argnums=argnums))(*args, **kwargs)
    if found:
        return found[0]
    advice = "there is one form only: the function is differentiated as it runs, by its own rules"
    return Explanation(name, batch, (), (), (advice,))


class _Made(NamedTuple):
    """A traced form, its program if it can be a kernel, else why not."""

    name: str
    traced: Traced
    xla: Form
    program: ScalarProgram | None
    error: CannotFuseError | None


def _explained(considered: Considered, function: Any, name: str, batch: int) -> Explanation:
    first, own = considered.first, considered.modes
    modes = [(m.name, one) for m in own.modes for one in replace(own, modes=(m,)).traced()]
    least = min(map(_limit, first))
    made = [
        _made(considered.name if k == 0 else f"{considered.name}, other order", one, least, True)
        for k, one in enumerate(first)
    ]
    made += [_made(label, one, _limit(one), False) for label, one in modes]
    kernel = Kernel()
    if considered.kernel:
        kernel = kernel_of(first, own, considered.source, [one for _, one in modes])
    kernel = kernel._replace(modes=[one for _, one in modes])
    price = inf if kernel.program is None else kernel_seconds(kernel.program, batch)
    form: Form | None = None
    if kernel.program is None or price > least_seconds(kernel.program, batch):
        menu = menu_of(first, own, kernel, kernel.traced or first[0], later=False)
        form = menu.cheapest(batch, price)
    rows = [row for one in made for row in _rows(one, kernel, form, batch)]
    counts: Counter[str] = Counter()
    _count(modes[0][1].closed if modes else function, "", counts)
    lines = tuple(counts.most_common())
    return Explanation(name, batch, tuple(rows), lines, tuple(_advice(rows, made, lines, batch)))


def _made(label: str, traced: Traced, limit: int, pinned: bool) -> _Made:
    try:
        program, error = traced.automatic(limit), None
    except CannotFuseError as refused:
        program, error = None, refused
    return _Made(label, traced, Form.of(traced, pinned), program, error)


def _limit(traced: Traced) -> int:
    return kernel_size(equations_of(traced.closed))


def _rows(made: _Made, kernel: Kernel, form: Form | None, batch: int) -> Iterator[FormRow]:
    """The form for XLA, and as a kernel."""
    closed, program, error = made.traced.closed, made.program, made.error
    taken = form is not None and form.closed is closed
    yield FormRow(made.name, "XLA", made.xla.seconds(batch), None, "", taken)
    seconds = None if program is None else kernel_seconds(program, batch)
    refused = "" if error is None else _reason(error)
    taken = form is None and kernel.traced is made.traced
    yield FormRow(made.name, "kernel", seconds, program and program.size, refused, taken)


def _reason(error: CannotFuseError) -> str:
    return f"{error.reason}, at {error.source}" if error.source else error.reason


def _advice(
    rows: Sequence[FormRow], made: Sequence[_Made], lines: Sequence[tuple[str, int]], batch: int
) -> Iterator[str]:
    """What a user can do, the likeliest first."""
    errors = [one.error for one in made if one.error is not None]
    unknown = {e.primitive for e in errors if "cannot be fused" in e.reason and e.primitive}
    for primitive in sorted(unknown):
        yield (
            f"{primitive!r} has no form in a kernel: put veenv.fuse around what comes before it "
            "and after it"
        )
    kernels = any(row.seconds is not None for row in rows if row.program == "kernel")
    if errors and not unknown and not kernels:
        yield from _smaller(" ".join(e.reason for e in errors), lines)
    if batch == 1 and kernels:
        yield "give batch=, the number of points of the jax.vmap around it: kernels win with many"
    if any(row.taken and row.program == "kernel" for row in rows):
        yield (
            "nothing has to: put veenv.fuse around the whole step that uses the Jacobian, so that "
            "its entries stay in registers"
        )
    yield "these are predictions: veenv.tune measures the forms and keeps the fastest"


def _smaller(reasons: str, lines: Sequence[tuple[str, int]]) -> Iterator[str]:
    """What makes a program of known primitives fit into a kernel."""
    if "stack" in reasons:
        yield (
            "the loop stores each of its steps for the way back: by few parameters forward mode "
            "stores none, and several shorter loops store less"
        )
        return
    if "products" in reasons:
        yield "large products are left to XLA, where they are fast: veenv.fuse around the rest"
    if lines:
        share = lines[0][1] / sum(count for _, count in lines)
        yield (
            f"{share:.0%} of the operations come from {lines[0][0]}: write them as a jax.lax.scan "
            "or an array operation over equal parts, which stay loops in a kernel"
        )
    if "take longer" in reasons:
        yield 'kernel="fused" makes a kernel all the same, which takes longer to compile'
    yield (
        "if an axis of an argument is a batch, write the function for one point of it and put "
        "jax.vmap around the Jacobian"
    )


def _count(jaxpr: Any, line: str, counts: Counter[str]) -> None:
    """Adds operations by line of the user's; those of veenv and JAX count where they are called."""
    for equation in walk.equations(jaxpr):
        here = _compat.source_line(equation) or line
        bodies = _compat.bodies(equation.params) if facts(equation.primitive.name).form else ()
        called = called_by(equation)
        for body in (called[0],) if called is not None else bodies:
            _count(body, here, counts)
        found = 0 if called is not None else unrolled(equation)
        if found:
            counts[here or "what JAX adds"] += found
