"""Roe's approximate Riemann solver for the Euler equations, in one and three dimensions.

Sources: P. L. Roe, "Approximate Riemann solvers, parameter vectors, and difference schemes",
J. Comput. Phys. 43 (1981) 357-372; as a benchmark of vertex elimination: M. Tadjouddine,
S. A. Forth, J. D. Pryce, J. K. Reid, "Performance issues for vertex elimination methods in
computing Jacobians using automatic differentiation", ICCS 2002; Lohoff and Neftci,
arXiv 2406.05027.

The state of a cell is (density, momentum, energy). Formulas are evaluated exactly in the written
order, because the order decides the computational graph.
"""

from typing import TypeAlias

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from veenv.tasks.task import Scalar, Task

One: TypeAlias = Float[Array, "1"]
Three: TypeAlias = Float[Array, "3"]

GAMMA = 0.5

_SOURCE = "Roe, J. Comput. Phys. 43 (1981) 357; Tadjouddine et al., ICCS 2002; arXiv 2406.05027"


def _pressure(u0: Array, u1: Array, u2: Array) -> Array:
    return (GAMMA - 1.0) * (u2 - 0.5 * u1**2 / u0)


def _enthalpy(u0: Array, u2: Array, p: Array) -> Array:
    return (u2 + p) / u0


def _flux(u0: Array, u1: Array, u2: Array, p: Array) -> tuple[Array, Array, Array]:
    v = u1 / u0
    return u1, p + u1 * v, v * (p + u2)


def _roe_average(ul0: Array, ur0: Array, left: Array, right: Array, w: Array) -> Array:
    return (jnp.sqrt(ul0) * left + jnp.sqrt(ur0) * right) / w


def roe_flux_1d(
    ul0: Scalar, ul1: Scalar, ul2: Scalar, ur0: Scalar, ur1: Scalar, ur2: Scalar
) -> tuple[Scalar, Scalar, Scalar]:
    """Numerical flux between two cells of the one-dimensional Euler equations.

    Args:
      ul0: density of the left cell.
      ul1: momentum of the left cell.
      ul2: energy of the left cell.
      ur0: density of the right cell.
      ur1: momentum of the right cell.
      ur2: energy of the right cell.

    Returns:
      The fluxes of density, momentum and energy.
    """
    du0 = ur0 - ul0
    s = jnp.sqrt(ul0 * ur0)
    w = jnp.sqrt(ul0) + jnp.sqrt(ur0)

    vl = ul1 / ul0
    pl = _pressure(ul0, ul1, ul2)
    hl = _enthalpy(ul0, ul2, pl)
    vr = ur1 / ur0
    pr = _pressure(ur0, ur1, ur2)
    hr = _enthalpy(ur0, ur2, pr)
    dp = pr - pl
    dv = vr - vl

    u = _roe_average(ul0, ur0, vl, vr, w)
    h = _roe_average(ul0, ur0, hl, hr, w)
    q2 = u**2
    a2 = (GAMMA - 1.0) * (h - 0.5 * q2)
    a = jnp.sqrt(a2)
    lp = jnp.abs(u + a)
    l0 = jnp.abs(u)
    ln = jnp.abs(u)  # as published: |u|, not |u - a|

    n = a * s
    c0 = (du0 - dp / a2) * l0
    c1 = (dv + dp / n) * lp
    c2 = (dv - dp / n) * ln

    flux_left = _flux(ul0, ul1, ul2, pl)
    flux_right = _flux(ur0, ur1, ur2, pr)
    flux = [left + right for left, right in zip(flux_left, flux_right, strict=True)]

    c = 0.5 * s / a
    d0 = c0 + c * c1 - c * c2
    d1 = c0 * u + c * c1 * (u + a) - c * c2 * (u - a)
    d2 = c0 * 0.5 * q2 + c * c1 * (h + u * a) - c * c2 * (h - u * a)
    return 0.5 * (flux[0] - d0), 0.5 * (flux[1] - d1), 0.5 * (flux[2] - d2)


def _pressure_3d(u0: Array, u: Array, u4: Array) -> Array:
    return (GAMMA - 1.0) * (u4 - 0.5 * jnp.sum(u**2, keepdims=True) / u0)


