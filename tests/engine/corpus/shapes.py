"""Functions that move, cut, join, repeat, sort or select entries."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.engine.corpus.case import case, distinct, normal, uniform

X = normal(2, 6)
V = distinct(6)
C = normal(3, 2, 2)


def _with_array_bounds(_, argnums):
    """JAX differentiates clamp by array bounds only."""
    return jax.jacrev(lambda v, s: lax.clamp(-s * jnp.ones(6), v, s * jnp.ones(6)) * v, argnums)


SHAPES = [
    case("merge_axes", lambda x: jnp.sin(x.reshape(6, 2)) * x.reshape(6, 2), C),
    case("split_axes", lambda x: jnp.sum(x.reshape(2, 2, 3) ** 2, 1) @ x.reshape(3, 4), X),
    case("reshape_there_and_back", lambda x: jnp.exp(x.reshape(3, 4)).reshape(2, 6) * x, X),
    case("ravel_fortran", lambda x: x.ravel("F") * x.reshape(-1), X),
    case("reshape_between_products", lambda x: (x * x).reshape(4, 3) @ (x + 1).reshape(3, 4), X),
    case("transpose", lambda x: (x.T @ x) * (jnp.sin(x.T) @ x), X[:, :3]),
    case("permute", lambda x: jnp.transpose(x, (2, 0, 1)) * jnp.moveaxis(x, 0, 1) ** 2, C[:2]),
    case("squeeze_expand", lambda x: jnp.squeeze(x[:, None] * x[None, :1], 1)[..., None] + x[0, 0],
        X),
    case("broadcasting", lambda x: jnp.broadcast_to(x[0], (3, 2, 2)) * x, C),
    case("broadcast_new_axes", lambda v: v[:, None] * v[None, :] + jnp.sin(v)[None, :], V[:4]),
    case("reverse_axes", lambda x: x[::-1] * x[:, ::-1] + jnp.rot90(x[:, :2], 1)[0, 0], X),
    case("roll", lambda x: jnp.roll(x, 2, 1) * jnp.roll(jnp.sin(x), 1), X),
    case("tile_repeat", lambda v: jnp.tile(v * v, 2) * jnp.repeat(v, 2), V),
    case("slices", lambda x: x[:, 1:4] * x[:, 2:5] - x[:1, ::2] + x[-1:, -3:], X),
    case("strided_slices", lambda v: v[5:0:-2] * v[::2] + v[1::2], V),
    case("pad_constant", lambda x: jnp.pad(jnp.sin(x), ((1, 0), (2, 1))) ** 2, X[:, :3]),
    case("pad_modes", lambda v: (jnp.pad(v, 2, mode="reflect") * jnp.pad(v, 2,
        mode="edge") + jnp.pad(v, 2, mode="wrap")), V[:4]),
    case("pad_interior", lambda v: jnp.exp(lax.pad(v, 0.5, [(1, 2, 1)])), V[:4]),
    case("pad_negative", lambda v: lax.pad(v * v, 0.0, [(-1, 2, 0)]) * v[0], V[:4]),
    case("pad_value_is_active", lambda v: lax.pad(v[1:], v[0] * v[1], [(2, 1, 1)]) ** 2, V[:4]),
    case("concatenate", lambda x: jnp.concatenate([x, jnp.sin(x[:, :1]), x * x], 1) ** 2, X[:, :2]),
    case("concatenate_same_twice", lambda v: jnp.concatenate([v, v, v[:1]]) * 1.5, V[:3]),
    case("stack_of_scalars", lambda v: jnp.stack([v[0] * v[1], jnp.sin(v[2]), v[0], 3.0]), V[:3]),
    case("split", lambda x: [jnp.sin(p) * 2 for p in jnp.split(x, [1, 4], axis=1)], X, zero=True),
    case("split_used_together", lambda v: (lambda a, b: a * jnp.exp(b))(*jnp.split(v, 2)), V),
    case("unstack", lambda x: (lambda a, b: a * b + a)(*jnp.unstack(x)), X),
    case("diagonals", lambda x: jnp.diag(jnp.diag(x) ** 2, 1)[:3, :3] + jnp.diagonal(x)[None],
        normal(3, 3)),
    case("triangles", lambda x: jnp.tril(x * x) + jnp.triu(jnp.sin(x), 1), normal(3, 3)),
    case("meshgrid", lambda v: jnp.multiply(*jnp.meshgrid(v, jnp.cos(v))), V[:3]),
    case("vander_polyval", lambda v: jnp.vander(v, 3) * jnp.polyval(v, 1.5), V[:3]),
    case("zero_size", lambda v: (v[:0] * 2, v.sum() + v[:0].sum()), V[:3]),
    case("rank_zero", lambda s: (s * s)[None, None] * jnp.ones((1, 1)) + jnp.reshape(s, (1, 1)),
        normal()),
    case("interp", lambda v: jnp.interp(uniform(4, low=0, high=4), jnp.arange(5.0), v**2), V[:5]),
    case("gradient_stencil", lambda x: jnp.gradient(x**2, axis=1) - 4 * x, X),
]  # fmt: skip

SORTS = [
    case("sort", lambda x: jnp.sort(x * 2, 1) * x, distinct(2, 4)),
    case("sort_first_axis", lambda x: jnp.sort(x, 0) ** 2, distinct(3, 2)),
    case("sort_descending", lambda v: jnp.sort(v, descending=True) * v, V),
    case("sort_pairs", lambda v: lax.sort((v, jnp.sin(v), v * v[0]), num_keys=1), V),
    case("sort_two_keys", lambda v: lax.sort((jnp.round(v), v, v * v), num_keys=2)[1:], V),
    case("sort_by_integer_key", lambda v: lax.sort((np.array([2, 0, 1, 5, 4, 3]), v * v))[1], V),
    case("sort_ties", lambda v: jnp.sort(v) * 2, np.array([2.0, 1.0, 2.0, 1.0])),
    case("argsort_as_index", lambda v: (v * v)[jnp.argsort(v)] * jnp.arange(6.0), V),
    case("top_k", lambda x: lax.top_k(x * 1.5, 2)[0] ** 2, distinct(2, 4)),
    case("top_k_indices", lambda v: (lambda top: top[0] * v[top[1]])(lax.top_k(v, 3)), V),
    case("approx_max_k", lambda v: lax.approx_max_k(v * v, 2)[0], V),
    case(
        "searchsorted_bins", lambda v: v * jnp.searchsorted(jnp.sort(v), v * 0.7).astype(v.dtype), V
    ),
]

SELECTS = [
    case("where", lambda v: jnp.where(v > 0, v * v, jnp.sin(v)), V),
    case("where_broadcast", lambda x: jnp.where(x[:1] > 0, x, jnp.exp(x[:, :1])), X),
    case("where_scalar_predicate", lambda v: jnp.where(v[0] > 0, v, 2 * v[::-1]) ** 2, V),
    case("where_constant_branch", lambda v: jnp.where(v > 0, v**3, 0.0) + v, V),
    case("where_guarded_division", lambda v: jnp.where(v > 0, 1 / jnp.where(v > 0, v, 1.0), v), V),
    case("select_one", lambda v: lax.select_n(v >= 0, v) * v, V),
    case("select_n", lambda v: lax.select_n(np.arange(6) % 3, v, v * v, jnp.cos(v)), V),
    case("select_list", lambda v: jnp.select([v > 1, v > 0], [v**2, jnp.sin(v)], -v), V),
    case("piecewise", lambda v: jnp.piecewise(v, [v < 0, v >= 0], [jnp.exp, jnp.square]), V),
    case("clip", lambda v: jnp.clip(v, -0.5, 0.6) * v, V),
    case("clamp_active_bounds", lambda v, a, b: lax.clamp(-a * a, v, b * b) * v, V, normal(6),
        normal(6, seed=1), argnums=(0, 1, 2)),
    case("clamp_scalar_bounds", lambda v, s: lax.clamp(-s, v, s) * v, V, np.array(0.6),
        argnums=(0, 1), oracle=_with_array_bounds),
    case("maximum_of_constant", lambda v: jnp.maximum(v, 0.3) * jnp.minimum(v, 0.1), V),
    case("choose", lambda x: jnp.choose(np.array([0, 1, 1]), [x[0, :3], x[1, :3] ** 2],
        mode="clip"), X),
]  # fmt: skip
