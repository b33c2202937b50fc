"""Other tasks, batched with ``jax.vmap``: the Jacobians are block-diagonal."""

from collections.abc import Callable

import jax
import numpy as np

from veenv.tasks import robot_arm, roe, vision
from veenv.tasks.task import Task


def _spread(task: Task, batch: int, shared: tuple[int, ...] = ()) -> Callable[[], tuple]:
    """Draws points within 5 % of the task's; the arguments in ``shared`` keep one value."""

    def example_args() -> tuple[np.ndarray, ...]:
        rng = np.random.default_rng(5)
        return tuple(
            x if i in shared else x * rng.uniform(0.95, 1.05, (batch, *x.shape))
            for i, x in enumerate(task.example_args())
        )

    return example_args


def _batched(task: Task, batch: int, shared: tuple[int, ...] = ()) -> Task:
    in_axes = tuple(None if i in shared else 0 for i in range(len(task.example_args())))
    note = " with the same camera" if shared else ""
    return Task(
        name=f"{task.name}_batch{batch}",
        fun=jax.vmap(task.fun, in_axes),
        example_args=_spread(task, batch, shared),
        argnums=task.argnums,
        description=f"{task.name} at {batch} points{note}, by jax.vmap.",
        source=task.source,
    )


TASKS = (
    _batched(roe.TASKS[0], 16),
    _batched(robot_arm.TASKS[0], 16),
    _batched(vision.TASKS[0], 8, shared=(0, 1, 2, 3, 4)),
)
