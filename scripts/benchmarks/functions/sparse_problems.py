"""Sparse functions of one flat vector: finite elements, poses, rods, finite volumes, time steps."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import sparse


class SparseCase(NamedTuple):
    """A function and the number of its unknowns."""

    fun: Callable[[Any], Any]
    size: int


def cubes(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The numbers [n + 1, n + 1, n + 1] of the nodes of n³ cubes, and the eight of each."""
    node = np.arange((n + 1) ** 3).reshape(n + 1, n + 1, n + 1)
    corners = [node[i : i + n, j : j + n, k : k + n] for i, j, k in product((0, 1), repeat=3)]
    return node, np.stack([c.ravel() for c in corners], axis=1)


def trilinear_slopes() -> np.ndarray:
    """The slopes [8, 8, 3] of the eight trilinear shapes on [-1, 1]³ at the points of Gauss."""
    ends = np.array([*product((-1.0, 1.0), repeat=3)])
    factors = 1 + ends * ends[:, None] / np.sqrt(3)
    return ends * np.stack([np.prod(np.delete(factors, d, 2), 2) for d in range(3)], 2) / 8


def hexahedra(n: int = 6) -> SparseCase:
    """Forces at the nodes of hyperelastic cubes, by determinants and inverses at eight points."""
    node, cells = cubes(n)
    places = np.moveaxis(np.indices(node.shape), 0, -1).reshape(-1, 3) / n
    slopes = trilinear_slopes()

    def energy(u: Any, x: Any) -> Any:
        def at(slope: Any) -> Any:
            map_ = x.T @ slope
            f = jnp.eye(3) + u.T @ (slope @ jnp.linalg.inv(map_))
            volume = jnp.linalg.det(f)
            density = (jnp.sum(f * f) - 3) / 2 - jnp.log(volume) + (volume - 1) ** 2 / 2
            return density * jnp.linalg.det(map_)

        return jnp.sum(jax.vmap(at)(jnp.asarray(slopes)))

    def forces(z: Any) -> Any:
        u = 0.05 * z.reshape(-1, 3)
        each = jax.vmap(jax.grad(energy))(u[cells], jnp.asarray(places)[cells])
        return jnp.zeros_like(u).at[cells].add(each).ravel()

    return SparseCase(forces, places.size)


def shell(n: int = 20) -> SparseCase:
    """Forces on a sheet of triangles: in their planes, and against bending at their edges."""
    node = np.arange(n * n).reshape(n, n)
    a, b, c, d = (x.ravel() for x in (node[:-1, :-1], node[1:, :-1], node[:-1, 1:], node[1:, 1:]))
    triangles = np.concatenate([np.stack([a, b, c], 1), np.stack([b, d, c], 1)])
    sides: dict[tuple[int, int], list[int]] = {}
    for corners in triangles.tolist():
        for k in range(3):
            i, j, far = np.roll(corners, k).tolist()
            sides.setdefault((min(i, j), max(i, j)), []).append(far)
    hinges = np.array([[*side, *far] for side, far in sides.items() if len(far) == 2])
    rest = np.moveaxis(np.indices((n, n)), 0, -1).reshape(-1, 2) * 1.0
    edges = np.swapaxes(rest[triangles[:, 1:]] - rest[triangles[:, :1]], 1, 2)
    inverses = np.linalg.inv(edges)

    def stretched(p: Any, inverse: Any) -> Any:
        f = (p[1:] - p[0]).T @ inverse
        strain = (f.T @ f - jnp.eye(2)) / 2
        return jnp.sum(strain * strain) + jnp.trace(strain) ** 2 / 2

    def bent(p: Any) -> Any:
        along = p[1] - p[0]
        first, second = jnp.cross(along, p[2] - p[0]), jnp.cross(p[3] - p[0], along)
        turn = jnp.dot(jnp.cross(first, second), along) / jnp.linalg.norm(along)
        return jnp.arctan2(turn, jnp.dot(first, second)) ** 2

    def forces(z: Any) -> Any:
        p = jnp.asarray(np.append(rest, np.zeros((n * n, 1)), axis=1)) + 0.1 * z.reshape(-1, 3)
        flat = jax.vmap(jax.grad(stretched))(p[triangles], jnp.asarray(inverses))
        in_planes = jnp.zeros_like(p).at[triangles].add(flat)
        return in_planes.at[hinges].add(jax.vmap(jax.grad(bent))(p[hinges])).ravel()

    return SparseCase(forces, 3 * n * n)


