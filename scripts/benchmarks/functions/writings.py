"""Sparse functions of one flat vector, each in six writings that should cost the same.

`PROBLEMS[name](n)` is a `PointProblem` of a size, and `scaled(name, scale)` one of its usual size
times a number; `writings(problem)` are its functions by the names of the writings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scripts.benchmarks.functions.case import runge_kutta
from scripts.benchmarks.functions.sparse_problems import cubes, pairs, trilinear_slopes


class PointProblem(NamedTuple):
    """A function of one flat vector that does the same at every point."""

    size: int  # of the vector
    gather: Callable[[Any], tuple[Any, ...]]  # what the points read, [points, …] each
    first: Callable[..., Any]  # of one point, or of arrays whose last axis is the points'
    last: Callable[..., Any]  # of arrays whose first axes are the points', by ellipsis and einsum
    scatter: Callable[[Any], Any]  # the result of what the points give, [points, …]
    name: str  # of the sixth writing
    sixth: Callable[[Any], Any]


def writings(problem: PointProblem) -> dict[str, Callable[[Any], Any]]:
    """The six functions of a problem."""
    _, gather, first, last, scatter, name, sixth = problem
    to_end = lambda args: [jnp.moveaxis(jnp.asarray(x), 0, -1) for x in args]  # noqa: E731
    ways: dict[str, Callable[..., Any]] = {
        "vmap": lambda *args: jax.vmap(first)(*map(jnp.asarray, args)),
        "map": lambda *args: jax.lax.map(lambda row: first(*row), tuple(map(jnp.asarray, args))),
        "vmap of last axes": lambda *args: jnp.moveaxis(
            jax.vmap(first, in_axes=-1, out_axes=-1)(*to_end(args)), -1, 0
        ),
        "trailing axes": lambda *args: jnp.moveaxis(first(*to_end(args)), -1, 0),
        "ellipsis": lambda *args: last(*map(jnp.asarray, args)),
    }
    by_way = {key: _whole(gather, way, scatter) for key, way in ways.items()}
    return {**by_way, name: sixth}


def _whole(gather: Any, way: Any, scatter: Any) -> Callable[[Any], Any]:
    return lambda z: scatter(way(*gather(z))).ravel()


def stack(parts: Sequence[Any], axis: int = 0) -> Any:
    """Numbers of a point as one array, by default along its first axis."""
    return jnp.stack(jnp.broadcast_arrays(*parts), axis)


def _at_edges(z: Any, n: int, i: np.ndarray, j: np.ndarray) -> tuple[Any, Any]:
    p = z.reshape(n, -1)
    return p[i], p[j]


def turn_of(w: Any) -> Any:
    """The quaternion [4, …] of a rotation vector [3, …], safe at zero."""
    s = w[0] * w[0] + w[1] * w[1] + w[2] * w[2]
    small = s < 1e-8
    a = jnp.sqrt(jnp.where(small, 1.0, s))
    rest = jnp.where(small, 0.5 - s / 48, jnp.sin(a / 2) / a)
    return stack([jnp.where(small, 1 - s / 8, jnp.cos(a / 2)), *(rest * x for x in w)])


def times(p: Any, q: Any) -> Any:
    """The product of quaternions [4, …]."""
    (a, b, c, d), (s, t, u, v) = p, q
    return stack([a * s - b * t - c * u - d * v, a * t + b * s + c * v - d * u,
                   a * u - b * v + c * s + d * t, a * v + b * u - c * t + d * s])  # fmt: skip


def conjugate(q: Any) -> Any:
    """The conjugate of a quaternion [4, …]."""
    return stack([q[0], -q[1], -q[2], -q[3]])


def log(q: Any) -> Any:
    """The rotation vector [3, …] of a quaternion [4, …], safe at zero."""
    n = q[1] ** 2 + q[2] ** 2 + q[3] ** 2
    small = n < 1e-8
    r = jnp.sqrt(jnp.where(small, 1.0, n))
    w = jnp.where(small, 1.0, q[0])
    angle = 2 * jnp.arctan2(jnp.where(w < 0, -r, r), jnp.abs(w)) / r
    return stack([jnp.where(small, 2 / q[0], angle) * x for x in q[1:]])


_PRODUCTS = np.stack([
    np.array(times(p, q)) for p in np.eye(4) for q in np.eye(4)
]).reshape(4, 4, 4).astype(float)  # fmt: skip


def _turn_of_last(w: Any) -> Any:
    s = jnp.sum(w * w, -1, keepdims=True)
    small = s < 1e-8
    a = jnp.sqrt(jnp.where(small, 1.0, s))
    whole = jnp.where(small, 1 - s / 8, jnp.cos(a / 2))
    return jnp.concatenate([whole, jnp.where(small, 0.5 - s / 48, jnp.sin(a / 2) / a) * w], -1)


def _log_last(q: Any) -> Any:
    n = jnp.sum(q[..., 1:] ** 2, -1, keepdims=True)
    small = n < 1e-8
    r = jnp.sqrt(jnp.where(small, 1.0, n))
    w = jnp.where(small, 1.0, q[..., :1])
    angle = 2 * jnp.arctan2(jnp.where(w < 0, -r, r), jnp.abs(w)) / r
    return jnp.where(small, 2 / q[..., :1], angle) * q[..., 1:]


def poses_3d(n: int = 200) -> PointProblem:
    """Logarithms of what rotations at nodes differ by at edges."""
    i, j = pairs(n, n // 2, nearest=1)
    seen = np.random.default_rng(1).normal(size=(len(i), 4))

    def error(p: Any, q: Any, m: Any) -> Any:
        return log(times(m, times(conjugate(p), q)))

    def multiplied(p: Any, q: Any) -> Any:
        return jnp.einsum("...i,...j,ijk->...k", p, q, _PRODUCTS)

    def last(a: Any, b: Any, m: Any) -> Any:
        p, q = _turn_of_last(a), _turn_of_last(b)
        return _log_last(multiplied(m, multiplied(p * np.array([1.0, -1, -1, -1]), q)))

    def stages(z: Any) -> Any:
        q = jax.vmap(turn_of)(z.reshape(n, 3))
        return jax.vmap(error)(q[i], q[j], jnp.asarray(seen)).ravel()

    first = lambda a, b, m: error(turn_of(a), turn_of(b), m)  # noqa: E731
    gather = lambda z: (*_at_edges(z, n, i, j), seen)  # noqa: E731
    return PointProblem(3 * n, gather, first, last, lambda e: e, "two stages", stages)


def _cofactors(a: Any) -> tuple[Any, Any]:
    """The determinants and the transposed inverses of matrices [3, 3, …]."""
    rows = [stack(_crossed(a[(k + 1) % 3], a[(k + 2) % 3])) for k in range(3)]
    det = sum(a[0][k] * rows[0][k] for k in range(3))
    return det, stack([row / det for row in rows])


def _crossed(a: Any, b: Any) -> list[Any]:
    return [a[(k + 1) % 3] * b[(k + 2) % 3] - a[(k + 2) % 3] * b[(k + 1) % 3] for k in range(3)]


def _stress(f: Any) -> Any:
    """The stress of a neo-Hookean material at strains [3, 3, …]."""
    det, back = _cofactors(f)
    return f - back + 10 * jnp.log(det) * back


def _density(f: Any) -> Any:
    det = jnp.linalg.det(f)
    return (jnp.sum(f * f) - 3) / 2 - jnp.log(det) + 5 * jnp.log(det) ** 2


def _strained(f: Any) -> Any:
    """The same stress at strains [..., 3, 3]."""
    back = jnp.swapaxes(jnp.linalg.inv(f), -1, -2)
    return f - back + 10 * jnp.log(jnp.linalg.det(f))[..., None, None] * back


def _solid(n: int, cells: np.ndarray, slopes: np.ndarray) -> PointProblem:
    """Forces at the nodes of elements [e, k] with slopes [q, k, 3] of their shapes at q points."""
    eye = np.eye(3)

    def gather(z: Any) -> tuple[Any]:
        return ((0.05 * z.reshape(-1, 3))[cells],)

    def first(u: Any) -> Any:
        unit = eye.reshape(3, 3, *(1 for _ in u.shape[2:]))
        every = (
            jnp.einsum("ij...,kj->ki...", _stress(unit + jnp.einsum("ki...,kj->ij...", u, s)), s)
            for s in slopes
        )
        return sum(every)

    def last(u: Any) -> Any:
        f = jnp.broadcast_to(eye, (*u.shape[:-2], len(slopes), 3, 3))
        stress = _strained(f + jnp.einsum("...ki,qkj->...qij", u, slopes))
        return jnp.einsum("...qij,qkj->...ki", stress, slopes)

    def scatter(f: Any) -> Any:
        return jnp.zeros((n, 3), f.dtype).at[cells].add(f)

    def by_energy(z: Any) -> Any:
        def energy(u: Any) -> Any:
            at = lambda s: _density(eye + jnp.einsum("ki,kj->ij", u, s))  # noqa: E731
            return jnp.sum(jax.vmap(at)(jnp.asarray(slopes)))

        return scatter(jax.vmap(jax.grad(energy))(*gather(z))).ravel()

    return PointProblem(3 * n, gather, first, last, scatter, "energy by grad", by_energy)


def bricks(n: int = 6) -> PointProblem:
    """Forces at the nodes of hyperelastic bricks with eight points each."""
    node, cells = cubes(n)
    return _solid(node.size, cells, 2 * trilinear_slopes())


def tetrahedra(n: int = 6) -> PointProblem:
    """Forces at the nodes of hyperelastic tetrahedra, five of each cube."""
    node, cells = cubes(n)
    five = np.array([[0, 1, 2, 4], [3, 2, 1, 7], [5, 4, 7, 1], [6, 7, 4, 2], [7, 1, 2, 4]])
    slopes = np.concatenate([-np.ones((1, 3)), np.eye(3)])
    return _solid(node.size, cells[:, five].reshape(-1, 4), slopes[None])


def shell(n: int = 20) -> PointProblem:
    """Angles at the edges between the triangles of a net of n² nodes."""
    node = np.arange(n * n).reshape(n, n)
    quads = [node[:-1, :-1], node[1:, 1:], node[1:, :-1], node[:-1, 1:]]
    a, b, c, d = (q.ravel() for q in quads)
    flat = np.stack([*np.divmod(node.ravel(), n), 0 * node.ravel()], 1) * 1.0

    def gather(z: Any) -> tuple[Any, ...]:
        x = flat + 0.2 * z.reshape(-1, 3)
        return x[a], x[b], x[c], x[d]

    def first(a: Any, b: Any, c: Any, d: Any) -> Any:
        edge = b - a
        left, right = stack(_crossed(edge, c - a)), stack(_crossed(d - a, edge))
        sine = sum(x * y for x, y in zip(_crossed(left, right), edge, strict=True))
        length = jnp.sqrt(sum(x * x for x in edge))
        return jnp.arctan2(sine / length, sum(x * y for x, y in zip(left, right, strict=True)))

    def last(a: Any, b: Any, c: Any, d: Any) -> Any:
        edge = b - a
        left, right = jnp.cross(edge, c - a), jnp.cross(d - a, edge)
        sine = jnp.einsum("...i,...i->...", jnp.cross(left, right), edge)
        length = jnp.linalg.norm(edge, axis=-1)
        return jnp.arctan2(sine / length, jnp.einsum("...i,...i->...", left, right))

    def stages(z: Any) -> Any:
        x = flat + 0.2 * z.reshape(-1, 3)
        triangles = np.concatenate([np.stack([a, b, c], 1), np.stack([a, d, b], 1)])
        normals = jax.vmap(lambda t: jnp.cross(t[1] - t[0], t[2] - t[0]))(x[triangles])
        left, right = jnp.split(normals, 2)
        edge = x[b] - x[a]
        sine = jax.vmap(lambda p, q, e: jnp.dot(jnp.cross(p, -q), e / jnp.linalg.norm(e)))
        other = jax.vmap(lambda p, q: -jnp.dot(p, q))
        return jnp.arctan2(-sine(left, right, edge), -other(left, right)).ravel()

    return PointProblem(3 * n * n, gather, first, last, lambda e: e, "two stages", stages)


def truss(n: int = 300) -> PointProblem:
    """Forces at the nodes of a truss of elastic bars."""
    i, j = pairs(n, 2 * n, nearest=1)

    def first(a: Any, b: Any) -> Any:
        d = b - a
        length = jnp.sqrt(d[0] ** 2 + d[1] ** 2 + d[2] ** 2 + 0.1)
        return d * ((length - 1) * jnp.exp(length - 1) / length)

    def last(a: Any, b: Any) -> Any:
        d = b - a
        length = jnp.sqrt(jnp.einsum("...i,...i->...", d, d) + 0.1)[..., None]
        return (length - 1) * jnp.exp(length - 1) * d / length

    def by_energy(z: Any) -> Any:
        def energy(p: Any) -> Any:
            stretch = jnp.sqrt(jnp.sum((p[j] - p[i]) ** 2, -1) + 0.1) - 1
            return jnp.sum((stretch - 1) * jnp.exp(stretch))

        return jax.grad(energy)(z.reshape(n, 3)).ravel()

    gather = lambda z: _at_edges(z, n, i, j)  # noqa: E731
    scatter = lambda f: jnp.zeros((n, 3), f.dtype).at[j].add(f).at[i].add(-f)  # noqa: E731
    return PointProblem(3 * n, gather, first, last, scatter, "energy by grad", by_energy)


def bundle(n: int = 300) -> PointProblem:
    """Image points of n points in ten cameras."""
    rng = np.random.default_rng(0)
    which, what = rng.integers(0, 10, 3 * n), np.tile(np.arange(n), 3)

    def split(z: Any) -> tuple[Any, Any]:
        return z[:60].reshape(10, 6), z[60:].reshape(n, 3)

    def gather(z: Any) -> tuple[Any, Any]:
        cameras, points = split(z)
        return cameras[which], points[what]

    def seen(q: Any, t: Any, point: Any) -> Any:
        turned = times(times(q, stack([0 * point[0], *point])), conjugate(q))
        x, y, depth = turned[1] + t[0], turned[2] + t[1], turned[3] + t[2] + 5
        u, v = x / depth, y / depth
        bent = 1 + 0.1 * (u * u + v * v)
        return stack([u * bent, v * bent])

    def last(camera: Any, point: Any) -> Any:
        q = _turn_of_last(camera[..., :3])
        turn = jnp.einsum("...i,...j,ijk->...k", q[..., 1:], q[..., 1:], _PRODUCTS[1:, 1:, 1:])
        cross = jnp.cross(q[..., 1:], point)
        turned = point + 2 * (q[..., :1] * cross + jnp.cross(q[..., 1:], cross)) + turn
        turned = turned + camera[..., 3:] + np.array([0.0, 0, 5])
        flat = turned[..., :2] / turned[..., 2:]
        return flat * (1 + 0.1 * jnp.sum(flat**2, -1, keepdims=True))

    def stages(z: Any) -> Any:
        cameras, points = split(z)
        q = jax.vmap(turn_of)(cameras[:, :3])
        return jax.vmap(seen)(q[which], cameras[which, 3:], points[what]).ravel()

    first = lambda camera, point: seen(turn_of(camera[:3]), camera[3:], point)  # noqa: E731
    return PointProblem(60 + 3 * n, gather, first, last, lambda e: e, "two stages", stages)


def _limited(a: Any, b: Any, c: Any) -> Any:
    """The value at the right face of the middle of three volumes, with van Leer's limiter."""
    left, right = b - a, c - b
    smooth = left * right > 0
    return b + jnp.where(smooth, left * right / jnp.where(smooth, left + right, 1.0), 0.0)


