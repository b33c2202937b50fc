"""Steps of schemes for flows, cell by cell.

Sources: B. van Leer, J. Comput. Phys. 32 (1979) 101, with the limiter of G. van Albada, B. van
Leer, W. Roberts, Astron. Astrophys. 108 (1982) 76; Y. Qian, D. d'Humières, P. Lallemand, Europhys.
Lett. 17 (1992) 479.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from veenv.tasks.task import Scalar


def burgers_step(*u: Scalar) -> tuple[Scalar, ...]:
    """Two stages of a limited scheme of second order for Burgers' equation on a ring of cells."""

    def change(u: list[Scalar]) -> list[Scalar]:
        number = len(u)
        ahead = [u[(k + 1) % number] - u[k] for k in range(number)]
        slopes = []
        for k in range(number):
            a, b = ahead[k - 1], ahead[k]
            slopes.append(a * b * (a + b) / (a * a + b * b + 1e-6))
        flux = []
        for k in range(number):
            after = (k + 1) % number
            left, right = u[k] + 0.5 * slopes[k], u[after] - 0.5 * slopes[after]
            wave = jnp.sqrt(0.25 * (left + right) * (left + right) + 1e-3)
            flux.append(0.25 * (left * left + right * right) - 0.5 * wave * (right - left))
        return [0.3 * (flux[k - 1] - flux[k]) for k in range(number)]

    first = [a + b for a, b in zip(u, change(list(u)), strict=True)]
    second = change(first)
    return tuple(0.5 * (a + b + c) for a, b, c in zip(u, first, second, strict=True))


WAYS = ((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1))
SHARES = (4 / 9, *[1 / 9] * 4, *[1 / 36] * 4)


def lattice_boltzmann_step(*x: Scalar) -> tuple[Scalar, ...]:
    """Collision, streaming, collision on a periodic lattice of 3 × 2 cells of nine; 1/τ is last."""
    width, height, rate = 3, 2, x[-1]
    cells = {(i, j): x[9 * (i * height + j) :][:9] for i in range(width) for j in range(height)}

    def collided(f: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        density = sum(f[1:], f[0])
        jx = f[1] - f[3] + f[5] - f[6] - f[7] + f[8]
        jy = f[2] - f[4] + f[5] + f[6] - f[7] - f[8]
        vx, vy = jx / density, jy / density
        energy = 1.0 - 1.5 * (vx * vx + vy * vy)
        relaxed = []
        for part, (cx, cy), share in zip(f, WAYS, SHARES, strict=True):
            terms = [float(c) * v for c, v in ((cx, vx), (cy, vy)) if c]
            along = terms[0] + terms[1] if len(terms) == 2 else terms[0] if terms else None
            bent = energy if along is None else energy + along * (3.0 + 4.5 * along)
            relaxed.append(part + rate * (share * density * bent - part))
        return tuple(relaxed)

    after = {place: collided(f) for place, f in cells.items()}
    streamed = {
        (i, j): tuple(
            after[(i - cx) % width, (j - cy) % height][k] for k, (cx, cy) in enumerate(WAYS)
        )
        for i, j in cells
    }
    return tuple(part for f in streamed.values() for part in collided(f))


_RNG = np.random.default_rng(13)

ENTRIES = (
    (
        "Burgers_MUSCL",
        burgers_step,
        _RNG.uniform(-1.0, 1.0, 16),
        "Two stages of a limited scheme for Burgers' equation, 16 cells.",
        "van Leer, J. Comput. Phys. 32 (1979) 101",
    ),
    (
        "LatticeBoltzmann_D2Q9",
        lattice_boltzmann_step,
        (*(np.tile(SHARES, 6) * _RNG.uniform(0.8, 1.2, 54)), 1.3),
        "Two collisions and a streaming of a lattice gas, 55 to 54 scalars.",
        "Qian, d'Humières, Lallemand, Europhys. Lett. 17 (1992) 479",
    ),
)
