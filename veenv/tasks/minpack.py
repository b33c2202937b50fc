"""Two systems of nonlinear equations from MINPACK-2.

Source: B. M. Averick, R. G. Carter, J. J. Moré, G.-L. Xue, "The MINPACK-2 test problem
collection", Argonne National Laboratory, Preprint MCS-P153-0692 (1992); evaluated in the order of
the benchmark of Lohoff and Neftci, arXiv 2406.05027.
"""

import jax.numpy as jnp

from veenv.tasks.task import Scalar, Task

_SOURCE = "MINPACK-2 (Averick et al., MCS-P153-0692, 1992), section {}; arXiv 2406.05027"


def human_heart_dipole(
    x1: Scalar,
    x2: Scalar,
    x3: Scalar,
    x4: Scalar,
    x5: Scalar,
    x6: Scalar,
    x7: Scalar,
    x8: Scalar,
) -> tuple[Scalar, ...]:
    """Residuals of the human heart dipole problem, every measured sum being 1.

    Args:
      x1: first component of the first dipole moment (a in MINPACK-2).
      x2: first component of the second dipole moment (b).
      x3: second component of the first dipole moment (c).
      x4: second component of the second dipole moment (d).
      x5: first coordinate of the first dipole (t).
      x6: first coordinate of the second dipole (u).
      x7: second coordinate of the first dipole (v).
      x8: second coordinate of the second dipole (w).

    Returns:
      The eight residuals.
    """
    f1 = x1 + x2 - 1.0
    f2 = x3 + x4 - 1.0
    f3 = x5 * x1 + x6 * x2 - x7 * x3 - x8 * x4 - 1.0
    f4 = x7 * x1 + x8 * x2 + x5 * x3 + x6 * x4 - 1.0

    a = x5**2 - x7**2
    b = x6**2 - x8**2
    f5 = x1 * a - 2.0 * x3 * x5 * x7 + x2 * b - 2.0 * x4 * x6 * x8 - 1.0
    f6 = x3 * a - 2.0 * x1 * x5 * x7 + x4 * b - 2.0 * x2 * x6 * x8 - 1.0

    c = x5 * (x5**2 - 3.0 * x7**2)
    d = x7 * (x7**2 - 3.0 * x5**2)
    e = x6 * (x6**2 - 3.0 * x8**2)
    g = x8 * (x8**2 - 3.0 * x6**2)
    f7 = x1 * c + x3 * d + x2 * e + x4 * g - 1.0
    f8 = x3 * c - x1 * d + x4 * e - x2 * g - 1.0
    return f1, f2, f3, f4, f5, f6, f7, f8


def propane_combustion(
    x1: Scalar,
    x2: Scalar,
    x3: Scalar,
    x4: Scalar,
    x5: Scalar,
    x6: Scalar,
    x7: Scalar,
    x8: Scalar,
    x9: Scalar,
    x10: Scalar,
    x11: Scalar,
) -> tuple[Scalar, ...]:
    """Residuals of the full formulation of the combustion of propane.

    Args:
      x1: moles of the first product per mole of propane; ``x2`` to ``x10`` likewise.
      x2: second product.
      x3: third product.
      x4: fourth product.
      x5: fifth product.
      x6: sixth product.
      x7: seventh product.
      x8: eighth product.
      x9: ninth product.
      x10: tenth product.
      x11: sum of the moles of all products.

    Returns:
      The eleven residuals.
    """
    p, r = 40.0, 10.0
    s = jnp.sqrt(p / x11)
    f1 = x1 + x4 - 3.0
    f2 = 2.0 * x1 + x2 + x4 + x7 + x8 + x9 + 2.0 * x10 - r
    f3 = 2.0 * x2 + 2.0 * x5 + x6 + x7 - 8.0
    f4 = 2.0 * x3 + x9 - 4.0 * r
    f5 = x2 * x4 - x1 * x5
    f6 = jnp.sqrt(x2 * x4) - jnp.sqrt(x1) * s * x6
    f7 = jnp.sqrt(x1 * x2) - jnp.sqrt(x4) * x7 * s
    f8 = x1 - x4 * x8 * p / x11
    f9 = x1 * jnp.sqrt(x3) - x4 * x9 * s
    f10 = x1**2 - x4**2 * x10 * p / x11
    f11 = x11 - x1 - x2 - x3 - x4 - x5 - x6 - x7 - x8 - x9 - x10
    return f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11


TASKS = (
    Task.at(
        "HumanHeartDipole",
        human_heart_dipole,
        (0.3, 0.5, -0.2, 0.7, 1.1, -0.6, 0.4, 0.9),
        "Residuals of the human heart dipole problem, 8 to 8 scalars.",
        _SOURCE.format("Human heart dipole"),
    ),
    Task.at(
        "PropaneCombustion",
        propane_combustion,
        (0.5, 0.7, 0.9, 1.1, 0.4, 0.6, 0.8, 0.3, 1.2, 0.2, 2.0),
        "Residuals of the combustion of propane, 11 to 11 scalars.",
        _SOURCE.format("Combustion of propane: full formulation"),
    ),
)