def volumes(n: int = 2000) -> PointProblem:
    """Burgers' equation by finite volumes with a limiter."""
    at = (np.arange(n)[:, None] + np.arange(-2, 2)) % n

    def change(p: Any) -> Any:
        return (_limited(p[1], p[2], p[3]) ** 2 - _limited(p[0], p[1], p[2]) ** 2) / 2

    def last(p: Any) -> Any:
        flux = _limited(p[..., :-2], p[..., 1:-1], p[..., 2:]) ** 2 / 2
        return flux[..., 1] - flux[..., 0]

    def by_shifts(u: Any) -> Any:
        flux = _limited(jnp.roll(u, 1), u, jnp.roll(u, -1)) ** 2 / 2
        return flux - jnp.roll(flux, 1)

    return PointProblem(n, lambda u: (u[at],), change, last, lambda e: e, "shifts", by_shifts)


def reaction(n: int = 30) -> PointProblem:
    """Two substances that react and spread on a grid."""
    node = np.arange(n * n).reshape(n, n)
    around = [node, *(np.roll(node, s, k) for s in (1, -1) for k in (0, 1))]
    at = np.stack([a.ravel() for a in around], 1)

    def first(w: Any) -> Any:
        spread = w[:, 1] + w[:, 2] + w[:, 3] + w[:, 4] - 4 * w[:, 0]
        u, v = w[0, 0], w[1, 0]
        product = u * u * v / (1 + u * u)
        return stack([1 + product - 4.4 * u + spread[0], 3.4 * u - product + spread[1]])

    def last(w: Any) -> Any:
        spread = jnp.einsum("...ck,k->...c", w, np.array([-4.0, 1, 1, 1, 1]))
        u, v = w[..., 0, 0], w[..., 1, 0]
        product = u * u * v / (1 + u * u)
        return jnp.stack([1 + product - 4.4 * u, 3.4 * u - product], -1) + spread

    def by_shifts(z: Any) -> Any:
        u, v = z.reshape(2, n, n)
        spread = lambda w: sum(jnp.roll(w, s, k) for s in (1, -1) for k in (0, 1)) - 4 * w  # noqa: E731
        product = u * u * v / (1 + u * u)
        every = [1 + product - 4.4 * u + spread(u), 3.4 * u - product + spread(v)]
        return jnp.stack(every).ravel()

    def gather(z: Any) -> tuple[Any]:
        return (jnp.moveaxis(z.reshape(2, -1)[:, at], 1, 0),)

    return PointProblem(2 * n * n, gather, first, last, jnp.transpose, "shifts", by_shifts)


