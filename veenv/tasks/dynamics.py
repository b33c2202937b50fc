"""One Runge-Kutta step of dynamical systems.

Sources: E. N. Lorenz, "Predictability: a problem partly solved", ECMWF seminar (1996);
B. van der Pol, Phil. Mag. 2 (1926) 978; the planar double pendulum of two point masses on
massless rods (Goldstein, *Classical Mechanics*, ch. 1), with the equations of motion solved for the
accelerations. The classical method of fourth order: Kutta, Z. Math. Phys. 46 (1901) 435.
"""

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from veenv.tasks.task import Scalar, Task

GRAVITY = 9.81

Four: TypeAlias = tuple[Scalar, Scalar, Scalar, Scalar]


Y = TypeVar("Y")


def rk4(derivative: Callable[[Y], Y], y: Y, h: Scalar | float) -> Y:
    """One step of the classical Runge-Kutta method from `y` on."""

    def ahead(step: Scalar | float, slope: Y) -> Y:
        return jax.tree.map(lambda y, k: y + step * k, y, slope)

    k1 = derivative(y)
    k2 = derivative(ahead(0.5 * h, k1))
    k3 = derivative(ahead(0.5 * h, k2))
    k4 = derivative(ahead(h, k3))
    mean = jax.tree.map(lambda a, b, c, d: a + 2.0 * b + 2.0 * c + d, k1, k2, k3, k4)
    return ahead(h / 6.0, mean)


def lorenz96_step(x: Float[Array, "n"], forcing: Scalar, h: Scalar) -> Float[Array, "n"]:
    """One step of the Lorenz-96 model of waves round a circle of latitude.

    Args:
      x: state at each of ``n`` sites.
      forcing: external forcing F.
      h: step in time.

    Returns:
      The state after the step.
    """

    def derivative(x: Array) -> Array:
        return (jnp.roll(x, -1) - jnp.roll(x, 2)) * jnp.roll(x, 1) - x + forcing

    return rk4(derivative, x, h)


def van_der_pol_step(x: Scalar, v: Scalar, mu: Scalar, h: Scalar) -> tuple[Scalar, Scalar]:
    """One step of the van der Pol oscillator.

    Args:
      x: position.
      v: velocity.
      mu: strength of the nonlinear damping.
      h: step in time.

    Returns:
      Position and velocity after the step.
    """

    def derivative(state: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        x, v = state
        return v, mu * (1.0 - x**2) * v - x

    return rk4(derivative, (x, v), h)


def double_pendulum_step(
    theta1: Scalar,
    theta2: Scalar,
    omega1: Scalar,
    omega2: Scalar,
    m1: Scalar,
    m2: Scalar,
    l1: Scalar,
    l2: Scalar,
) -> Four:
    """One step of 0.02 s of a double pendulum.

    Args:
      theta1: angle of the upper rod from the vertical, radians.
      theta2: angle of the lower rod from the vertical, radians.
      omega1: angular velocity of the upper rod, radians per second.
      omega2: angular velocity of the lower rod.
      m1: upper mass, kilograms.
      m2: lower mass.
      l1: length of the upper rod, metres.
      l2: length of the lower rod.

    Returns:
      Both angles and both angular velocities after the step.
    """

    def derivative(state: Four) -> Four:
        t1, t2, w1, w2 = state
        sin, cos = jnp.sin(t1 - t2), jnp.cos(t1 - t2)
        total = m1 + m2
        inertia = m1 + m2 * sin**2
        pull1, pull2 = GRAVITY * jnp.sin(t1), GRAVITY * jnp.sin(t2)
        swing1, swing2 = l1 * w1**2, l2 * w2**2
        a1 = (m2 * pull2 * cos - m2 * sin * (swing1 * cos + swing2) - total * pull1) / (
            l1 * inertia
        )
        a2 = (total * (swing1 * sin - pull2 + pull1 * cos) + m2 * swing2 * sin * cos) / (
            l2 * inertia
        )
        return w1, w2, a1, a2

    return rk4(derivative, (theta1, theta2, omega1, omega2), 0.02)


TASKS = (
    Task.at(
        "Lorenz96_RK4",
        lorenz96_step,
        (np.random.default_rng(3).uniform(-3.0, 6.0, 40), 8.0, 0.05),
        "One Runge-Kutta step of the Lorenz-96 model with 40 sites.",
        "Lorenz, ECMWF seminar on predictability, 1996",
    ),
    Task.at(
        "VanDerPol_RK4",
        van_der_pol_step,
        (1.3, -0.7, 2.1, 0.1),
        "One Runge-Kutta step of the van der Pol oscillator, 4 to 2 scalars.",
        "van der Pol, Phil. Mag. 2 (1926) 978",
    ),
    Task.at(
        "DoublePendulum_RK4",
        double_pendulum_step,
        (0.8, -0.5, 1.1, -0.9, 1.2, 0.7, 0.9, 1.4),
        "One Runge-Kutta step of a double pendulum, 8 to 4 scalars.",
        "Goldstein, Classical Mechanics, ch. 1; Kutta 1901",
    ),
)