def _flux_3d(u: Array, v: Array, u4: Array, p: Array) -> tuple[Array, Array, Array]:
    normal = v[0:1]
    # As published: the momentum flux is the elementwise product u * v, not v[0] * u.
    pressure = lax.pad(p, p.dtype.type(0), ((0, 2, 0),))
    return u[0:1], pressure + u * v, normal * (p + u4)


def _dissipation_3d(
    du0: Array, du: Array, du4: Array, uvw: Array, h: Array
) -> tuple[Array, Array, Array]:
    """Jumps projected on the eigenvectors, weighted by the eigenvalues: the upwind part."""
    u, v, w = uvw[0:1], uvw[1:2], uvw[2:3]
    du1, du2, du3 = du[0:1], du[1:2], du[2:3]
    q2 = jnp.sum(uvw**2, keepdims=True)
    a2 = (GAMMA - 1.0) * (h - 0.5 * q2)
    a = jnp.sqrt(a2)
    lp, l0, ln = u + a, u, u - a

    c3 = ((GAMMA - 1.0) / a2 * ((h - q2) * du0 + jnp.sum(uvw * du, keepdims=True) - du4)) * l0
    c2 = (du3 / w - du1) * l0
    c1 = (du2 / v - du0) * l0
    k1 = du0 - c3
    k2 = (du1 - u * du0) / a
    c0 = 0.5 * (k1 - k2) * ln
    c4 = 0.5 * (k1 + k2) * lp

    d0 = c0 + c3 + c4 * lp
    d1 = c0 * ln + c3 * u + c4 * lp
    d2 = c0 * v + c1 * v + c3 * v + c4 * v
    d3 = c0 * w + c2 * w + c3 * w + c4 * w
    d4 = c0 * (h - u * a) + c1 * v**2 + c2 * w**2 + c3 * 0.5 * q2 + c4 * (h + u * a)
    return d0, jnp.concatenate([d1, d2, d3]), d4


def roe_flux_3d(
    ul0: One, ul: Three, ul4: One, ur0: One, ur: Three, ur4: One
) -> tuple[One, Three, One]:
    """Numerical flux between two cells of the three-dimensional Euler equations.

    Args:
      ul0: density of the left cell.
      ul: momentum of the left cell.
      ul4: energy of the left cell.
      ur0: density of the right cell.
      ur: momentum of the right cell.
      ur4: energy of the right cell.

    Returns:
      The fluxes of density, momentum and energy.
    """
    du0, du, du4 = ur0 - ul0, ur - ul, ur4 - ul4
    w = jnp.sqrt(ul0) + jnp.sqrt(ur0)
    vl, vr = ul / ul0, ur / ur0
    uvw = _roe_average(ul0, ur0, vl, vr, w)
    pl = _pressure_3d(ul0, ul, ul4)
    hl = _enthalpy(ul0, ul4, pl)
    pr = _pressure_3d(ur0, ur, ur4)
    hr = _enthalpy(ur0, ur4, pr)
    h = _roe_average(ul0, ur0, hl, hr, w)

    flux_left = _flux_3d(ul, vl, ul4, pl)
    flux_right = _flux_3d(ur, vr, ur4, pr)
    d = _dissipation_3d(du0, du, du4, uvw, h)
    density, momentum, energy = (
        0.5 * (left + right - upwind)
        for left, right, upwind in zip(flux_left, flux_right, d, strict=True)
    )
    return density, momentum, energy


TASKS = (
    Task.at(
        "RoeFlux_1d",
        roe_flux_1d,
        (1.0, 3.0, 2.0, 0.8, 2.5, 1.7),
        "Roe flux of the one-dimensional Euler equations, 6 to 3 scalars.",
        _SOURCE,
    ),
    Task.at(
        "RoeFlux_3d",
        roe_flux_3d,
        ([1.0], [3.0, 0.5, 0.4], [2.0], [0.8], [2.5, 0.6, 0.3], [1.7]),
        "Roe flux of the three-dimensional Euler equations, vectors of size 1 and 3.",
        _SOURCE,
    ),
)
