"""Counts the operations in a jaxpr: an oracle that knows nothing of structures."""

from __future__ import annotations

from math import prod

import jax
import jax.numpy as jnp


def count_multiplications(jaxpr, also: tuple[str, ...] = (), of_complex: int = 1) -> int:
    """Scalar multiplications of all `mul` and `dot_general` equations, nested ones included.

    Args:
      jaxpr: open or closed.
      also: names of primitives each of whose elements counts as one, too.
      of_complex: as how many a multiplication of complex numbers counts.
    """
    total = 0
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        aval = eqn.outvars[0].aval
        size = prod(aval.shape) * (of_complex if jnp.iscomplexobj(aval) else 1)
        if eqn.primitive.name in ("mul", *also):
            total += size
        elif eqn.primitive.name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            total += size * prod(eqn.invars[0].aval.shape[a] for a in contracted)
        for value in eqn.params.values():
            for inner in jax.tree.leaves(value, is_leaf=lambda v: hasattr(v, "eqns")):
                if hasattr(getattr(inner, "jaxpr", inner), "eqns"):
                    total += count_multiplications(inner, also, of_complex)
    return total


def count_additions(jaxpr) -> int:
    """Scalar additions of all `add`, `sub`, `reduce_sum` and `dot_general` equations.

    Those of integers, which compute places in arrays, are not counted.
    """
    total = 0
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        inexact = jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.inexact)
        size = prod(eqn.outvars[0].aval.shape) if inexact else 0
        if eqn.primitive.name in ("add", "sub", "add_any"):
            total += size
        elif eqn.primitive.name == "reduce_sum":
            total += (prod(eqn.invars[0].aval.shape) - size) * inexact
        elif eqn.primitive.name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            total += size * (prod(eqn.invars[0].aval.shape[a] for a in contracted) - 1)
        for value in eqn.params.values():
            for inner in jax.tree.leaves(value, is_leaf=lambda v: hasattr(v, "eqns")):
                if hasattr(getattr(inner, "jaxpr", inner), "eqns"):
                    total += count_additions(inner)
    return total