def triangulated(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The two ends of each edge of a triangulated square of n × n nodes."""
    node = np.arange(n * n).reshape(n, n)
    pairs = [(node[1:], node[:-1]), (node[:, 1:], node[:, :-1]), (node[1:, 1:], node[:-1, :-1])]
    first, second = (np.concatenate([pair[k].ravel() for pair in pairs]) for k in (0, 1))
    return first, second


def pairs(n: int, more: int, nearest: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """A path through n nodes and more pairs, of nodes that are no nearer on a ring of them."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, n, more)
    second = (first + rng.integers(nearest, n + 1 - nearest, more)) % n
    return np.append(np.arange(n - 1), first), np.append(np.arange(1, n), second)


def rotation(w: Any) -> Any:
    """The rotation of a vector of angles (Rodrigues)."""
    square = jnp.sum(w * w) + 1e-12
    angle = jnp.sqrt(square)
    cross = jnp.cross(jnp.eye(3), w)
    return (
        jnp.eye(3)
        - jnp.sin(angle) / angle * cross
        + (1 - jnp.cos(angle)) / square * (cross @ cross)
    )


def pose_error(a: Any, b: Any, turn: Any, move: Any) -> Any:
    """The error of two poses (three angles, three shifts) against a measured one."""
    first = rotation(a[:3])
    r = turn.T @ first.T @ rotation(b[:3])
    angle = jnp.arccos(jnp.clip((jnp.trace(r) - 1) / 2, -0.999999, 0.999999))
    axis = jnp.stack([r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]])
    place = turn.T @ (first.T @ (b[3:] - a[3:]) - move)
    return jnp.append(angle / (2 * jnp.sin(angle)) * axis, place)


