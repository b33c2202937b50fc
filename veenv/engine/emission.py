"""JAX's own mode in the place of an elimination: its blocks, where it does as well as `jacve`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Literal

import jax
import jax.numpy as jnp

from veenv import _compat
from veenv.graph.linearisation import Linearisation
from veenv.graph.program import Literal as Constant
from veenv.graph.program import Program

OwnMode = Literal["jacfwd", "jacrev"]
_OF_ONE_MODE = frozenset(
    "while linear_call custom_lin custom_vjp_call custom_vjp_call_jaxpr pure_callback io_callback "
    "run_state".split()
)
"""Primitives that one of the modes refuses, or that do more than compute."""
_ABOUT = 1.5
"""Ratio of passes up to which either mode may be the faster one."""
_ROOTS = frozenset("sqrt cbrt pow asin acos acosh".split())
"""Primitives with infinite partials at finite values: a mode multiplies them by its zeros."""


def own_modes(lin: Linearisation) -> tuple[OwnMode, ...]:
    """The modes of JAX that can take the place of an elimination: the one with fewer passes.

    It cannot where it would give other results: for numbers that are not all real and of one
    dtype; where there could be a product of 0 and infinity, as a select has to keep what is not
    chosen out, or as a root has an infinite partial, while the entry next to it is a known zero.

    Args:
      lin: the function.

    Returns:
      Its name, both names if both have about as many passes; none if none can.
    """
    program = lin.program
    inputs, outputs = program.avals[: program.num_inputs], program.out_avals
    avals = [*inputs, *outputs]
    if not (inputs and outputs and lin.realify) or any(not prod(a.shape) for a in avals):
        return ()
    if len({a.dtype for a in avals}) > 1 or not jnp.issubdtype(avals[0].dtype, jnp.floating):
        return ()
    if _selects(lin) or any(lin.reverse_only) or any(map(_refuses, program.equations)):
        return ()
    passes = [sum(prod(a.shape) for a in some) for some in (inputs, outputs)]
    if max(passes) <= _ABOUT * min(passes):
        return "jacfwd", "jacrev"
    return ("jacfwd",) if passes[0] < passes[1] else ("jacrev",)


def _selects(lin: Linearisation) -> bool:
    """Whether a partial has a mask, those of custom rules included."""
    inner = [c.linearisation for c in lin.customs if c is not None]
    masked = any(e.partial.mask is not None for used in lin.elementals for e in used)
    return masked or any(map(_selects, inner))


def _refuses(equation: Any) -> bool:
    names, bodies = _OF_ONE_MODE, _compat.bodies(equation.params)
    name = equation.primitive.name
    return name in names | _ROOTS or any(_compat.holds(b, names) for b in bodies)


def own_blocks(lin: Linearisation, inputs: Sequence[Any], mode: OwnMode) -> list[tuple[Any, ...]]:
    """The blocks of the Jacobian by one of JAX's modes.

    Args:
      lin: the function, one that has this mode.
      inputs: value of each input leaf.
      mode: the mode.

    Returns:
      For each output leaf of shape ``o`` a block of shape ``o + i`` for each input leaf.
    """
    make: Callable[..., Any] = jax.jacfwd if mode == "jacfwd" else jax.jacrev
    program = lin.program

    def run(*inputs: Any) -> list[Any]:
        return _run(program, inputs)

    return make(run, argnums=tuple(range(len(inputs))))(*inputs)


def _run(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of a program at values of its inputs."""
    values: dict[int, Any] = dict(enumerate([*inputs, *program.constants]))

    def read(atom: Any) -> Any:
        return atom.value if isinstance(atom, Constant) else values[atom]

    for equation in program.equations:
        outs = _compat.bind(equation.primitive, equation.params, map(read, equation.inputs))
        for variable, value in zip(equation.outputs, outs, strict=True):
            if variable is not None:
                values[variable] = value
    return [jnp.asarray(read(o)) for o in program.outputs]
