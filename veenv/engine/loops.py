"""Functions that are loops: whose Jacobian is the passes of their `scan`s in any order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

from veenv import _compat
from veenv.engine.choose import JaxMode
from veenv.engine.emission import OwnMode, num_passes
from veenv.graph.equations import Equation
from veenv.graph.linearisation import Elemental, Linearisation
from veenv.graph.program import Program
from veenv.kernel.fusable import refuse_unknown
from veenv.kernel.price import kernel_size
from veenv.kernel.program import CannotFuseError
from veenv.structure.structure import FREE

_MOST = 0.75
"""Share of a function's entries that its loops compute, from which on it is nothing else; and share
of the function's passes that a loop must take."""
_LEAST = 0.75
"""Operations of a kernel for each entry that a loop and its passes compute, about."""
_TRACED = 3
"""Equations of a Jacobian for each of its function, about."""


def modes_of_loops(lin: Linearisation, modes: Mapping[OwnMode, JaxMode]) -> list[JaxMode]:
    """Of JAX's modes those that are compared where a function is loops; none elsewhere.

    Forward mode comes first, and is alone if it takes no more passes: backwards a loop is run
    twice, and what it computes is stored at each step.

    Args:
      lin: the function.
      modes: those that can take the place of an elimination.
    """
    if not (modes and are_loops(lin)):
        return []
    forward, reverse = num_passes(lin.program)
    found = [modes[name] for name in ("jacfwd", "jacrev") if name in modes]
    return found[:1] if forward <= reverse else found


def are_loops(lin: Linearisation) -> bool:
    """Whether no elimination does better than JAX's own mode, seen without tracing one.

    Nearly all that the function computes is in its `scan`s; each takes about as many passes as the
    function itself, as nothing before or behind it is narrower; and they are too long for a kernel.

    Args:
      lin: the function, of which JAX has a mode that can take the place of an elimination.
    """
    program = lin.program
    loops = [
        k
        for k, e in enumerate(program.equations)
        if e.primitive.name == "scan" and lin.elementals[k]
    ]
    inside = sum(_entries(program.equations[k]) for k in loops)
    if not loops or inside < _MOST * sum(map(_entries, program.equations)):
        return False
    passes = min(num_passes(program))
    if any(_narrowest(lin, lin.elementals[k]) < _MOST * passes for k in loops):
        return False
    if any(map(_cannot_be_kernel, (program.equations[k] for k in loops))):
        return True
    equations = _TRACED * len(program.equations)
    return _LEAST * inside * (1 + passes) > kernel_size(equations)


def _entries(equation: Equation) -> int:
    """How many numbers an equation computes, those of each step of a loop."""
    own = sum(prod(a.shape) for a in equation.out_avals)
    return own + _within(equation.primitive.name, equation.params)


def _within(name: str, params: dict[str, Any]) -> int:
    """As `_entries`, of the bodies of an equation."""
    steps = params["length"] if name == "scan" else 1
    return steps * sum(
        sum(prod(v.aval.shape) for v in e.outvars) + _within(e.primitive.name, e.params)
        for body in _compat.bodies(params)
        for e in body.eqns
    )


def _narrowest(lin: Linearisation, used: Iterable[Elemental]) -> int:
    """How many numbers a Jacobian goes through at a loop: of its operands or of its results.

    None where a partial is diagonal somewhere: that takes fewer passes than there are numbers.
    """
    used = list(used)
    if any(e.partial.diagonal or {*e.partial.executed.pairs} - {FREE} for e in used):
        return 0
    sources, targets = {e.source for e in used}, {e.target for e in used}
    return min(_size(lin.program, nodes) for nodes in (sources, targets))


def _size(program: Program, nodes: Iterable[int]) -> int:
    """How many numbers inputs and vertices have."""
    count, vertices = program.num_inputs, program.vertex_variables
    variables = (n if n < count else vertices[n - count] for n in nodes)
    return sum(prod(program.avals[v].shape) for v in variables)


def _cannot_be_kernel(loop: Equation) -> bool:
    try:
        refuse_unknown(_compat.open_jaxpr(loop.params["jaxpr"]))
    except CannotFuseError:
        return True
    return False
