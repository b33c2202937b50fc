"""Counts the operations in a jaxpr: an oracle that knows nothing of structures."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import jax
import jax.numpy as jnp


def _equations(jaxpr: Any) -> Iterator[Any]:
    """The equations of a jaxpr, open or closed, nested ones included."""
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield eqn
        for value in eqn.params.values():
            for inner in jax.tree.leaves(value, is_leaf=lambda v: hasattr(v, "eqns")):
                if hasattr(getattr(inner, "jaxpr", inner), "eqns"):
                    yield from _equations(inner)


def _contracted(eqn: Any) -> int:
    """The number of terms of each sum of a `dot_general`."""
    (axes, _), _ = eqn.params["dimension_numbers"]
    return prod(eqn.invars[0].aval.shape[a] for a in axes)


def count_multiplications(jaxpr: Any) -> int:
    """Scalar multiplications of all `mul` and `dot_general` equations, nested ones included."""
    total = 0
    for eqn in _equations(jaxpr):
        size = prod(eqn.outvars[0].aval.shape)
        if eqn.primitive.name == "mul":
            total += size
        elif eqn.primitive.name == "dot_general":
            total += size * _contracted(eqn)
    return total


def count_additions(jaxpr: Any) -> int:
    """Scalar additions of all `add`, `sub`, `reduce_sum` and `dot_general` equations.

    Those of integers, which compute places in arrays, are not counted.
    """
    total = 0
    for eqn in _equations(jaxpr):
        inexact = jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.inexact)
        size = prod(eqn.outvars[0].aval.shape) if inexact else 0
        if eqn.primitive.name in ("add", "sub", "add_any"):
            total += size
        elif eqn.primitive.name == "reduce_sum":
            total += (prod(eqn.invars[0].aval.shape) - size) * inexact
        elif eqn.primitive.name == "dot_general":
            total += size * (_contracted(eqn) - 1)
    return total
