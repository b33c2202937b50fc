"""The forms of a Jacobian to be tried, most promising first."""

from __future__ import annotations

import contextlib
import functools
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax

from veenv.engine.api import jacve
from veenv.graph.graph import Graph
from veenv.graph.program import hiding_aux
from veenv.kernel.fusing import KernelMode, fuse
from veenv.linear.barrier import PinMode
from veenv.orders.cache import Auto
from veenv.orders.order import climb_until
from veenv.orders.shipped import best_for
from veenv.rules.table import facts

Mode = Literal["jacfwd", "jacrev", "jacve", "xla", "fuse"]
_TRANSFORMS: Mapping[str, Callable[..., Any]] = {
    "jacve": jacve,
    "jacfwd": jax.jacfwd,
    "jacrev": jax.jacrev,
}
"""Transforms that a whole step may take as its argument ``jacobian``, by name."""
_LARGEST_KERNEL = 1_000_000
"""Operations, those with known zeros included, above which no kernel is tried."""
_SEARCHING = 0.1  # share of the time spent searching an order


@dataclass(frozen=True)
class Form:
    """One form of a Jacobian, or of a whole step."""

    mode: Mode  # JAX's own, or ``"jacve"``; of a step ``"xla"``, or ``"fuse"``
    order: str = ""  # name of the order; of a step, of its transform, if any
    ids: tuple[int, ...] = ()  # its vertex ids; none for ``"auto"``
    kernel: KernelMode = "xla"  # option of `veenv.jacve`
    pin: PinMode = "auto"  # option of `veenv.jacve`

    @property
    def usual(self) -> bool:
        """Returns whether the form needs no tuning: plain `jacve`, a mode of JAX, a plain step."""
        return self.mode not in ("jacve", "fuse") or self.order == "auto"

    @property
    def by_jax(self) -> bool:
        """Returns whether the form is a baseline: a mode of JAX, or a step without `jacve`."""
        return self.mode in ("jacfwd", "jacrev") or (self.mode == "xla" and self.order != "jacve")

    @property
    def label(self) -> str:
        """Returns the form's name in a table."""
        if self.mode in ("xla", "fuse"):
            suffix = f" with {_named(self.order)}" if self.order else ""
            return ("the step" if self.mode == "xla" else "fuse") + suffix
        if self.mode != "jacve":
            return f"jax.{self.mode}"
        pins = {"auto": "", True: ", all pinned", False: ", nothing pinned"}[self.pin]
        return f"jacve {self.order}" + (", one kernel" if self.kernel == "fused" else "") + pins

    def jacobian(
        self,
        fun: Callable[..., Any],
        argnums: int | tuple[int, ...] | None,
        *,
        has_aux: bool,
        holomorphic: bool = False,
    ) -> Callable[..., Any]:
        """Returns the Jacobian of a function in this form; auxiliary output is a `HiddenAux`."""
        options = {"has_aux": has_aux, "holomorphic": holomorphic}
        if self.mode in ("xla", "fuse"):
            keywords = {"jacobian": _TRANSFORMS[self.order]} if self.order else {}
            step = functools.wraps(fun)(functools.partial(fun, **keywords))
            return fuse(step) if self.mode == "fuse" else step
        assert argnums is not None
        if self.mode != "jacve":
            return _TRANSFORMS[self.mode](hiding_aux(fun, has_aux), argnums, **options)
        order = "auto" if self.usual else _Fitting(ids=self.ids)
        derived = jacve(fun, order, argnums, kernel=self.kernel, pin=self.pin, **options)
        return hiding_aux(derived, has_aux)


@dataclass(frozen=True)
class _Fitting(Auto):
    """An order that falls back to reverse on graphs that it does not fit, as values may decide."""

    ids: tuple[int, ...] = ()

    def order(self, graph: Graph) -> tuple[int, ...]:
        """Returns the ids of the order for a graph."""
        try:
            return graph.check_order(self.ids)
        except ValueError:
            return graph.reverse()


AUTO = Form("jacve", "auto", kernel="auto")
"""The form that `jacve` chooses by default."""


def step_forms(step: Callable[..., Any]) -> list[Form]:
    """Returns the forms of a whole step: by itself, and as one kernel.

    A step that has an argument ``jacobian`` is given JAX's modes and `jacve` for it.
    """
    takes = "jacobian" in inspect.signature(step).parameters
    names = [*_TRANSFORMS] if takes else [""]
    kernels = [Form("fuse", name, kernel="fused") for name in names]
    return [*(Form("xla", name) for name in reversed(names)), *kernels]


def _named(transform: str) -> str:
    return transform if transform == "jacve" else f"jax.{transform}"


def own_modes(num_inputs: int, num_outputs: int) -> list[Form]:
    """Returns JAX's modes, the one with fewer passes first; reverse if both have as many."""
    modes = [Form("jacfwd"), Form("jacrev")]
    return modes if num_inputs < num_outputs else modes[::-1]


def other_forms(
    graph: Graph, primitives: Sequence[str], seconds: float, *, kernels: bool, batched: bool = False
) -> Iterator[Form]:
    """Yields forms beside the usual ones; an order is searched for when its turn comes.

    Where there are many points (`batched`), one kernel is most promising and comes first.
    """
    ids = _orders(graph)
    price = {name: graph.cost(order, "operations") for name, order in ids.items()}
    ranked = sorted(ids, key=lambda name: price[name])
    kernels = kernels and price[ranked[0]] <= _LARGEST_KERNEL
    tried: set[tuple[Any, ...]] = set()

    def fresh(*wanted: Form) -> Iterator[Form]:
        for form in wanted:
            key = form.ids, form.kernel, form.pin
            if key not in tried and (kernels or form.kernel == "xla"):
                tried.add(key)
                yield form

    best = Form("jacve", ranked[0], ids[ranked[0]])
    first = (_fused(best), best) if batched else (best, _fused(best))
    yield from fresh(*first, Form("jacve", "reverse", ids["reverse"]))
    if any(facts(name).expensive for name in primitives):
        yield from fresh(replace(best, pin=False), replace(best, pin=True))
    end = time.perf_counter() + _SEARCHING * seconds
    # Climbing compiles nothing, which would disturb the timing.
    searched = Form("jacve", "searched", climb_until(graph, best.ids, end, "operations"))
    yield from fresh(searched, _fused(searched))
    for name in ranked[1:]:
        form = Form("jacve", name, ids[name])
        yield from fresh(form, _fused(form))


def _fused(form: Form) -> Form:
    return replace(form, kernel="fused")


def _orders(graph: Graph) -> dict[str, tuple[int, ...]]:
    """Returns the classical orders and, if there is one, the best shipped order."""
    ids = {
        "reverse": graph.reverse(),
        "forward": graph.legal(graph.forward()),
        "markowitz": graph.legal(graph.markowitz()),
    }
    with contextlib.suppress(ValueError):
        ids["best"] = best_for(graph, "operations").ids_for(graph)
    return ids
