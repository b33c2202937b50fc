"""What JAX's own modes multiply at least: so much that an elimination is faster, or not known."""

from __future__ import annotations

from collections import Counter
from math import prod

import jax.numpy as jnp

from veenv.graph.equations import Equation, Var
from veenv.graph.linearisation import Linearisation
from veenv.rules.table import facts


def least_of_a_pass(lin: Linearisation) -> int:
    """Multiplications that one pass of either mode does for each point of a batch, at least.

    A pass goes through the elemental partials. For one that holds numbers it multiplies as many
    times as these are, or the variable of more entries has, as it may know better than to multiply
    by all of a matrix. Left out is what is done once for a batch, as it is the same at all points;
    what JAX does by rules of its own; and functions of which XLA may compute a part only.

    Args:
      lin: the function.
    """
    program = lin.program
    if any(jnp.issubdtype(a.dtype, jnp.complexfloating) for a in program.avals):
        return 0
    varies = set(range(program.num_inputs))
    taken: Counter[Var] = Counter()
    whole = {*range(program.num_inputs), *(v for v in program.outputs if isinstance(v, Var))}
    total = 0
    for equation, used, custom in zip(program.equations, lin.elementals, lin.customs, strict=True):
        operands = [k for k, x in enumerate(equation.inputs) if _is_in(x, varies)]
        cut = facts(equation.primitive.name).leaves_out  # XLA computes nothing for those
        whole.update(x for x in equation.inputs[cut:] if isinstance(x, Var))
        if cut and isinstance(equation.inputs[0], Var):
            taken[equation.inputs[0]] += sum(prod(a.shape) for a in equation.out_avals)
        if operands:
            varies.update(v for v in equation.outputs if v is not None)
        if custom is None and _multiplies(equation, operands):
            every = (elemental.partial.executed for elemental in used)
            total += sum(min(s.num_values, max(prod(s.out_shape), prod(s.in_shape))) for s in every)
    in_part = (v for v, n in taken.items() if n < prod(program.avals[v].shape))
    return 0 if any(v not in whole for v in in_part) else total


def _is_in(operand: object, some: set[Var]) -> bool:
    return isinstance(operand, Var) and operand in some


def _multiplies(equation: Equation, varying: list[int]) -> bool:
    """Whether a pass multiplies by numbers that are others at each point.

    Args:
      equation: the equation.
      varying: its operands that are others at each point.
    """
    known = facts(equation.primitive.name)
    if known.bilinear:
        return len(varying) > 1
    if known.name == "div":
        return 1 in varying
    return bool(varying) and known.elementwise and known.slope == "values"
