"""A Jacobian, or a whole step, in the form that tuning has chosen."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from veenv import _compat
from veenv.search.tuning.records import Record, Result
from veenv.search.tuning.work import shapes_of

_JITTED = (jax.Array, np.ndarray, np.generic, float, complex, int)
_NEEDS_VALUES = (TypeError, IndexError)


class Jacobian:
    """The tuned Jacobian of a function, called as ``jax.jacrev(fun, argnums)``; or a step.

    It is compiled where it is called outside of `jax.jit`, and works under `jit`, `vmap` and
    `grad`.  Arguments of other shapes than it was tuned for take what was fastest
    of `jacve` by itself and JAX's own modes.

    Attributes:
      record: what was tried, and what it took.

    Examples:
      >>> import jax.numpy as jnp, veenv
      >>> f = lambda x: jnp.sin(x) * x
      >>> jacobian = veenv.tune(f, 1.0, budget="2s", cache=False)
      >>> bool(jnp.allclose(jacobian(2.0), jax.jacrev(f)(2.0)))
      True
    """

    def __init__(self, fun: Callable[..., Any], record: Record):
        """Makes the Jacobian of `fun` in the form that a record has chosen.

        Args:
          fun: the function that was tuned.
          record: what tuning found.
        """
        functools.update_wrapper(self, fun, updated=())
        self.record = record
        options = {"has_aux": record.has_aux, "holomorphic": record.holomorphic}
        self._tuned = record.chosen.jacobian(fun, record.argnums, **options)
        self._other = record.usual.jacobian(fun, record.argnums, **options)
        self._jitted = jax.jit(self._fitting)
        self._eager = False
        self._known: set[type] = set()
        """Types of leaves that are values, as no tracer is."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the Jacobian at `args`, in the structure of `jax.jacrev`'s result."""
        result = self._run(*args, **kwargs)
        return (result[0], result[1].shown()) if self.record.has_aux else result

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the Jacobian with auxiliary output as a `HiddenAux`."""
        leaves = jax.tree.leaves((args, kwargs))
        if not self._known.issuperset(map(type, leaves)):  # each is looked at once: calls are short
            self._known.update(type(x) for x in leaves if _is_value(x))
        if self._eager or not self._known.issuperset(map(type, leaves)):
            return self._fitting(*args, **kwargs)
        try:
            return self._jitted(*args, **kwargs)
        except _NEEDS_VALUES:  # Python code that looks at other arguments' values, or an error
            result = self._fitting(*args, **kwargs)
            self._eager = True
            return result

    def _fitting(self, *args: Any, **kwargs: Any) -> Any:
        """Computes the Jacobian uncompiled, and checks shapes while tracing, not in every call."""
        fits = shapes_of(args) == self.record.shapes
        return (self._tuned if fits else self._other)(*args, **kwargs)

    @property
    def form(self) -> str:
        """Returns the chosen form's name, such as ``"jacve reverse, one kernel"``."""
        return self.record.chosen.label

    @property
    def ratio(self) -> float | None:
        """Measured time of the form over that of JAX's faster mode, timed in turn.

        1.0 for that mode; None where the form or both modes were not timed.
        """
        measured = self.record.result()
        return None if measured is None else measured.ratio

    def __repr__(self) -> str:
        """Returns one line: function, form, gain."""
        r, mode = self.record, self.record.faster_mode
        timed = sum(result.median is not None for result in r.results)
        at = "" if r.batch is None else f" at batch {r.batch:,}"
        sure = "" if r.settled else ", time was up"
        if self.ratio is not None and mode is not None:
            gain = f"{self.ratio:.2f} of the time of {mode.label}"
        else:
            gain = "not measured" if r.result() is None else "measured without JAX's modes"
        name = r.name if r.argnums is None else f"Jacobian of {r.name}"
        return (
            f"<{name}: {self.form}, {gain}{at}; {timed} of {len(r.results)} forms "
            f"timed in {r.seconds:.1f} s{sure}>"
        )

    def table(self) -> str:
        """Returns the trials as a Markdown table, the fastest first."""
        rows = sorted(self.record.results, key=lambda r: (r.median is None, r.median or 0.0))
        lines = [
            "| form | µs | ratio (95 %) | rounds | compile, s | temporary, kB | |",
            "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
        ]
        return "\n".join([*lines, *(_row(r, r.form == self.record.chosen) for r in rows)])


def _is_value(x: Any) -> bool:
    return isinstance(x, _JITTED) and not _compat.is_traced(x)


def _row(r: Result, chosen: bool) -> str:
    cells = [f"**{r.form.label}**" if chosen else r.form.label]
    cells.append("" if r.median is None else f"{r.median * 1e6:,.1f}")
    cells.append("" if r.ratio is None else f"{r.ratio:.2f} ({r.low:.2f} … {r.high:.2f})")
    cells += [str(r.rounds), f"{r.compile_seconds:.2f}"]
    cells.append("" if r.temporary is None else f"{r.temporary / 1e3:,.0f}")
    return "| " + " | ".join([*cells, r.note.replace("|", "/")]) + " |"
