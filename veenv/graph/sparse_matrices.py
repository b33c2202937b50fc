"""Decomposes products with JAX's sparse matrices into gathers, products and scatters.

JAX has a primitive for each (`BCOO`, `BCSR`), of which derivatives and places are not told; in
others an entry of the matrix is seen to be a factor between two places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from veenv.rules import walk
from veenv.rules.axes import Product

_WRITTEN = {
    f"{kind}_{what}" for kind in ("bcoo", "bcsr") for what in ("todense", "extract", "transpose")
}
"""Operations that JAX implements by other primitives."""


def written_out(eqn: Any) -> Any | None:
    """Returns the jaxpr of a product with a sparse matrix, or of its dense form; None for the rest.

    None, too, where the matrix is a batch or has dense axes.
    """
    name = eqn.primitive.name
    if name in _WRITTEN:
        run = partial(eqn.primitive.impl, **eqn.params)
    elif name in ("bcoo_dot_general", "bcsr_dot_general"):
        run = _product(name, eqn.params)
    elif name == "bcoo_dot_general_sampled":
        return _sampled(walk.in_avals(eqn), eqn.params["dimension_numbers"])
    else:
        return None
    data, indices, *_ = avals = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in walk.in_avals(eqn)]
    plain = len(data.shape) == 1 and len(indices.shape) == 2 - name.startswith("bcsr")
    return jax.make_jaxpr(run)(*avals) if plain or name in _WRITTEN else None


def _product(name: str, params: Any) -> Callable[..., Any]:
    """Returns the product of an unbatched sparse matrix, the left factor, and an array."""
    shape, wanted = params["lhs_spinfo"].shape, params["preferred_element_type"]

    def product(data: Array, indices: Array, x: Array) -> Array:
        axes = Product.named(params["dimension_numbers"], (len(shape), x.ndim))
        (contracted_left, contracted_right), (free_left, free_right) = axes.summed, axes.free
        columns = x.transpose([*contracted_right, *free_right])
        index = tuple(indices[:, axis] for axis in contracted_left)
        met = columns.at[index].get(mode="fill", fill_value=0) if index else columns[None]
        each = data.reshape(-1, *(1 for _ in free_right)) * met
        sums = jnp.zeros(
            ([shape[a] for a in free_left] + [x.shape[a] for a in free_right]), each.dtype
        )
        places = tuple(indices[:, axis] for axis in free_left)
        total = sums.at[places].add(each, mode="drop") if places else each.sum(axis=0)
        return total if wanted is None else total.astype(wanted)

    def by_rows(data: Array, columns: Array, starts: Array, x: Array) -> Array:
        begun = jnp.zeros(len(columns) + 1, columns.dtype).at[starts].add(1)
        return product(data, jnp.stack([jnp.cumsum(begun)[:-1] - 1, columns], axis=1), x)

    return by_rows if name.startswith("bcsr") else product


def _sampled(avals: Sequence[Any], numbers: Any) -> Any | None:
    """Traces a product of arrays at sampled indices; None if it or the indices are batched."""
    axes = Product.named(numbers, [len(x.shape) for x in avals[:2]])
    contracted, free = axes.summed, axes.free
    if axes.batch[0] or len(avals[2].shape) > 2 or avals[2].shape[-1] != sum(map(len, free)):
        return None

    def sampled(left: Array, right: Array, indices: Array) -> Array:
        factors, start = [], 0
        for x, gone, axes_kept in zip((left, right), contracted, free, strict=True):
            index = tuple(indices[:, start + k] for k in range(len(axes_kept)))
            x = x.transpose([*axes_kept, *gone])
            factors.append(x.at[index].get(mode="fill", fill_value=0) if index else x[None])
            start += len(axes_kept)
        products = factors[0] * factors[1]
        sums = products.sum(axis=tuple(range(1, products.ndim)))
        return jnp.broadcast_to(sums, (len(indices),))

    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in avals]
    return jax.make_jaxpr(sampled)(*shapes)
