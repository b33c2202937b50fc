"""JAX's own mode in the place of an elimination: its blocks, where it does as well as `jacve`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, Literal

import jax
import jax.numpy as jnp

from veenv import _compat
from veenv.engine.blocks import all_blocks
from veenv.engine.choose import JaxMode
from veenv.engine.elimination import eliminate
from veenv.engine.finite import Bounds, has_infinite_partials, shut_out
from veenv.engine.passes import least_of_a_pass
from veenv.engine.stored import Edges
from veenv.engine.symmetry import Half
from veenv.graph.linearisation import Linearisation
from veenv.graph.program import Program
from veenv.rules.table import named
from veenv.structure.structure import Link

OwnMode = Literal["jacfwd", "jacrev"]
Name = Literal["auto", "reverse"]
"""An order in whose place a faster form may be taken."""
Blocks = list[tuple[Any, ...]]
"""For each output leaf, a block for each input leaf."""
_ABOUT = 3
"""Ratio of passes up to which either mode may be the faster one."""
_ALIKE = 1.5
"""Ratio of passes up to which they say nothing of which is."""
_FEWER = 2
"""Ratio of passes from which the reverse order is compared with the forward one."""
_MUCH = 10_000
"""Operations of the reverse order from which on it is compared with JAX's modes."""
_LESS = 0.5
"""Share of the reverse order's operations below which the forward one is compared with it."""


def own_modes(lin: Linearisation) -> tuple[OwnMode, ...]:
    """The modes of JAX that can take the place of an elimination: the one with fewer passes.

    It cannot where it would give other results: for numbers that are not all real and of one
    dtype; where there could be a product of 0 and infinity (`veenv.engine.finite`).
    It need not where the elimination is the passes of one operator, as of a single loop.

    Args:
      lin: the function.

    Returns:
      Its name; both names, the likelier one first, if both have about as many passes; none if none
      can.
    """
    program = lin.program
    inputs, outputs = program.avals[: program.num_inputs], program.out_avals
    avals = [*inputs, *outputs]
    if not (inputs and outputs and lin.realify) or any(not prod(a.shape) for a in avals):
        return ()
    if len({a.dtype for a in avals}) > 1 or not jnp.issubdtype(avals[0].dtype, jnp.floating):
        return ()
    if any(lin.reverse_only) or any(map(_refuses, program.equations)):
        return ()
    bounds = Bounds(program)
    if _is_one_operator(lin) or has_infinite_partials(lin, bounds):
        return ()
    modes = _of_fewer_passes(*num_passes(program))
    return tuple(m for m in modes if not shut_out(lin, bounds, reverse=m == "jacrev"))


def _of_fewer_passes(*passes: int) -> tuple[OwnMode, ...]:
    if max(passes) <= _ALIKE * min(passes):
        return "jacfwd", "jacrev"  # forward stores nothing on its way
    if max(passes) <= _ABOUT * min(passes):
        return ("jacfwd", "jacrev") if passes[0] < passes[1] else ("jacrev", "jacfwd")
    return ("jacfwd",) if passes[0] < passes[1] else ("jacrev",)


def other_blocks(
    lin: Linearisation, edges: Edges, ids: Sequence[int], name: Name | None, *, modes: bool
) -> list[Blocks]:
    """The blocks of the Jacobian by other orders that may well be faster, and give the same.

    Args:
      lin: the function.
      edges: its elemental edges.
      ids: the order that was asked for.
      name: its name; None if no other is wanted.
      modes: one of JAX's modes can take its place.
    """
    return [
        all_blocks(lin, eliminate(lin, edges, other).terms, Half(), sparse=False)
        for other in ([] if name is None else other_orders(lin, ids, name, modes=modes))
    ]


