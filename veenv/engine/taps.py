"""A convolution by a small kernel as a sum of selections: one for each of its taps."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np

from veenv.engine.sparse.indexed import Indexed
from veenv.engine.sparse.numbers import Numbers
from veenv.engine.sparse.pattern import collected
from veenv.graph.equations import Equation

_MOST_TAPS = 256


def convolution(equation: Equation, kernel: np.ndarray | None, dtype: Any) -> Indexed | None:
    """The partial of a convolution by what it is of.

    Args:
      equation: of the primitive `conv_general_dilated`.
      kernel: the kernel's values; None if they are not known when tracing.
      dtype: of the entries.

    Returns:
      Its entries; None where the kernel has many taps.
    """
    found = None if kernel is None else products(equation)
    if found is None or kernel is None:
        return None
    rows, cols, at = found
    weights = kernel.reshape(-1)[at]
    there = np.flatnonzero(weights)
    if not len(there):
        return None
    shapes = equation.out_avals[0].shape, equation.in_avals[0].shape
    pattern, collect = collected(rows[there], cols[there], *shapes)
    return Indexed(pattern, Numbers(jnp.asarray(weights[there], dtype)).collected(collect), dtype)


def products(equation: Equation) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """What a convolution is the sum of.

    Returns:
      For each product of the sum the flat indices of the result, of the operand's element and of
      the kernel's; None where the kernel has many taps.
    """
    params = equation.params
    numbers = params["dimension_numbers"]
    shapes = (*(a.shape for a in equation.in_avals), equation.out_avals[0].shape)
    specs = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
    groups, batches = params["feature_group_count"], params["batch_group_count"]
    if prod(shapes[1]) > _MOST_TAPS:
        return None
    inside, weights, results = (
        np.arange(prod(shape)).reshape(shape).transpose(spec)
        for shape, spec in zip(shapes, specs, strict=True)
    )  # batch, channel, places; the kernel's out channel, in channel, places
    per_group, per_batch = weights.shape[0] // groups, weights.shape[0] // batches
    found = []
    for tap in product(*map(range, weights.shape[2:])):
        at, there = source(params, tap, results.shape[2:], inside.shape[2:])
        for o, i in product(range(weights.shape[0]), range(weights.shape[1])):
            channel = o // per_group * weights.shape[1] + i
            points = slice(o // per_batch * len(results), (o // per_batch + 1) * len(results))
            rows = results[:, o][(slice(None), *there)].reshape(-1)
            cols = inside[points, channel][(slice(None), *at)].reshape(-1)
            found.append((rows, cols, np.full(rows.size, weights[(o, i, *tap)])))
    rows, cols, of_kernel = (np.concatenate(x) for x in zip(*found, strict=True))
    return rows, cols, of_kernel


def source(params: Any, tap: Any, out_sizes: Any, in_sizes: Any) -> tuple[Any, Any]:
    """Indices along each axis of what a tap reads, and of the results it is read for."""
    at, there = [], []
    for axis, k in enumerate(tap):
        (low, _), stride = params["padding"][axis], params["window_strides"][axis]
        spread, dilation = params["lhs_dilation"][axis], params["rhs_dilation"][axis]
        results = np.arange(out_sizes[axis])
        place = results * stride - low + k * dilation
        fits = (place >= 0) & (place % spread == 0) & (place // spread < in_sizes[axis])
        at.append(place[fits] // spread)
        there.append(results[fits])
    return np.ix_(*at), np.ix_(*there)
