"""Gather, scatter and dynamic slices in the forms that indexing gives them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.engine.corpus.case import case, distinct, normal

V = distinct(5)
X = normal(3, 4)
I = np.array([3, 0, 3, 1])  # noqa: E741


def _batched_gather(x):
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(1,),
        start_index_map=(1,),
        operand_batching_dims=(0,),
        start_indices_batching_dims=(0,),
    )
    return lax.gather(jnp.sin(x), np.array([[[1]], [[3]], [[0]]]), numbers, (1, 1)) * x[:, :1]


def _batched_scatter(x):
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(),
        inserted_window_dims=(1,),
        scatter_dims_to_operand_dims=(1,),
        operand_batching_dims=(0,),
        scatter_indices_batching_dims=(0,),
    )
    return lax.scatter_add(x * x, np.array([[[1]], [[3]], [[0]]]), x[:, :1], numbers)


GATHERS = [
    case("integer_index", lambda v: v[2] * jnp.sin(v[-1]) * v, V),
    case("index_array", lambda v: (v * v)[I] * jnp.arange(1.0, 5.0), V),
    case("index_two_axes", lambda x: jnp.exp(x)[np.array([0, 2, 0]), np.array([1, 3, 1])] ** 2, X),
    case("index_rows", lambda x: x[np.array([2, 2, 0])] @ x.T, X),
    case("index_columns_matrix", lambda x: (x * x)[:, np.array([[0, 1], [3, 3]])], X),
    case("boolean_mask", lambda v: v[np.array([True, False, True, True, False])] ** 2, V),
    case("take_fill", lambda v: jnp.take(v * v, np.array([1, 9, 0]), mode="fill", fill_value=2.0),
        V),
    case("take_clip_wrap", lambda v: (jnp.take(v, np.array([1, 9]), mode="clip") * jnp.take(v,
        np.array([-2, 7]), mode="wrap")), V),
    case("take_along_axis", lambda x: jnp.take_along_axis(x, np.array([[1], [0], [3]]), 1) * x, X),
    case("traced_index", lambda v, i: v[i] * v[i + 1] * v, V, np.array(2)),
    case("traced_index_array", lambda x, i: x[i] * 2 - x[:2], X, np.array([2, 1])),
    case("computed_index", lambda v: v[jnp.argmax(v)] * v[jnp.argsort(v)[:2]], V),
    case("gather_batching_axes", _batched_gather, X),
    case("one_hot_lookup", lambda x: jax.nn.one_hot(I, 3) @ jnp.sin(x), X),
]  # fmt: skip

SCATTERS = [
    case("set_one", lambda v: (v * 2).at[1].set(v[0] * v[2]) * v, V),
    case("set_slice", lambda x: jnp.sin(x).at[1:, ::2].set(x[:2, :2] ** 2), X),
    case("set_array", lambda v: (v * v).at[np.array([0, 3])].set(jnp.cos(v[:2])), V),
    case("set_constant", lambda v: (v**3).at[2].set(1.5), V),
    case("set_in_constant", lambda v: jnp.zeros(6).at[np.array([5, 0])].set(v[:2] * v[2]), V),
    case("add_with_repeats", lambda v: (v * v).at[I].add(jnp.sin(v[:4])), V),
    case("add_rows", lambda x: x.at[np.array([0, 2, 0])].add(x * x), X),
    case("subtract", lambda v: v.at[I].subtract(v[:4] ** 2) * v, V),
    case(
        "multiply", lambda v: v.at[np.array([3, 0, 1])].mul(jnp.exp(v[:3]), unique_indices=True), V
    ),
    case("multiply_with_repeats", lambda v: v.at[I].multiply(np.arange(2.0, 6.0)), V),
    case("maximum", lambda v: (v * 0.8).at[np.array([3, 0, 1])].max(v[:3] + 0.1), V),
    case("minimum", lambda v: (v * 0.8).at[np.array([3, 0, 1])].min(v[:3] + 0.1), V),
    case("power", lambda v: (v**2 + 1).at[np.array([1, 2])].power(2.0), V),
    case("traced_set", lambda v, i: v.at[i].set(v[0] ** 2) * 3, V, np.array(2)),
    case("dropped_out_of_bounds", lambda v: v.at[np.array([1, 9])].set(v[:2] ** 2, mode="drop"), V),
    case("scatter_batching_axes", _batched_scatter, X),
    case("segment_sum", lambda v: jax.ops.segment_sum(v * v, np.array([0, 2, 0, 1, 2]), 3), V),
    case("segment_max", lambda v: jax.ops.segment_max(v * 1.1, np.array([0, 1, 0, 1, 1]), 2), V),
    case("bincount_weights", lambda v: jnp.bincount(np.array([0, 2, 0, 1, 2]), v * v, length=3), V),
]

DYNAMIC = [
    case("dynamic_slice", lambda x, i: lax.dynamic_slice(x * x, (i, 1), (2, 2)) * 3, X,
        np.array(1)),
    case("dynamic_slice_clamped", lambda v, i: lax.dynamic_slice(v * v, (i,), (3,)), V,
        np.array(4)),
    case("dynamic_slice_full_axis", lambda x, i: lax.dynamic_slice(x, (0, i), (3, 2)) ** 2, X,
        np.array(2)),
    case("dynamic_update_slice", lambda x, u, i: lax.dynamic_update_slice(jnp.sin(x), u * u, (i,
        1)) * x, X, normal(2, 2), np.array(1), argnums=(0, 1)),
    case("dynamic_update_clamped", lambda v, i: lax.dynamic_update_slice(v, v[:2] * v[2], (
        i,)) ** 2, V, np.array(4)),
    case("dynamic_update_whole", lambda v, i: lax.dynamic_update_slice(v, v * v, (i,)), V,
        np.array(0)),
    case("dynamic_index_in_dim", lambda x, i: lax.dynamic_index_in_dim(x, i, 1) * x, X,
        np.array(3)),
    case("dynamic_update_index", lambda x, i: lax.dynamic_update_index_in_dim(x * x, jnp.sin(x[0]),
        i, 0), X, np.array(1)),
    case("history_buffer", lambda v: lax.fori_loop(1, 4,
        lambda i, h: h.at[i].set(jnp.sin(h[i - 1]) * v[i]), jnp.zeros(5).at[0].set(v[0])), V),
]  # fmt: skip
