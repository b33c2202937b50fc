"""Other tasks, batched with ``jax.vmap``: the Jacobians are block-diagonal."""

import jax
import numpy as np

from veenv.tasks import robot_arm, roe, vision
from veenv.tasks.task import Task


def _batched(task: Task, batch: int, shared: tuple[int, ...] = ()) -> Task:
    """Batches a task at points within 5 % of its own; arguments in ``shared`` keep one value."""
    rng = np.random.default_rng(5)
    point = [
        x if i in shared else x * rng.uniform(0.95, 1.05, (batch, *x.shape))
        for i, x in enumerate(task.example_args())
    ]
    in_axes = tuple(None if i in shared else 0 for i in range(len(point)))
    note = " with the same camera" if shared else ""
    return Task.at(
        f"{task.name}_batch{batch}",
        jax.vmap(task.fun, in_axes),
        point,
        f"{task.name} at {batch} points{note}, by jax.vmap.",
        task.source,
    )


TASKS = (
    _batched(roe.TASKS[0], 16),
    _batched(robot_arm.TASKS[0], 16),
    _batched(vision.TASKS[0], 8, shared=(0, 1, 2, 3, 4)),
)
