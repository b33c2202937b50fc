"""Tasks, actions, observations and pictures: the parts that both Gymnasium adapters share."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from jaxtyping import Bool

from veenv.env.env import VertexEnv
from veenv.env.observe import ObservationKind, as_fields
from veenv.env.render import Frame, ansi, rgb_array
from veenv.env.rewards import Shaping
from veenv.env.state import State
from veenv.env.task_set import TaskDistribution, stack_params
from veenv.graph.graph import CostModel, Graph

RENDER_MODES = ("ansi", "rgb_array")
Obs: TypeAlias = Any
"""A dictionary of arrays, or one array where observations are flat."""
Tasks: TypeAlias = str | Graph | Sequence[str | Graph] | TaskDistribution | VertexEnv


class GymTasks:
    """The tasks of an adapter and the state of the current episodes."""

    def _set_up(
        self,
        task: Tasks,
        cost: CostModel | None,
        render_mode: str | None,
        shaping: Shaping,
        scaled: bool,
        observation: ObservationKind | None,
        max_edges: int | None,
    ) -> None:
        """Stores the adapter's arguments and makes its programs; starts no episode."""
        self.render_mode = check_render_mode(render_mode)
        self.tasks = task_distribution(task, cost, shaping, scaled)
        if observation is not None:
            self.tasks = self.tasks.observing(observation, max_edges)
        self.env = self.tasks.env
        self._state: State | None = None
        self._spec: EnvSpec | None = None
        self._compile()

    def _compile(self) -> None:
        """Makes the jitted programs; they compile at their first call."""
        raise NotImplementedError

    @property
    def spec(self) -> Any:
        """Gymnasium's spec; its default ``max_episode_steps`` is one more than an episode can last.

        So a `TimeLimit` that is made of it never truncates.
        """
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        self._spec = copy.copy(spec)
        if self._spec is not None and self._spec.max_episode_steps is None:
            most = max(len(graph.eliminable) for graph in self.tasks.graphs)
            self._spec.max_episode_steps = most + 1

    def __getstate__(self) -> dict[str, Any]:
        """Returns the attributes to pickle, without the compiled programs."""
        return {k: v for k, v in self.__dict__.items() if not hasattr(v, "lower")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restores the pickled attributes and makes the programs anew."""
        self.__dict__.update(state)
        self._compile()

    def _begun(self, method: str) -> State:
        """Returns the current state, which `method` needs."""
        if self._state is None:
            raise ResetNeeded(f"call reset before {method}")
        return self._state

    def action_masks(self) -> Bool[np.ndarray, "*batch A"]:
        """Returns the legal actions; sb3-contrib's MaskablePPO calls it by this name.

        Raises:
          gymnasium.error.ResetNeeded: before the first reset.
        """
        return np.array(self._begun("action_masks").action_mask)

    def _picture(self, index: int, state: State) -> Any:
        """Draws a state of the task `index` in the render mode: text or an image."""
        name, graph = self.tasks.names[index], self.tasks.graphs[index]
        frame = Frame.of(name, graph, state, self.tasks.task(index))
        return ansi(frame) if self.render_mode == "ansi" else rgb_array(frame)


def task_distribution(
    task: Tasks, cost: CostModel | None, shaping: Shaping, normalise: bool
) -> TaskDistribution:
    """Returns the tasks that an adapter's arguments stand for.

    Raises:
      TypeError: as `TaskDistribution.of`.
      ValueError: as `TaskDistribution.of`, or a task distribution is given other options than its
        own.
    """
    if isinstance(task, VertexEnv):
        params = stack_params([task.default_params])
        task = TaskDistribution(task, (task.graph,), ("graph 0",), params)
    if isinstance(task, TaskDistribution):
        asked = {"cost": cost, "shaping": shaping, "normalise": normalise or None}
        for name, value in asked.items():
            fixed = getattr(task.env, name)
            if value is not None and value != fixed:
                raise ValueError(
                    f"the environment or task set has {name}={fixed!r} of its own, got {value!r}: "
                    "pass it to TaskDistribution.of or veenv.make"
                )
        return task
    if isinstance(task, Graph) or not isinstance(task, Iterable):
        task = [task]
    chosen = "multiplications" if cost is None else cost
    tasks = task if isinstance(task, str) else list(task)
    return TaskDistribution.of(tasks, chosen, shaping=shaping, normalise=normalise)


def check_render_mode(mode: str | None) -> str | None:
    """Checks and returns the render mode.

    Raises:
      ValueError: if there is no such mode.
    """
    if mode is not None and mode not in RENDER_MODES:
        raise ValueError(f"render_mode must be one of {', '.join(RENDER_MODES)}, got {mode!r}")
    return mode


def chosen_task(tasks: TaskDistribution, options: dict[str, Any] | None) -> int | None:
    """Returns the position of the task that the options of a reset name, if any.

    Raises:
      ValueError: if an option or the task is unknown.
    """
    unknown = set(options or {}) - {"task"}
    if unknown:
        raise ValueError(f"the only option of reset is 'task', got {sorted(unknown)}")
    if not options:
        return None
    return tasks.index(options["task"])


def as_slot(action: Any, num_actions: int) -> np.int32:
    """Returns an action as an int32; one out of range becomes -1.

    Raises:
      TypeError: if it is not an integer.
      ValueError: if it is an array with axes.
    """
    if shape := np.shape(action):
        raise ValueError(f"an action is one slot, got an array of shape {shape}: {action!r:.60}")
    try:
        slot = None if isinstance(action, bool | np.bool_) else operator.index(action)
    except TypeError:
        slot = None
    if slot is None:
        raise TypeError(f"an action is an integer slot, got {action!r}")
    return np.int32(slot if 0 <= slot < num_actions else -1)


def to_numpy(obs: Any) -> Obs:
    """Copies an observation, single or batched, to NumPy arrays with the dtypes of its space."""
    if isinstance(obs, jax.Array):
        return np.array(obs)
    arrays = {name: np.array(value) for name, value in as_fields(obs).items()}
    return {**arrays, "action_mask": arrays["action_mask"].astype(np.int8)}


def mask_of(state: State) -> np.ndarray:
    """Returns the legal actions of one state or several, int8."""
    return np.array(state.action_mask).astype(np.int8)
