"""Counts the arithmetic of a jaxpr: scalar multiplications and additions.

It knows nothing of structures, so that it checks what they predict.
"""

from __future__ import annotations

from math import prod
from typing import Any

import jax.numpy as jnp

from veenv.rules import walk
from veenv.rules.table import facts


def multiplications_in(jaxpr: Any) -> int:
    """Counts scalar multiplications of a jaxpr, with bodies: its products and contractions."""
    total = 0
    for eqn in walk.every(jaxpr):
        size = prod(eqn.outvars[0].aval.shape) if eqn.outvars else 0
        known = facts(eqn.primitive.name)
        if known.multiplies:
            total += size
        elif known.form == "dot":
            contracted = eqn.params["dimension_numbers"][0][0]
            total += size * prod(eqn.invars[0].aval.shape[axis] for axis in contracted)
    return total


def additions_in(jaxpr: Any) -> int:
    """Counts scalar additions of a jaxpr, with bodies: its sums and contractions; no integers."""
    total = 0
    for eqn in walk.every(jaxpr):
        if not eqn.outvars or not jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.inexact):
            continue
        size = prod(eqn.outvars[0].aval.shape)
        known = facts(eqn.primitive.name)
        if eqn.primitive.name in ("add", "sub", "add_any"):
            total += size
        elif known.sums:
            total += prod(eqn.invars[0].aval.shape) - size
        elif known.form == "dot":
            contracted = eqn.params["dimension_numbers"][0][0]
            total += size * (prod(eqn.invars[0].aval.shape[axis] for axis in contracted) - 1)
    return total
