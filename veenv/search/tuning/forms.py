"""The forms of a Jacobian that are tried, most promising first."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax

from veenv.engine.api import jacve
from veenv.graph.graph import Graph
from veenv.linear.barrier import EXPENSIVE, PinMode
from veenv.orders.cache import Auto
from veenv.orders.climbing import climb
from veenv.orders.shipped import best_for

Mode = Literal["jacfwd", "jacrev", "jacve"]
MODES: tuple[Mode, ...] = get_args(Mode)
FORM_KERNELS = ("xla", "fused")
_LARGEST_KERNEL = 1_000_000
"""Operations above which no kernel is tried; those with known zeros are counted here too."""
_MANY = 5000
"""Vertices of a graph above which JAX's own modes are tried before any order is looked at."""
_SLOW = 0.25
"""Share of the time in which a mode is compiled that is followed by a kernel."""
_SEARCHING = 0.1
"""Share of the time for the search of an order."""


@dataclass(frozen=True)
class Form:
    """One way to a Jacobian.

    Attributes:
      mode: JAX's own, or ``"jacve"``.
      order: what the order is called.
      ids: its vertex ids.
      kernel: ``"xla"`` or ``"fused"``.
      pin: as `veenv.jacve` has it.
    """

    mode: Mode
    order: str = ""
    ids: tuple[int, ...] = ()
    kernel: Literal["xla", "fused"] = "xla"
    pin: PinMode = "auto"

    @property
    def label(self) -> str:
        """What the form is called in a table."""
        if self.mode != "jacve":
            return f"jax.{self.mode}"
        pins = {"auto": "", True: ", all pinned", False: ", nothing pinned"}[self.pin]
        return f"jacve {self.order}" + (", one kernel" if self.kernel == "fused" else "") + pins

    def jacobian(
        self, fun: Callable[..., Any], argnums: int | tuple[int, ...], *, has_aux: bool
    ) -> Callable[..., Any]:
        """The Jacobian of a function in this form."""
        if self.mode != "jacve":
            make = jax.jacfwd if self.mode == "jacfwd" else jax.jacrev
            return make(fun, argnums, has_aux=has_aux)
        order = _Fitting(ids=self.ids)
        return jacve(fun, order, argnums, has_aux, kernel=self.kernel, pin=self.pin)


@dataclass(frozen=True)
class _Fitting(Auto):
    """An order where it fits the graph, which may depend on arguments' values; else reverse."""

    ids: tuple[int, ...] = ()

    def order(self, graph: Graph) -> tuple[int, ...]:
        """The ids of an order."""
        try:
            return graph.check_order(self.ids)
        except ValueError:
            return graph.reverse()


def own_modes(num_inputs: int, num_outputs: int) -> list[Form]:
    """JAX's own modes, the one with fewer passes first; reverse if both have as many."""
    modes = [Form("jacfwd"), Form("jacrev")]
    return modes if num_inputs < num_outputs else modes[::-1]


def all_forms(
    modes: Sequence[Form],
    graph: Graph,
    primitives: Sequence[str],
    seconds: float,
    *,
    kernels: bool,
    batched: bool = False,
    too_large: Callable[[Form], bool] = lambda form: False,
    refused: Callable[[Form], bool] = lambda form: False,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Form]:
    """The forms of a Jacobian; the search for an order begins when its turn comes.

    The first is a kernel, of which only a small one is compiled before JAX's own modes have been;
    one that was too large comes again: after the first mode if that took long, else after both. If
    none can be compiled, the cheapest order for XLA follows a first mode that took long.

    Args:
      modes: JAX's own.
      graph: the function's graph.
      primitives: names of the primitives of its program.
      seconds: the time that there is for all of them.
      kernels: whether to try one kernel as well as XLA.
      batched: whether there are many points, for which one kernel is most promising.
      too_large: whether a kernel was refused for its size.
      refused: whether a kernel was refused for any reason.
      clock: tells the time.
    """
    if len(graph.eliminable) > _MANY:  # even the classical orders take a while
        yield from modes
    ids = _orders(graph)
    price = {name: graph.cost(order, "operations") for name, order in ids.items()}
    kernels = kernels and min(price.values()) <= _LARGEST_KERNEL
    ranked = sorted(ids, key=lambda name: price[name])
    tried: set[tuple[Any, ...]] = set()

    def fresh(*wanted: Form) -> Iterator[Form]:
        for form in wanted:
            key = form.ids, form.kernel, form.pin
            if key not in tried and (kernels or form.kernel == "xla"):
                tried.add(key)
                yield form

    best = Form("jacve", ranked[0], ids[ranked[0]])
    if len(graph.eliminable) <= _MANY:
        yield from fresh(_fused(best))
        if too_large(_fused(best)):
            tried.clear()
        took_long = yield from _first(modes, _SLOW * seconds, clock)
        if took_long:  # the next may have no time
            yield from fresh(_fused(best))
            yield from fresh(best) if not kernels or refused(_fused(best)) else ()
        yield from modes[1:]
    first = (_fused(best), best) if batched else (best, _fused(best))
    yield from fresh(*first, Form("jacve", "reverse", ids["reverse"]))
    if EXPENSIVE.intersection(primitives):
        yield from fresh(
            Form("jacve", best.order, best.ids, pin=False),
            Form("jacve", best.order, best.ids, pin=True),
        )
    found = _searched(graph, best.ids, _SEARCHING * seconds, clock)
    searched = Form("jacve", "searched", found)
    yield from fresh(searched, _fused(searched))
    for name in ranked[1:]:
        form = Form("jacve", name, ids[name])
        yield from fresh(form, _fused(form))


def _first(
    modes: Sequence[Form], seconds: float, clock: Callable[[], float]
) -> Generator[Form, None, bool]:
    """The first mode; returns whether it took longer than some seconds."""
    began = clock()
    yield from modes[:1]
    return clock() - began > seconds


def _fused(form: Form) -> Form:
    return Form(form.mode, form.order, form.ids, "fused")


def _orders(graph: Graph) -> dict[str, tuple[int, ...]]:
    """The classical orders, and the best one that is shipped, if any is."""
    ids = {
        "reverse": graph.reverse(),
        "forward": graph.legal(graph.forward()),
        "markowitz": graph.legal(graph.markowitz()),
    }
    with contextlib.suppress(ValueError):
        ids["best"] = best_for(graph, "operations").ids_for(graph)
    return ids


def _searched(
    graph: Graph, start: Sequence[int], seconds: float, clock: Callable[[], float]
) -> tuple[int, ...]:
    """A cheaper order by hill climbing, which compiles nothing that would disturb the timing."""
    end, found = clock() + seconds, tuple(start)
    for better, _ in climb(graph, start, "operations"):
        found = better
        if clock() >= end:
            break
    return found
