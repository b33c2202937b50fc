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
      Its entries; None where the kernel has many taps, or there are groups of channels.
    """
    params = equation.params
    groups = params["feature_group_count"], params["batch_group_count"]
    if kernel is None or kernel.size > _MOST_TAPS or groups != (1, 1):
        return None
    numbers = params["dimension_numbers"]
    lhs, rhs, out = (tuple(s) for s in (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec))
    in_shape, out_shape = equation.in_avals[0].shape, equation.out_avals[0].shape
    inside = np.arange(prod(in_shape)).reshape(in_shape).transpose(lhs)  # batch, channel, places
    results = np.arange(prod(out_shape)).reshape(out_shape).transpose(out)
    weights = kernel.transpose(rhs)  # out channel, in channel, places
    rows, cols, values = [], [], []
    for tap in product(*map(range, weights.shape[2:])):
        at, there = _source(params, tap, results.shape[2:], inside.shape[2:])
        for o, i in product(range(weights.shape[0]), range(weights.shape[1])):
            if weights[(o, i, *tap)] != 0:
                rows.append(results[:, o][(slice(None), *there)].reshape(-1))
                cols.append(inside[:, i][(slice(None), *at)].reshape(-1))
                values.append(np.full(rows[-1].size, weights[(o, i, *tap)]))
    if not rows:
        return None
    pattern, collect = collected(np.concatenate(rows), np.concatenate(cols), out_shape, in_shape)
    weights = Numbers(jnp.asarray(np.concatenate(values), dtype))
    return Indexed(pattern, weights.collected(collect), dtype)


def _source(params: Any, tap: Any, out_sizes: Any, in_sizes: Any) -> tuple[Any, Any]:
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
