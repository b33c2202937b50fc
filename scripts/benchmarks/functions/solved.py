"""Problems that solvers of sparse systems are measured on, with Jacobians made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from scripts.benchmarks.functions.sparse_cases import adjustment, brusselator
from scripts.benchmarks.functions.sparse_problems import hexahedra, pairs, pose_error, rotation

sparse: Any = scipy.sparse  # SciPy's stubs know one kind of `offsets` only


class SolverProblem(NamedTuple):
    """A function of one flat vector and where a solver starts.

    Attributes:
      fun: the function.
      start: [n] the unknowns at the start.
      by_hand: its Jacobian as a matrix of SciPy, written without a library; None: nobody did.
    """

    fun: Callable[[Any], Any]
    start: np.ndarray
    by_hand: Callable[[np.ndarray], Any] | None = None


def brusselator_line(size: int = 800) -> SolverProblem:
    """The one-dimensional Brusselator with diffusion 1/50, as Hairer & Wanner (1996) start it."""
    n = size // 2
    rate = (n + 1) ** 2 / 50
    place = np.arange(1, n + 1) / (n + 1)
    start = np.concatenate([1 + np.sin(2 * np.pi * place), np.full(n, 3.0)])

    def spread(w: Any, edge: float) -> Any:
        w = jnp.pad(w, 1, constant_values=edge)
        return rate * (w[2:] - 2 * w[1:-1] + w[:-2])

    def slope(z: Any) -> Any:
        u, v = z.reshape(2, n)
        du = 1 + u * u * v - 4 * u + spread(u, 1.0)
        return jnp.concatenate([du, 3 * u - u * u * v + spread(v, 3.0)])

    second = sparse.diags_array([1.0, -2.0, 1.0], offsets=[-1, 0, 1], shape=(n, n))
    return SolverProblem(slope, start, _reactions(n, rate * second, 4.0, 3.0))


def brusselator_grid(size: int = 800) -> SolverProblem:
    """The two-dimensional Brusselator on a periodic grid, as Hairer & Wanner (1996) start it."""
    n = round((size // 2) ** 0.5)
    place = np.arange(n) / n
    bump = (place * (1 - place)) ** 1.5
    start = np.stack([np.tile(22 * bump, (n, 1)).T, np.tile(27 * bump, (n, 1))]).ravel()
    ones = np.ones(n)
    ring = sparse.diags_array(
        [ones, ones, -2 * ones, ones, ones], offsets=[1 - n, -1, 0, 1, n - 1], shape=(n, n)
    )
    one = sparse.eye_array(n)
    second = sparse.kron(ring, one) + sparse.kron(one, ring)
    by_hand = _reactions(n * n, 0.02 * (n - 1) ** 2 * second, 4.4, 3.4)
    return SolverProblem(lambda z: brusselator(z, n), start, by_hand)


def _reactions(n: int, spread: Any, drain: float, feed: float) -> Callable[[np.ndarray], Any]:
    def jacobian(z: np.ndarray) -> Any:
        u, v = z.reshape(2, n)
        upper = [sparse.diags_array(2 * u * v - drain) + spread, sparse.diags_array(u * u)]
        lower = [sparse.diags_array(feed - 2 * u * v), sparse.diags_array(-u * u) + spread]
        return sparse.block_array([upper, lower], format="csc")

    return jacobian


def phase_line(size: int = 100_000) -> SolverProblem:
    """A large implicit step of the Allen–Cahn equation on a line."""
    start = np.tanh(np.sin(np.arange(size) * 20 / size))

    def residual(u: Any) -> Any:
        w = jnp.pad(u, 1, mode="edge")
        return u - start - (u - u**3) / 2 - 50 * (w[2:] - 2 * u + w[:-2])

    return SolverProblem(residual, start)


def phase_grid(size: int = 100_000) -> SolverProblem:
    """A large implicit step of the Allen–Cahn equation on a grid."""
    width = max(d for d in range(1, int(size**0.5) + 1) if size % d == 0)
    place = np.arange(size).reshape(-1, width)
    start = np.tanh(np.sin(place * 20 / size) + np.cos(place % width * 20 / width)).ravel()

    def residual(z: Any) -> Any:
        u = z.reshape(-1, width)
        w = jnp.pad(u, 1, mode="edge")
        around = w[2:, 1:-1] + w[:-2, 1:-1] + w[1:-1, 2:] + w[1:-1, :-2]
        return z - start - (z - z**3) / 2 - 5 * (around - 4 * u).ravel()

    return SolverProblem(residual, start)


def cameras(size: int = 990) -> SolverProblem:
    """Ten cameras that see points with errors of half a pixel: 9 unknowns a camera, 3 a point."""
    rng = np.random.default_rng(1)
    points = (size - 90) // 3
    seen = 10 * points // 3
    project = adjustment(10, points, seen)
    views = rng.normal(size=(10, 9)) * [0.2, 0.2, 0.2, 0.3, 0.3, 0.3, 5, 0.01, 0.01]
    views[:, 6] += 500
    truth = np.concatenate([views.ravel(), rng.uniform(-1, 1, 3 * points)])
    observed = np.asarray(project(truth)) + 0.5 * rng.normal(size=2 * seen)
    start = truth + rng.normal(size=truth.size) * 0.05
    return SolverProblem(lambda z: project(z) - observed, start)


def elastic(size: int = 3000) -> SolverProblem:
    """Hyperelastic cubes, held at one side by stiff springs and pulled down at the other."""
    n = round((size / 3) ** (1 / 3)) - 1
    forces, count = hexahedra(n)
    side = np.repeat(np.arange(n + 1), 3 * (n + 1) ** 2)
    held = jnp.asarray(100.0 * (side == 0))
    load = np.where(side == n, np.tile([0.0, 0, -1], count // 3), 0) / (n + 1) ** 2 / 20
    return SolverProblem(lambda z: forces(z) + held * z - load, np.zeros(count))


def pose_graph(size: int = 3000) -> SolverProblem:
    """Poses in space by what is measured between some of them, with errors of a hundredth."""
    n = size // 6
    i, j = pairs(n, n // 2)
    rng = np.random.default_rng(1)
    truth = np.concatenate([0.5 * rng.normal(size=(n, 3)), rng.normal(size=(n, 3))], axis=1)
    turned = np.asarray(jax.vmap(rotation)(truth[:, :3]))
    turns = np.swapaxes(turned[i], 1, 2) @ turned[j]
    moves = np.einsum("kba,kb->ka", turned[i], truth[j, 3:] - truth[i, 3:])
    moves += 0.01 * rng.normal(size=moves.shape)

    def errors(z: Any) -> Any:
        p = z.reshape(-1, 6)
        each = jax.vmap(pose_error)(p[i], p[j], jnp.asarray(turns), jnp.asarray(moves))
        return each.ravel()

    return SolverProblem(errors, (truth + 0.05 * rng.normal(size=truth.shape)).ravel())
