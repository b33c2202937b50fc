"""Reprojection residual of bundle adjustment: predicted minus measured image position.

Source: Agarwal, Snavely, Seitz, Szeliski, "Bundle adjustment in the large", ECCV 2010 (camera with
a rotation vector, translation, focal length and two radial distortion coefficients); Rodrigues'
rotation formula.
"""

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from veenv.tasks.task import Scalar, Task


def _cross(a: Array, b: Array) -> Array:
    return jnp.roll(jnp.roll(b, -1) * a - jnp.roll(a, -1) * b, -1)


def _rotate(omega: Array, point: Array) -> Array:
    """Turns a point by the rotation vector ``omega`` (not 0)."""
    angle = jnp.sqrt(jnp.sum(omega**2))
    axis = omega / angle
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    along = jnp.sum(axis * point)
    return point * cos + _cross(axis, point) * sin + axis * (along * (1.0 - cos))


def reprojection_residual(
    omega: Float[Array, "3"],
    translation: Float[Array, "3"],
    focal: Scalar,
    k1: Scalar,
    k2: Scalar,
    point: Float[Array, "3"],
    observed: Float[Array, "2"],
) -> Float[Array, "2"]:
    """Residual of one observation of one point.

    Args:
      omega: rotation vector (axis times angle) of the camera, not 0.
      translation: translation of the camera.
      focal: focal length in pixels.
      k1: first coefficient of radial distortion.
      k2: second coefficient of radial distortion.
      point: position of the point in the world.
      observed: where the point was seen, in pixels.

    Returns:
      Predicted less observed position, in pixels.
    """
    seen = _rotate(omega, point) + translation
    image = -seen[:2] / seen[2:]
    radius2 = jnp.sum(image**2)
    distortion = 1.0 + radius2 * (k1 + k2 * radius2)
    return focal * distortion * image - observed


TASKS = (
    Task.at(
        "Reprojection",
        reprojection_residual,
        ([0.3, -0.2, 0.5], [0.4, -0.3, -6.0], 4.0, -0.12, 0.05, [0.7, 1.1, -0.6], [0.3, 0.8]),
        "Residual of one observation in bundle adjustment, an SE(3) camera.",
        "Agarwal et al., Bundle adjustment in the large, ECCV 2010",
    ),
)
