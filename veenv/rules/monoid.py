"""Reductions by any function, from an initial value, which JAX takes for a constant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from veenv import _compat
from veenv.rules import walk
from veenv.rules.base import Partial, Row, Site, Values, register
from veenv.rules.operator import generic
from veenv.structure.structure import dense


@register("reduce", "reduce_window")
def reduction(site: Site) -> Sequence[Row]:
    """JAX's own rule by the operands; by an initial value, zero where it is the identity.

    Called with such a value, JAX takes the reduction without one (a sum, say), so its derivative
    by it is zero; it has none by another value.

    Raises:
      NotImplementedError: (from the thunks) for a derivative by an initial value that is not the
        identity of a sum, product, maximum or minimum, or that a compiled program computes.
    """
    count = len(site.in_avals) // 2
    rows = [list(row) for row in generic(site, range(count))]
    for i in (i for i in range(count, len(site.in_avals)) if site.active[i]):
        for k, aval in enumerate(site.out_avals):
            structure = dense(aval.shape, ())
            rows[k][i] = Partial(structure, structure, _zero(site, i), mask=_nowhere(site, k))
    return rows


def _zero(site: Site, i: int) -> Callable[[Values, Values], Array]:
    """Zeros, if operand i is the identity of the reduction."""

    def values(ins: Values, _outs: Values) -> Array:
        identity = _identity(site)
        start = ins[i]
        if identity is None or _compat.is_traced(start) or np.asarray(start) != identity:
            raise NotImplementedError(
                f"primitive {site.primitive.name!r} has no derivative by its initial value, other "
                f"than the identity of a sum, product, maximum or minimum ({site.source})"
            )
        return jnp.zeros([n for n in site.out_avals[0].shape if n != 1], site.out_avals[0].dtype)

    return values


def _nowhere(site: Site, k: int) -> Callable[[Values, Values], Array]:
    return lambda ins, outs: jnp.zeros([1 for n in site.out_avals[k].shape if n != 1], bool)


def _identity(site: Site) -> Any:
    """The identity of a reduction of one operand by one primitive; None for any other."""
    inner = [equation.primitive.name for equation in walk.every(site.params["jaxpr"])]
    if len(site.in_avals) != 2 or len(inner) != 1:
        return None
    return {"add": 0, "mul": 1, "max": -np.inf, "min": np.inf}.get(inner[0])
