"""Residual of an implicit finite-volume scheme for the Euler equations on a periodic line.

Sources: V. V. Rusanov, "The calculation of the interaction of non-stationary shock waves and
obstacles", USSR Comput. Math. Math. Phys. 1 (1961) 304; LeVeque, *Finite Volume Methods for
Hyperbolic Problems* (2002), ch. 12.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from veenv.tasks.task import Scalar, Task

GAMMA = 1.4
NUM_CELLS = 32


def euler_residual(
    density: Float[Array, "n"],
    momentum: Float[Array, "n"],
    energy: Float[Array, "n"],
    density0: Float[Array, "n"],
    momentum0: Float[Array, "n"],
    energy0: Float[Array, "n"],
    ratio: Scalar,
) -> tuple[Float[Array, "n"], Float[Array, "n"], Float[Array, "n"]]:
    """Residual of a backward Euler step with Rusanov's flux.

    Args:
      density: density of each cell after the step.
      momentum: momentum of each cell after the step.
      energy: energy of each cell after the step.
      density0: density before the step.
      momentum0: momentum before the step.
      energy0: energy before the step.
      ratio: time step over cell width.

    Returns:
      The residuals of density, momentum and energy; a step solves for residuals 0.
    """
    velocity = momentum / density
    pressure = (GAMMA - 1.0) * (energy - 0.5 * momentum * velocity)
    speed = jnp.abs(velocity) + jnp.sqrt(GAMMA * pressure / density)
    speed = jnp.maximum(speed, jnp.roll(speed, -1))

    def residual(new: Array, old: Array, flux: Array) -> Array:
        right = 0.5 * (flux + jnp.roll(flux, -1) - speed * (jnp.roll(new, -1) - new))
        return new - old + ratio * (right - jnp.roll(right, 1))

    return (
        residual(density, density0, momentum),
        residual(momentum, momentum0, momentum * velocity + pressure),
        residual(energy, energy0, velocity * (energy + pressure)),
    )


def _euler_point() -> tuple[Any, ...]:
    rng = np.random.default_rng(4)
    density = rng.uniform(0.8, 1.2, NUM_CELLS)
    momentum = rng.uniform(0.2, 0.6, NUM_CELLS)
    energy = rng.uniform(2.0, 3.0, NUM_CELLS)
    old = (x * rng.uniform(0.9, 1.1, NUM_CELLS) for x in (density, momentum, energy))
    return (density, momentum, energy, *old, 0.3)


TASKS = (
    Task.at(
        "EulerResidual_32",
        euler_residual,
        _euler_point(),
        "Residual of an implicit finite-volume step, Euler equations, 32 cells.",
        "Rusanov 1961; LeVeque 2002, ch. 12",
    ),
)
