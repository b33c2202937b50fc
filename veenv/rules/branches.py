"""Which branch of a `cond` was taken, as a mask of its partials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from veenv import _compat
from veenv.rules import walk
from veenv.rules.base import Site, Values


def taken(site: Site, result: int, operand: int) -> Callable[[Values], Array] | None:
    """Whether the branch that was taken leads from an operand to a result.

    Returns:
      Function of the operands' values giving one boolean; None if every branch does, or the
      equation has no branches.
    """
    if site.primitive.name != "cond":
        return None
    leads = [_leads(branch, operand - 1, result) for branch in site.params["branches"]]
    if all(leads):
        return None

    def mask(ins: Values) -> Array:
        which = jnp.clip(jnp.asarray(ins[0], jnp.int32), 0, len(leads) - 1)
        return lax.dynamic_index_in_dim(jnp.asarray(leads), which, keepdims=False)

    return mask


def _leads(branch: Any, operand: int, result: int) -> bool:
    """Whether a result of a closed jaxpr depends on an operand in any way."""
    jaxpr = _compat.open_jaxpr(branch)
    out = jaxpr.outvars[result]
    found = walk.dependent(jaxpr, [jaxpr.invars[operand]])
    return not walk.is_literal(out) and out in found
