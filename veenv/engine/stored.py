"""How edges store values: labelled axes, spread, repeated, with the zeros of δs where wanted.

A function with a counterpart in `veenv.structure` gives exactly the structure that it predicts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from veenv.engine.masking import SMALL, align, select, trivial
from veenv.linear.barrier import pin
from veenv.linear.linear_map import LinearMap
from veenv.structure import structure as algebra
from veenv.structure.contraction import Label, labels_of, sizes_of
from veenv.structure.structure import FREE, Link, Structure


@dataclass(frozen=True)
class Edge:
    """A partial derivative: its structure, values, sign and linear map.

    Attributes:
      structure: what the values mean.
      values: array of shape ``structure.value_shape``; None if the structure is unit.
      dtype: dtype of the values, or what a unit edge becomes when stored.
      sign: +1 or -1, a factor of every entry (kept aside: a sign is no multiplication).
      link: the linear map of the link, on the linked axes; None without link.
      mask: which values are not shut out by a select (`veenv.engine.masking`); None: all.
    """

    structure: Structure
    values: Array | None
    dtype: Any
    sign: int = 1
    link: LinearMap | None = None
    mask: Array | None = None


Edges = dict[tuple[int, int], Edge]
"""Edges by (source, target)."""


def with_mask(e: Edge) -> Edge:
    """The edge with a mask, which shuts nothing out if it had none.

    The zeros that are stored of it from then on, of its δs and its link, are masked.
    """
    return replace(e, mask=trivial(len(labels_of(e.structure)))) if e.mask is None else e


def moved(e: Edge, move: Callable[[Edge], Edge]) -> Edge:
    """`move` of an edge, which may only put its values into other places; its mask goes along."""
    result = move(replace(e, mask=None))
    if e.mask is None:
        return result
    shape = () if e.values is None else e.values.shape
    there = lax.broadcast_in_dim(e.mask, shape, range(len(shape))).astype(e.dtype)
    shadow = move(Edge(e.structure, there, e.dtype, 1, e.link))
    assert shadow.values is not None
    return replace(result, mask=lax.ne(shadow.values, jnp.zeros_like(shadow.values)))


def stored_values(e: Edge) -> Array:
    """The values with the sign applied; a unit edge gives one number."""
    values = jnp.ones((), e.dtype) if e.values is None else e.values
    return -values if e.sign < 0 else values


def arranged(x: Array, labels: Sequence[Label], target: Sequence[Label]) -> Array:
    """Values with their axes, which have `labels`, in the order of the target's."""
    order = [labels.index(a) for a in target if a in labels]
    return x if order == sorted(order) else lax.transpose(x, order)


def spread(x: Array, labels: Sequence[Label], target: Sequence[Label], sizes: Any) -> Array:
    """Broadcasts values over further labels and puts them in the target's order."""
    kept = [target.index(a) for a in target if a in labels]
    return lax.broadcast_in_dim(arranged(x, labels, target), [sizes[a] for a in target], kept)


def expand_pairs(e: Edge, axes: Sequence[int]) -> Edge:
    """Stores the zeros of the δs at out axes `axes`."""
    s = e.structure
    if not axes:
        return e
    target = algebra.expand_pairs(s, tuple(axes))
    labels, sizes = labels_of(target), sizes_of(target)
    # A valued pair's values are stored under its out axis.
    x = spread(pin(stored_values(e)), labels_of(s), labels, sizes)
    mask = None if e.mask is None else align(e.mask, labels_of(s), labels)
    for k in axes:
        same = _equal(labels, sizes, ("out", k), ("in", s.pairs[k]))
        x = select(same, x, 0)
        mask = None if mask is None else mask & same
    return Edge(target, x, e.dtype, 1, e.link, mask)


def _equal(labels: list[Label], sizes: dict[Label, int], a: Label, b: Label) -> Array | np.ndarray:
    """Mask over the labels that is true where the indices of `a` and `b` agree."""
    shape = [sizes[x] if x in (a, b) else 1 for x in labels]
    if prod(shape) <= SMALL:
        return _same(sizes[a]).reshape(shape)
    along = [lax.broadcasted_iota(jnp.int32, shape, labels.index(x)) for x in (a, b)]
    return lax.eq(*along)


@functools.lru_cache(maxsize=64)
def _same(size: int) -> np.ndarray:
    same = np.eye(size, dtype=bool)
    same.flags.writeable = False
    return same


def broken(s: Structure, target: Structure) -> list[int]:
    """Out axes of the δs that the target has not."""
    return [k for k, j in enumerate(s.pairs) if j != FREE and target.pairs[k] == FREE]


def respread(e: Edge, target: Structure) -> Edge:
    """The edge with its values repeated along axes that only the target has valued.

    The link, if any, is left out; a target with link values stores them on the same side.
    """
    values = jnp.ones((), e.dtype) if e.values is None else e.values
    labels, have = labels_of(target), labels_of(e.structure)
    x = spread(values, have, labels, sizes_of(target))
    mask = None if e.mask is None else align(e.mask, have, labels)
    return Edge(target, x, e.dtype, e.sign, mask=mask)


def respread_entries(values: Array, s: Structure) -> Array:
    """Values repeated to every entry: along out axes, the link, then unpaired in axes."""
    target = replace(
        s,
        out_values=tuple(k not in s.link_out for k in range(len(s.out_shape))),
        in_values=tuple(j not in s.link_in and j not in s.pairs for j in range(len(s.in_shape))),
        link_values=s.link is not Link.NONE,
        unit=False,
    )
    return spread(values, labels_of(s), labels_of(target), sizes_of(target))
