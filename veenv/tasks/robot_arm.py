"""Forward kinematics of an industrial robot arm with six revolute joints.

Source: the Denavit-Hartenberg parameters and closed form of the 6-DOF manipulator used as a
benchmark by Lohoff and Neftci, arXiv 2406.05027.
"""

import jax.numpy as jnp

from veenv.tasks.task import Scalar, Task

# Link lengths and offsets in millimetres.
A1, A2, A3 = 175.0, 890.0, 50.0
D1, D4, D6 = 575.0, 1035.0, 185.0


def _cos_sum(x: Scalar, y: Scalar) -> Scalar:
    return jnp.cos(x) * jnp.cos(y) - jnp.sin(x) * jnp.sin(y)


def _sin_sum(x: Scalar, y: Scalar) -> Scalar:
    return jnp.cos(x) * jnp.sin(y) + jnp.sin(x) * jnp.cos(y)


def robot_arm_6dof(
    t1: Scalar, t2: Scalar, t3: Scalar, t4: Scalar, t5: Scalar, t6: Scalar
) -> tuple[Scalar, Scalar, Scalar, Scalar, Scalar, Scalar]:
    """Pose of the tool as a function of the joint angles.

    Args:
      t1: angle of the first joint, radians; ``t2`` to ``t6`` likewise.
      t2: second joint.
      t3: third joint.
      t4: fourth joint.
      t5: fifth joint.
      t6: sixth joint.

    Returns:
      Position (px, py, pz) in millimetres and Tait-Bryan angles (z, y, z') in radians.
    """
    c1, c2, c4, c5, c6 = (jnp.cos(t) for t in (t1, t2, t4, t5, t6))
    c23 = _cos_sum(t2, t3)
    s1, s2, s4, s5, s6 = (jnp.sin(t) for t in (t1, t2, t4, t5, t6))
    s23 = _sin_sum(t2, t3)

    ax = s5 * (c1 * c23 * c4 + s1 * s4) + c1 * s23 * c5
    ay = s5 * (s1 * c23 * c4 - c1 * s4) + s1 * s23 * c5
    az = s23 * c4 * s5 - c23 * c5
    nz = c6 * (c23 * s5 + s23 * c4 * c5) - s23 * s4 * s6
    oz = -s6 * (c23 * s5 + s23 * c4 * c5) - s23 * s4 * c6

    z = jnp.arctan2(ay, ax)
    y = jnp.arctan2(jnp.sqrt(1.0 - az**2), az)
    zz = jnp.arctan2(oz, -nz)

    px = D6 * (s5 * (c1 * c23 * c4 + s1 * s4) + c1 * s23 * c5) + c1 * (
        A1 + A2 * c2 + A3 * c23 + D4 * s23
    )
    py = D6 * (s5 * (s1 * c23 * c4 + c1 * s4) + s1 * s23 * c5) + s1 * (
        A1 + A2 * c2 + A3 * c23 + D4 * s23
    )
    pz = A2 * s2 + D1 + A3 * s23 - D4 * c23 + D6 * (s23 * c4 * s5 - c23 * c5)
    return px, py, pz, z, y, zz


TASKS = (
    Task.at(
        "RobotArm_6DOF",
        robot_arm_6dof,
        (0.3, -0.4, 0.5, 0.7, -0.6, 0.2),
        "Forward kinematics of a six-joint robot arm, 6 to 6 scalars.",
        "arXiv 2406.05027, appendix (6-DOF manipulator)",
    ),
)
