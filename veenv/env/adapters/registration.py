"""Registration of every task with Gymnasium, as ``veenv/NAME-v0``."""

from __future__ import annotations

from collections.abc import Sequence

BUILT_IN = (
    "RoeFlux",  # as `veenv.make` takes it
    "RoeFlux_1d",
    "RoeFlux_3d",
    "RobotArm_6DOF",
    "HumanHeartDipole",
    "PropaneCombustion",
    "BlackScholes",
    "BlackScholes_Jacobian",
    "mlp",
    "Encoder",
    "EncoderDecoder",
    "LSTM",
    "LIF",
    "ALIF",
    "KerrMetric",
    "KerrMetric_Jacobian",
    "Lorenz96_RK4",
    "VanDerPol_RK4",
    "DoublePendulum_RK4",
    "Reprojection",
    "Robertson",
    "HydrogenOxygen",
    "EulerResidual_32",
    "RoeFlux_1d_batch16",
    "RobotArm_6DOF_batch16",
    "Reprojection_batch8",
    "RandomScalar_100",
    "RandomArray_40",
)
"""The built-in tasks; their modules import JAX, which a registration must not."""


def register(names: Sequence[str] = BUILT_IN) -> None:
    """Registers tasks with Gymnasium, as ``veenv/NAME-v0``; nothing is traced or compiled.

    Importing veenv does this where Gymnasium is imported already, since importing Gymnasium, too,
    would take most of the time of ``import veenv``. Otherwise call it before `gymnasium.make`.
    Tasks that are registered already stay as they are.

    Args:
      names: names of tasks, as `veenv.tasks.get` takes them.

    Examples:
      >>> import gymnasium, veenv
      >>> veenv.register()
      >>> gymnasium.spec("veenv/RoeFlux_1d-v0").kwargs
      {'task': 'RoeFlux_1d'}
    """
    import gymnasium

    for name in names:
        env_id = f"veenv/{name}-v0"
        if env_id not in gymnasium.registry:
            gymnasium.register(
                env_id,
                entry_point="veenv.env.adapters.gymnasium:GymVertexEnv",
                vector_entry_point="veenv.env.adapters.gymnasium_vector:GymVectorEnv",
                kwargs={"task": name},
            )
