"""Registers every task with Gymnasium, as ``veenv/NAME-v0``, whichever is imported first."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

NAMES = [
    "RoeFlux",  # alias, as in `veenv.make`
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
]
"""Built-in tasks, listed here as their modules import JAX; then the user's tasks."""


def register(names: Sequence[str] | None = None) -> None:
    """Registers tasks with Gymnasium, as ``veenv/NAME-v0``; nothing is traced or compiled.

    This happens by itself, for tasks of your own, too, whichever of both libraries is imported
    first; veenv imports Gymnasium only when it is needed. Tasks that are registered stay as they
    are.

    Args:
      names: names of tasks, as `veenv.tasks.get` takes them; by default all.

    Examples:
      >>> import gymnasium, veenv
      >>> veenv.register()
      >>> gymnasium.spec("veenv/RoeFlux_1d-v0").kwargs
      {'task': 'RoeFlux_1d'}
    """
    import gymnasium

    for name in NAMES if names is None else names:
        env_id = f"veenv/{name}-v0"
        if env_id not in gymnasium.registry:
            with contextlib.suppress(
                gymnasium.error.Error
            ):  # names that Gymnasium forbids, such as "my task"
                gymnasium.register(
                    env_id,
                    entry_point="veenv.env.adapters.gymnasium:GymVertexEnv",
                    vector_entry_point="veenv.env.adapters.gymnasium_vector:GymVectorEnv",
                    kwargs={"task": name},
                )


def announce(name: str) -> None:
    """Registers a task of the user."""
    if name not in NAMES:
        NAMES.append(name)
    if _is_imported():
        register((name,))


class _WhenImported(importlib.abc.MetaPathFinder):
    """An import hook that registers the tasks at the end of the import of Gymnasium."""

    _asks = False

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Returns Gymnasium's spec as other finders do, with a loader that registers the tasks."""
        if name != "gymnasium" or self._asks:
            return None
        self._asks = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asks = False
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_register(module: ModuleType) -> None:
                load(module)
                sys.meta_path.remove(self)
                register()

            spec.loader.exec_module = load_and_register
        return spec


def _is_imported() -> bool:
    """Returns whether Gymnasium is imported completely."""
    return hasattr(sys.modules.get("gymnasium"), "register")


def watch() -> None:
    """Registers the tasks now, or when Gymnasium is imported."""
    if _is_imported():
        register()
    elif "gymnasium" not in sys.modules:
        sys.meta_path.insert(0, _WhenImported())
