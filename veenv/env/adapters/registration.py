"""Registration of every task with Gymnasium, as ``veenv/NAME-v0``.

Importing veenv must not import Gymnasium, and yet its registry must know the tasks whichever of
the two is imported first.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

BUILT_IN = (
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
    """Registers the tasks that are not registered yet; nothing is traced or compiled.

    Args:
      names: names of tasks, as `veenv.tasks.get` takes them.

    Example:
      >>> import gymnasium
      >>> register(["RoeFlux_1d"])
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


def register_with_gymnasium() -> None:
    """Registers the built-in tasks now or, if Gymnasium is not loaded, as soon as it is.

    Example:
      >>> register_with_gymnasium()  # importing veenv has done so already
    """
    if "gymnasium" in sys.modules:
        register()
    elif not any(isinstance(finder, _Watch) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watch())


class _Watch(importlib.abc.MetaPathFinder):
    """Finds Gymnasium as Python would, once, and registers the tasks behind its import."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Registering(spec.loader)
        return spec


class _Registering(importlib.abc.Loader):
    """A loader that registers the tasks when another loader has run the module."""

    def __init__(self, loader: importlib.abc.Loader):
        self.loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        register()
