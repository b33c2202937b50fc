"""Labelled values and their masks: the sums and multiplications of products of edges."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from veenv import _compat
from veenv.engine import masking
from veenv.structure.contraction import Label


class Factor(NamedTuple):
    """Values, the labels of their axes and their mask."""

    values: Array
    labels: list[Label]
    mask: Array | None


def sum_out(factor: Factor, keep: Sequence[Label]) -> Factor:
    """Sums the labels not in `keep`; what remains is in keep's order."""
    x, labels, mask = factor
    gone = [i for i, a in enumerate(labels) if a not in keep]
    if gone:
        x = x.sum(axis=tuple(gone))
    kept = [a for a in dict.fromkeys(keep) if a in labels]
    if mask is not None:
        mask = masking.align(masking.reduce(mask, labels, kept), labels, kept)
    labels = [a for a in labels if a in keep]
    order = [labels.index(a) for a in kept]
    return Factor(x if order == sorted(order) else x.transpose(order), kept, mask)


def combine(x: Factor, y: Factor, target: list[Label]) -> tuple[Array, Array | None]:
    """The one place where two edges' values are multiplied: values and mask of the product.

    What the mask of one factor shuts out is zero in the other one, too, before they are multiplied:
    it may be infinite.  In a large sum this is done where a mask shuts out all that an entry
    of the other factor meets, not product by product.
    """
    x = sum_out(x, [*target, *y.labels])
    y = sum_out(y, [*target, *x.labels])
    dtype = _compat.promoted(x.values.dtype, y.values.dtype)
    x, y = (f._replace(values=jnp.asarray(f.values).astype(dtype)) for f in (x, y))
    summed = [a for a in x.labels if a not in target]
    if not summed:
        return _times(x, y, target)
    if _is_mixed(x, y) or _is_mixed(y, x):
        every = [*target, *summed]
        if prod(_sizes(x, y).values()) <= _SMALL:
            values, mask = _times(x, y, every)
            found = sum_out(Factor(values, every, mask), target)
            return found.values, found.mask
    masks = [_mask_for(f, target, target) for f in (x, y)]
    if x.mask is not None or y.mask is not None:
        x, y = _shut_out(x, y), _shut_out(y, x)
    mask = masking.both(*masks)
    return _dot(x.values, x.labels, y.values, y.labels, target), mask


_SMALL = 1 << 14
"""Most products of a sum that are masked one by one."""


def _sizes(*factors: Factor) -> dict[Label, int]:
    return {a: n for f in factors for a, n in zip(f.labels, f.values.shape, strict=True)}


def _is_mixed(x: Factor, y: Factor) -> bool:
    """Whether x's mask depends on more than y's labels."""
    return x.mask is not None and not set(masking.varying(x.mask, x.labels)) <= {*y.labels}


def _mask_for(x: Factor, keep: Sequence[Label], target: Sequence[Label]) -> Array | None:
    """Mask over the target's labels: where x has any entry along those of its labels not kept."""
    if x.mask is None:
        return None
    kept = [a for a in keep if a in x.labels]
    mask = masking.align(masking.reduce(x.mask, x.labels, kept), x.labels, kept)
    return masking.align(mask, kept, target)


def _shut_out(x: Factor, y: Factor) -> Factor:
    """The factor x with zeros where y's mask shuts out all that they would be multiplied by."""
    mask = _mask_for(y, x.labels, x.labels)
    return x if mask is None else x._replace(values=masking.select(mask, x.values, 0))


def _times(x: Factor, y: Factor, target: list[Label]) -> tuple[Array, Array | None]:
    """The products of two factors over the target's labels, each once."""
    sizes = _sizes(x, y)
    shape = [sizes[a] for a in target]
    full = []
    for f, other in ((x, y), (y, x)):
        v, names = _ordered(f.values, f.labels, target)
        if list(v.shape) != shape:
            v = lax.broadcast_in_dim(v, shape, [target.index(a) for a in names])
        mask = _mask_for(other, target, target)
        full.append(v if mask is None else masking.select(mask, v, 0))
    masks = [_mask_for(f, target, target) for f in (x, y)]
    return lax.mul(*full), masking.both(*masks)


def _dot(
    x: Array, x_labels: list[Label], y: Array, y_labels: list[Label], target: list[Label]
) -> Array:
    """Sum over the labels that both have and the target has not; the larger operand on the left."""
    if x.size < y.size:
        x, x_labels, y, y_labels = y, y_labels, x, x_labels
    summed = [a for a in x_labels if a not in target]
    joint = [a for a in target if a in x_labels and a in y_labels]
    own = [[a for a in target if a in labels and a not in joint] for labels in (x_labels, y_labels)]
    x, x_labels = _ordered(x, x_labels, [*joint, *own[0], *summed])
    y, y_labels = _ordered(y, y_labels, [*joint, *summed, *own[1]])
    batch = tuple(range(len(joint)))
    numbers = (
        (
            tuple(x_labels.index(a) for a in summed),
            tuple(y_labels.index(a) for a in summed),
        ),
        (batch, batch),
    )
    return _ordered(lax.dot_general(x, y, numbers), [*joint, *own[0], *own[1]], target)[0]


def _ordered(x: Array, labels: list[Label], target: list[Label]) -> tuple[Array, list[Label]]:
    kept = [a for a in target if a in labels]
    order = [labels.index(a) for a in kept]
    return (x if order == sorted(order) else x.transpose(order)), kept
