"""Registration of every task with Gymnasium, as ``veenv/NAME-v0``."""

from __future__ import annotations

import gymnasium

from veenv.tasks import list_tasks


def register_all() -> None:
    """Registers every task that is not registered yet; nothing is traced or compiled."""
    for name in list_tasks():
        env_id = f"veenv/{name}-v0"
        if env_id not in gymnasium.registry:
            gymnasium.register(
                env_id,
                entry_point="veenv.env.gymnasium:GymVertexEnv",
                vector_entry_point="veenv.env.vector:GymVectorEnv",
                kwargs={"task": name},
            )
