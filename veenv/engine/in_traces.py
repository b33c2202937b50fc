"""In a trace: an elimination by XLA or as one kernel, or JAX's own mode, as predicted."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax

from veenv import _compat
from veenv.engine.choice import Choice
from veenv.engine.traced_modes import JaxMode, TracedModes
from veenv.kernel.fusing import Traced, trace_leaves, trace_point
from veenv.kernel.parts import part_of

Results = tuple[list[Any], list[JaxMode]]
"""Of the elimination and of those by other orders, of none where only a mode of JAX is wanted;
JAX's own modes, whose results are the same."""
Forms = Callable[[Sequence[Any], dict[str, Any], bool], Results]
"""From positional and keyword arguments, and whether other forms are wanted, to results."""
_KEPT = 1.1
"""How many times the time of the fastest form an elimination is predicted to take that is not
kept."""
_FORWARD = 1.2
"""The same of forward mode where a function is loops: backwards they take longer to compile."""


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
        modes: list[JaxMode] = []

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
            modes_alone, others = own.split()
            if modes_alone:
                loops = Choice(modes_alone, others, _FORWARD)
                return loops.result(kernel=False, batched=kernel)
            traced = trace(lambda *args, **kwargs: forms(args, kwargs, False)[0])
        known = kernel and alike
        choice = Choice(_separate(traced), own, _KEPT if kept else None)
        return choice.result(kernel=known, batched=known)

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
