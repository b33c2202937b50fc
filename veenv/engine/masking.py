"""Masks of stored values: where an entry is no number that happens to be zero, but none at all.

A select passes nothing on where it takes another case.  As a factor 0 it would turn what it shuts
out into NaN where that is infinite; so the zeros it makes are masked, and a masked zero times
anything is zero.  A mask is a boolean array of the rank of the values it belongs to, of size one
along the axes on which it does not depend, False where an entry is shut out; the values are zero
there.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from math import prod
from typing import Any

import numpy as np
from jax import Array, lax

SMALL = 1024
"""Entries up to which masks and zeros are constants, which are no equations to trace."""


def select(mask: Array | np.ndarray, x: Array, other: Any) -> Array:
    """As `jnp.where` for a mask of x's rank and an array or number; a plain select, no call."""
    shape = np.broadcast_shapes(mask.shape, x.shape)
    if not isinstance(other, Array):
        other = _filled(shape if prod(shape) <= SMALL else (), other, x.dtype)
    full = (
        v if v.shape == shape else lax.broadcast_in_dim(v, shape, range(v.ndim))
        for v in (mask, x, other)
    )
    return lax.select(*full)


@functools.lru_cache(maxsize=1024)
def _filled(shape: tuple[int, ...], value: float, dtype: Any) -> np.ndarray:
    filled = np.full(shape, value, dtype)
    filled.flags.writeable = False
    return filled


def align(mask: Array, labels: Sequence[Hashable], target: Sequence[Hashable]) -> Array:
    """A mask in the order of the target's labels, of size one along those that it has not.

    Labels that the target has not must be of size one.
    """
    gone = [i for i, a in enumerate(labels) if a not in target]
    if gone:
        mask, labels = lax.squeeze(mask, gone), [a for a in labels if a in target]
    kept = [a for a in target if a in labels]
    order = [labels.index(a) for a in kept]
    mask = mask if order == sorted(order) else mask.transpose(order)
    sizes = dict(zip(kept, mask.shape, strict=True))
    return mask.reshape([sizes.get(a, 1) for a in target])


def reduce(mask: Array, labels: Sequence[Hashable], keep: Sequence[Hashable]) -> Array:
    """Where any entry along the labels that are not kept is there; those are of size one then."""
    gone = [i for i, a in enumerate(labels) if a not in keep and mask.shape[i] != 1]
    return mask.any(axis=tuple(gone), keepdims=True) if gone else mask


def both(a: Array | None, b: Array | None) -> Array | None:
    """Where neither of two masks of one rank shuts an entry out; None is no mask."""
    if a is None or b is None:
        return b if a is None else a
    return a & b


def either(a: Array | None, b: Array | None) -> Array | None:
    """Where not both of two masks of one rank shut an entry out; None is no mask."""
    return None if a is None or b is None else a | b


def trivial(rank: int) -> Array:
    """The mask of values of a rank that shuts nothing out."""
    return np.ones((1,) * rank, bool)  # type: ignore[return-value]


def varying(mask: Array, labels: Sequence[Hashable]) -> list[Hashable]:
    """The labels on which a mask depends."""
    return [a for a, n in zip(labels, mask.shape, strict=True) if n != 1]
