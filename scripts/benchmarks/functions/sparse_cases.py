"""Sparse functions of one flat vector: grids, meshes, cameras and graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.benchmarks.functions import sparse_problems as problems
from scripts.benchmarks.functions.sparse_problems import SparseCase


def _blocks(z: Any) -> Any:
    def block(r: Any) -> Any:
        parts = (r[0] * r[1], jnp.sin(r[2]), r.sum(), r[3] * r[4] * r[5], r[0] ** r[5], r[1] ** 2)
        return jnp.stack(parts)

    return jax.vmap(block)(z.reshape(-1, 6)).reshape(-1)


def _stencil(x: Any) -> Any:
    inner = jnp.sin(x[1:-1]) * (x[2:] - 2 * x[1:-1] + x[:-2])
    return jnp.concatenate([x[:1], inner, x[-1:]])


def _grid(z: Any, n: int = 100) -> Any:
    u = jnp.pad(z.reshape(n, n), 1)
    inner = u[1:-1, 1:-1]
    around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
    return (jnp.sin(inner) * (around - 4 * inner)).ravel()


def brusselator(z: Any, n: int = 20) -> Any:
    """The two-dimensional Brusselator on a periodic grid (Hairer & Wanner, 1996)."""
    u, v = z.reshape(2, n, n)

    def spread(w: Any) -> Any:
        shifted = (jnp.roll(w, s, a) for s in (1, -1) for a in (0, 1))
        return 0.02 * (n - 1) ** 2 * (sum(shifted) - 4 * w)

    return jnp.stack([1 + u * u * v - 4.4 * u + spread(u), 3.4 * u - u * u * v + spread(v)]).ravel()


def adjustment(cameras: int = 10, points: int = 300, seen: int = 1000) -> Callable[[Any], Any]:
    """Image points of cameras of nine numbers, all in one flat vector."""
    rng = np.random.default_rng(0)
    which, what = rng.integers(0, cameras, seen), rng.integers(0, points, seen)

    def project(c: Any, p: Any) -> Any:
        angle = jnp.sqrt(jnp.sum(c[:3] ** 2) + 1e-12)
        axis = c[:3] / angle
        turned = p * jnp.cos(angle) + jnp.cross(axis, p) * jnp.sin(angle)
        q = turned + axis * jnp.dot(axis, p) * (1 - jnp.cos(angle)) + c[3:6]
        u = -q[:2] / (q[2] + 5)
        r = jnp.sum(u * u)
        return c[6] * (1 + c[7] * r + c[8] * r * r) * u

    def residual(z: Any) -> Any:
        cams = z[: 9 * cameras].reshape(cameras, 9)
        pts = z[9 * cameras :].reshape(points, 3)
        return jax.vmap(project)(cams[which], pts[what]).reshape(-1)

    return residual


def _springs(z: Any) -> Any:
    i, j = problems.triangulated(20)
    p = z.reshape(-1, 3)
    d = p[i] - p[j]
    force = d * (1 - 0.1 / jnp.sqrt(jnp.sum(d * d, axis=1, keepdims=True) + 1e-3))
    return jnp.zeros_like(p).at[i].add(-force).at[j].add(force).ravel()


def _graph_layer(z: Any) -> Any:
    i, j = problems.triangulated(20)
    h = z.reshape(-1, 4)
    weights = np.random.default_rng(2).normal(size=(4, 4))
    heard = jax.ops.segment_sum(jnp.tanh(h[i] @ weights), j, len(h))
    return jnp.tanh(heard + h).ravel()


_PERM = np.random.default_rng(3).permutation(500)

CASES = {
    "flat block-diagonal, 1,800": SparseCase(_blocks, 1800),
    "1-D stencil, 100,000": SparseCase(_stencil, 100_000),
    "2-D stencil by pad, 10,000": SparseCase(_grid, 10_000),
    "Brusselator 2-D, 800": SparseCase(brusselator, 800),
    "bundle adjustment, 990": SparseCase(adjustment(), 990),
    "triangle springs, 1,200": SparseCase(_springs, 1200),
    "graph layer, 1,600": SparseCase(_graph_layer, 1600),
    "permutation, 500": SparseCase(lambda x: jnp.sin(x)[_PERM], 500),
    "segment sum, 500": SparseCase(lambda x: jax.ops.segment_sum(x * x, _PERM // 5, 100), 500),
    "set, 500": SparseCase(lambda x: x.at[3:7].set(x[:4] ** 2), 500),
    "convolution, 500": SparseCase(
        lambda x: jnp.convolve(jnp.sin(x), np.array([1.0, -2.0, 1.0]), "same"), 500
    ),
}
_PROBLEMS = (
    ("hyperelastic hexahedra", problems.hexahedra, 6, 5),
    ("shell of triangles", problems.shell, 20, 14),
    ("poses in space", problems.poses_3d, 200, 100),
    ("elastic rod", problems.rod, 500, 150),
    ("BCOO network", problems.network, 500, 300),
    ("steps of a scan", problems.time_steps, 400, 200),
    ("attention over neighbours", problems.attention, 100, 150),
    ("fifth-order upwind", problems.upwind, 0, 1000),
    ("Cahn–Hilliard step", problems.phases, 0, 20),
    ("pipe network", problems.pipes, 0, 250),
)
"""Name, what makes it, and its sizes with a sparse and with a dense Jacobian: JAX's take longer."""


def _made(which: int) -> dict[str, SparseCase]:
    made = ((name, make(n[which])) for name, make, *n in _PROBLEMS if n[which])
    return {f"{name}, {case.size:,}": case for name, case in made}


CASES |= _made(0)
DENSE = _made(1)