def shooting(n: int = 60) -> PointProblem:
    """Gaps of multiple shooting by Runge-Kutta steps of six states and two controls."""

    def slope(x: Any, u: Any) -> Any:
        c, s = jnp.cos(x[2]), jnp.sin(x[2])
        push = u[0] + u[1]
        return stack([x[3], x[4], x[5], -push * s, push * c - 1 - 0.1 * x[4] * x[3], u[0] - u[1]])

    def slope_last(x: Any, u: Any) -> Any:
        turn, push = x[..., 2:3], jnp.sum(u, -1, keepdims=True)
        drag = 0.1 * x[..., 4:5] * x[..., 3:4]
        up = push * jnp.cos(turn) - 1 - drag
        return jnp.concatenate([x[..., 3:], -push * jnp.sin(turn), up, u[..., :1] - u[..., 1:]], -1)

    def step(x: Any, u: Any, slope: Any = slope) -> Any:
        return runge_kutta(lambda y: slope(y, u), x, 0.1)

    def gather(z: Any) -> tuple[Any, ...]:
        x, u = z[: 6 * n + 6].reshape(-1, 6), z[6 * n + 6 :].reshape(-1, 2)
        return x[:-1], x[1:], u

    def first(x: Any, after: Any, u: Any) -> Any:
        return step(step(x, u), u) - after

    def last(x: Any, after: Any, u: Any) -> Any:
        return step(step(x, u, slope_last), u, slope_last) - after

    def looped(z: Any) -> Any:
        x, after, u = gather(z)
        run = lambda x, u: jax.lax.fori_loop(0, 2, lambda _, x: step(x, u), x)  # noqa: E731
        return (jax.vmap(run)(x, u) - after).ravel()

    return PointProblem(8 * n + 6, gather, first, last, lambda e: e, "loop", looped)