def other_orders(
    lin: Linearisation, ids: Sequence[int], name: Name, *, modes: bool
) -> list[tuple[int, ...]]:
    """Orders that may well be faster than one that was asked for by name.

    Args:
      lin: the function.
      ids: the order.
      name: its name.
      modes: one of JAX's modes can take its place.
    """
    graph = lin.graph
    if any(lin.reverse_only) or (name == "auto" and modes):
        return []
    found = [graph.forward()] if forward_instead(lin) else []
    if name == "auto":
        enough = _LESS * graph.cost(graph.reverse(), "operations")
        found += [graph.reverse()] if graph.cost(ids, "operations") > enough else []
    return [other for other in found if other != tuple(ids)]


def forward_instead(lin: Linearisation) -> bool:
    """Whether the forward order may well be faster than the reverse one, and gives the same.

    Without operators (loops, decompositions, solves) it has to do far fewer operations, or no more
    of them where either needs as many passes. With operators it needs far fewer of their passes, or
    not many more and far fewer operations.

    Args:
      lin: the function.
    """
    if any(lin.reverse_only):
        return False
    graph, (forward, reverse) = lin.graph, num_passes(lin.program)
    operators = _has_operators(lin)
    if operators and (forward > _ALIKE * reverse or _FEWER * forward <= reverse):
        return forward < reverse
    share = 1 if forward == reverse and not operators else _LESS
    limit = share * graph.cost(graph.reverse(), "operations")
    return graph.cost(graph.forward(), "operations") <= limit and limit > 0


def num_passes(program: Program) -> tuple[int, int]:
    """How many passes forward and reverse mode take: entries of the inputs and of the outputs."""
    avals = program.avals[: program.num_inputs], program.out_avals
    forward, reverse = (sum(prod(a.shape) for a in some) for some in avals)
    return forward, reverse


def _has_operators(lin: Linearisation) -> bool:
    return any(_operators(lin))


def _is_much(lin: Linearisation) -> bool:
    """Whether tracing JAX's modes, too, is little beside what the reverse order takes."""
    return lin.graph.cost(lin.graph.reverse(), "operations") >= _MUCH


def _is_one_operator(lin: Linearisation) -> bool:
    graph = lin.graph
    return sum(_operators(lin)) == 1 and not graph.cost(graph.reverse(), "operations")


def _operators(lin: Linearisation) -> Iterator[bool]:
    every = (e.partial for used in lin.elementals for e in used)
    return (partial.executed.link is Link.OPERATOR for partial in every)


def _refuses(equation: Any) -> bool:
    names, bodies = named(both=False), _compat.bodies(equation.params)
    return equation.primitive.name in names or any(_compat.holds(b, names) for b in bodies)


def other_modes(
    lin: Linearisation, name: Name | None, argnums: int | tuple[int, ...], *, has_aux: bool
) -> dict[OwnMode, JaxMode]:
    """JAX's own modes that may well be faster than an elimination, and give the same.

    What they differentiate is the function as it was traced, nested calls and all.

    Args:
      lin: the function's linearisation.
      name: the name of the order; None if no mode is wanted.
      argnums: by which of its positional arguments it is differentiated.
      has_aux: whether it returns ``(output, aux)``.

    Returns:
      For each mode's name, the likelier one first, a function of the function's arguments that
      returns the pair of what it returns and of its Jacobian, and the least that it does. The
      function raises one of `REFUSALS` if JAX does not have that mode of the function.
    """
    if name is None or not (name == "auto" or _has_operators(lin) or _is_much(lin)):
        return {}
    again = lin.program.again

    def twice(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        returned = again(*args, **kwargs)
        return (returned[0] if has_aux else returned), returned

    def mode(make: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        jacobian, returned = make(twice, argnums=argnums, has_aux=True)(*args, **kwargs)
        return returned, jacobian

    names = own_modes(lin)
    if not names:
        return {}
    makers = {"jacfwd": jax.jacfwd, "jacrev": jax.jacrev}
    passes = dict(zip(makers, num_passes(lin.program), strict=True))
    least = least_of_a_pass(lin)
    return {
        name: JaxMode(functools.partial(mode, makers[name]), passes[name] * least) for name in names
    }
