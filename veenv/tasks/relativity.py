"""The metric of a rotating black hole, and its derivative.

Source: Kerr, Phys. Rev. Lett. 11 (1963) 237; in the coordinates of Boyer and Lindquist,
J. Math. Phys. 8 (1967) 265; geometric units (G = c = 1).
"""

import jax
import jax.numpy as jnp

from veenv.tasks.task import Scalar, Task


def kerr_metric(
    r: Scalar, theta: Scalar, mass: Scalar, a: Scalar
) -> tuple[Scalar, Scalar, Scalar, Scalar, Scalar]:
    """Components of the metric that do not vanish.

    Args:
      r: radial coordinate.
      theta: polar angle, radians.
      mass: mass M of the black hole.
      a: angular momentum divided by the mass.

    Returns:
      The components (tt), (t phi), (rr), (theta theta), (phi phi).
    """
    sin2 = jnp.sin(theta) ** 2
    sigma = r**2 + a**2 * jnp.cos(theta) ** 2
    delta = r**2 - 2.0 * mass * r + a**2
    ratio = 2.0 * mass * r / sigma
    g_tt = ratio - 1.0
    g_tp = -ratio * a * sin2
    g_pp = (r**2 + a**2 + ratio * a**2 * sin2) * sin2
    return g_tt, g_tp, sigma / delta, sigma, g_pp


def kerr_metric_jacobian(
    r: Scalar, theta: Scalar, mass: Scalar, a: Scalar
) -> tuple[tuple[Scalar, Scalar], ...]:
    """Derivatives of the metric by the coordinates, as the Christoffel symbols need them.

    Args:
      r: radial coordinate.
      theta: polar angle, radians.
      mass: mass M of the black hole.
      a: angular momentum divided by the mass.

    Returns:
      For each component of ``kerr_metric`` its derivatives by ``r`` and ``theta``.
    """
    return jax.jacfwd(kerr_metric, (0, 1))(r, theta, mass, a)


_POINT = (3.2, 1.1, 1.0, 0.6)
_SOURCE = "Kerr 1963; Boyer and Lindquist 1967"

TASKS = (
    Task.at(
        "KerrMetric",
        kerr_metric,
        _POINT,
        "Metric of a rotating black hole in Boyer-Lindquist coordinates.",
        _SOURCE,
    ),
    Task.at(
        "KerrMetric_Jacobian",
        kerr_metric_jacobian,
        _POINT,
        "The Jacobian function of KerrMetric (jax.jacfwd), to be differentiated again.",
        _SOURCE,
    ),
)