def poses_3d(n: int = 200) -> SparseCase:
    """Errors of relative poses in space."""
    i, j = pairs(n, n // 2)
    rng = np.random.default_rng(1)
    turns = np.asarray(jax.vmap(rotation)(0.3 * rng.normal(size=(len(i), 3))))
    moves = rng.normal(size=(len(i), 3))

    def errors(z: Any) -> Any:
        p = z.reshape(-1, 6)
        each = jax.vmap(pose_error)(p[i], p[j], jnp.asarray(turns), jnp.asarray(moves))
        return each.ravel()

    return SparseCase(errors, 6 * n)


def rod(n: int = 500) -> SparseCase:
    """Forces on an elastic rod: places and twists of its nodes (Bergou et al., 2008)."""

    def energy(z: Any) -> Any:
        q = z.reshape(-1, 4)
        p = 0.1 * q[:, :3] + jnp.arange(1.0 * n)[:, None] * np.array([1.0, 0, 0])
        e = p[1:] - p[:-1]
        lengths = jnp.sqrt(jnp.sum(e * e, axis=1, keepdims=True))
        t = e / lengths
        along = 1 + jnp.sum(t[:-1] * t[1:], axis=1, keepdims=True)
        bends = 2 * jnp.cross(t[:-1], t[1:]) / along
        twists = q[1:, 3] - q[:-1, 3]
        return jnp.sum((lengths - 1) ** 2) + jnp.sum(bends**2) + jnp.sum(twists**2)

    return SparseCase(jax.grad(energy), 4 * n)


def network(n: int = 500) -> SparseCase:
    """A layer of a graph network whose adjacency is a `BCOO` matrix."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(n, n)) * (rng.uniform(size=(n, n)) < 3 / n)
    mix = rng.normal(size=(2, 2))

    places = np.argwhere(weights)

    def layer(x: Any) -> Any:
        matrix = sparse.BCOO(
            (jnp.asarray(weights[tuple(places.T)]), jnp.asarray(places)), shape=(n, n)
        )
        h = x.reshape(n, 2)
        return jnp.tanh(matrix @ (h @ mix) + h).ravel()

    return SparseCase(layer, 2 * n)


def time_steps(n: int = 400) -> SparseCase:
    """Residuals of all steps of a scan that carries the state before."""

    def residuals(z: Any) -> Any:
        def step(before: Any, now: Any) -> Any:
            slope = jnp.stack([now[1], -jnp.sin(now[0]), now[0] * now[1]])
            return now, now - before - 0.1 * slope

        return jax.lax.scan(step, jnp.ones(3), z.reshape(n, 3))[1].ravel()

    return SparseCase(residuals, 3 * n)


def attention(n: int = 100) -> SparseCase:
    """A layer of a graph network with attention over four neighbours."""
    rng = np.random.default_rng(0)
    i, j = np.repeat(np.arange(n), 4), rng.integers(0, n, 4 * n)
    mix, score = rng.normal(size=(4, 4)) / 2, rng.normal(size=8)

    def layer(z: Any) -> Any:
        h = z.reshape(n, 4) @ mix
        scores = jnp.exp(jnp.tanh(jnp.concatenate([h[i], h[j]], axis=1) @ score))
        shares = scores / jax.ops.segment_sum(scores, i, n)[i]
        return jax.nn.elu(jax.ops.segment_sum(shares[:, None] * h[j], i, n)).ravel()

    return SparseCase(layer, 4 * n)


def upwind(n: int = 2000) -> SparseCase:
    """Burgers' equation on a ring, by differences of fifth order against the stream."""
    before, after = [-2, 15, -60, 20, 30, -3], [3, -30, -20, 60, -15, 2]

    def change(u: Any) -> Any:
        near = {k: jnp.roll(u, -k) for k in range(-3, 4)}
        left = sum(w * near[k] for w, k in zip(before, range(-3, 3), strict=True)) / 60
        right = sum(w * near[k] for w, k in zip(after, range(-2, 4), strict=True)) / 60
        return jnp.maximum(u, 0) * left + jnp.minimum(u, 0) * right

    return SparseCase(change, n)


def phases(n: int = 30) -> SparseCase:
    """An implicit step of the Cahn–Hilliard equation on a periodic grid."""

    def spread(w: Any) -> Any:
        return sum(jnp.roll(w, k, a) for k in (1, -1) for a in (0, 1)) - 4 * w

    def residual(z: Any) -> Any:
        c, drive = z.reshape(2, n, n)
        balance = c - jnp.cos(jnp.arange(n * n * 1.0)).reshape(n, n) - 0.1 * spread(drive)
        return jnp.stack([balance, drive - c**3 + c + 0.01 * spread(c)]).ravel()

    return SparseCase(residual, 2 * n * n)


def pipes(n: int = 1000) -> SparseCase:
    """Heads at nodes and flows in twice as many pipes (Hazen and Williams)."""
    rng = np.random.default_rng(0)
    i = rng.integers(0, n, 2 * n)
    j = (i + rng.integers(1, n, 2 * n)) % n
    rough = rng.uniform(0.5, 2, 2 * n)

    def residual(z: Any) -> Any:
        head, flow = z[:n], z[n:]
        stored = jnp.zeros(n, z.dtype).at[i].add(flow).at[j].add(-flow) - 0.1
        lost = jnp.asarray(rough) * flow * jnp.abs(flow) ** 0.852
        return jnp.concatenate([stored, head[i] - head[j] - lost])

    return SparseCase(residual, 3 * n)