def layer(n: int = 200) -> PointProblem:
    """A layer of messages between neighbours, of four features each."""
    i, j = pairs(n, n, nearest=1)
    w = np.random.default_rng(1).normal(size=(2, 4, 4)) / 2

    def first(a: Any, b: Any) -> Any:
        mixed = jnp.einsum("fg,g...->f...", w[0], a) + jnp.einsum("fg,g...->f...", w[1], b)
        gate = jax.nn.sigmoid(a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3])
        return gate * jax.nn.gelu(mixed) * jnp.exp(-(mixed**2))

    def last(a: Any, b: Any) -> Any:
        mixed = a @ w[0].T + b @ w[1].T
        gate = jax.nn.sigmoid(jnp.einsum("...f,...f->...", a, b))[..., None]
        return gate * jax.nn.gelu(mixed) * jnp.exp(-(mixed**2))

    def scatter(m: Any) -> Any:
        return jax.ops.segment_sum(m, jnp.asarray(j), n)

    def stages(z: Any) -> Any:
        x = z.reshape(n, 4)
        left, right = x @ w[0].T, x @ w[1].T
        mixed = left[i] + right[j]
        gate = jax.vmap(lambda a, b: jax.nn.sigmoid(a @ b))(x[i], x[j])
        return scatter(gate[:, None] * jax.nn.gelu(mixed) * jnp.exp(-(mixed**2))).ravel()

    gather = lambda z: _at_edges(z, n, i, j)  # noqa: E731
    return PointProblem(4 * n, gather, first, last, scatter, "two stages", stages)


PROBLEMS: dict[str, Callable[..., PointProblem]] = {
    f.__name__: f
    for f in (
        poses_3d, bricks, tetrahedra, shell, truss, bundle, volumes, reaction, shooting, layer,
    )
}  # fmt: skip


def scaled(name: str, scale: float) -> PointProblem:
    """A problem of its usual size times a number."""
    usual = PROBLEMS[name].__defaults__
    assert usual is not None
    return PROBLEMS[name](max(2, round(scale * usual[0])))
