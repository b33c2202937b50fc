"""The environment as a `gymnasium.Env`: NumPy in, NumPy out."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeAlias

import gymnasium
import jax
import numpy as np
from gymnasium.error import ResetNeeded
from jaxtyping import Bool

from veenv.env.env import Observation, State
from veenv.env.render import Frame, ansi, rgb_array
from veenv.env.rewards import Shaping
from veenv.env.task_set import TaskDistribution
from veenv.graph.graph import CostModel, Graph

RENDER_MODES = ("ansi", "rgb_array")
ObsDict = dict[str, np.ndarray]
Tasks: TypeAlias = str | Graph | Sequence[str | Graph] | TaskDistribution


class GymVertexEnv(gymnasium.Env[Any, np.int64]):
    """One episode at a time of `veenv.env.env.VertexEnv`.

    * **Observation**: a dictionary of ``adjacency`` (int32 [R, C]), ``features`` (float32 [A, 8])
      and ``action_mask`` (int8 [A]), as `veenv.env.env.Observation`.
    * **Action**: an integer slot.  One that is not legal ends the episode (``info["illegal"]``)
      with a reward no legal episode falls to; one that is not an integer (a float, NaN, a bool)
      is a TypeError.  A step after the end changes nothing and gives reward 0.
    * **Info**: ``action_mask`` (int8 [A], 1 = legal), ``cost`` and ``total`` (of this step
      and so far), ``illegal``, ``task``; at the end of a legal episode also ``order``,
      the vertex ids (int64).
    * **Options of reset**: ``{"task": name}`` picks one of the tasks; otherwise it is drawn with
      the environment's own generator (with one task there is nothing to draw).

    Example:
      >>> import jax.numpy as jnp, veenv
      >>> env = GymVertexEnv(veenv.make_graph(lambda x: jnp.sin(jnp.exp(x)) * x)(1.0))
      >>> obs, info = env.reset(seed=0)
      >>> for action in (1, 0):
      ...     obs, reward, terminated, truncated, info = env.step(action)
      >>> reward, terminated, info["order"].tolist()
      (-1.0, True, [2, 1])
    """

    metadata: ClassVar[dict[str, Any]] = {  # pyright: ignore[reportIncompatibleVariableOverride]
        "render_modes": list(RENDER_MODES),
        "render_fps": 4,
    }

    def __init__(
        self,
        task: Tasks = "RoeFlux_1d",
        cost: CostModel = "multiplications",
        render_mode: str | None = None,
        *,
        shaping: Shaping = None,
        normalise: bool = False,
    ):
        """Creates the environment.

        Args:
          task: a task's name, a graph, several of them (padded to one size), or a task
            distribution, whose own cost model and rewards then hold.
          cost: the cost model.
          render_mode: ``"ansi"``, ``"rgb_array"`` or None.
          shaping: reference order that rewards are measured against, as `VertexEnv` takes it.
          normalise: divide rewards by the cost of the task's cheapest classical order.

        Raises:
          ValueError: if the render mode or a name is unknown, or a graph cannot be played.
        """
        self.render_mode = check_render_mode(render_mode)
        self.tasks = task_distribution(task, cost, shaping, normalise)
        self.env = self.tasks.env
        self.observation_space = self.env.observation_space
        self.action_space = self.env.action_space
        self._reset = jax.jit(self.env.reset)
        self._step = jax.jit(self.env.step)
        self._index, self._params = 0, self.tasks.task(0)
        self._state: State | None = None
        self._obs: ObsDict = {}
        self._previous = np.zeros(0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsDict, dict[str, Any]]:
        """Starts an episode.

        Args:
          seed: seeds the generator that draws the task.
          options: ``{"task": name}`` or None.

        Raises:
          ValueError: if an option or the task is unknown.
        """
        super().reset(seed=seed)
        index = chosen_task(self.tasks, options)
        if index is None:
            index = int(self.np_random.integers(len(self.tasks)))
        if index != self._index:
            self._index, self._params = index, self.tasks.task(index)
        obs, self._state = self._reset(None, self._params)
        self._obs = to_numpy(obs)
        self._previous = self._obs["adjacency"]
        return copy_of(self._obs), self._info({"cost": 0, "total": 0, "illegal": False})

    def step(self, action: Any) -> tuple[ObsDict, float, bool, bool, dict[str, Any]]:
        """Eliminates one vertex.

        Args:
          action: the slot.

        Raises:
          TypeError: if the action is not an integer.
          gymnasium.error.ResetNeeded: before the first reset.
        """
        if self._state is None:
            raise ResetNeeded("call reset before step")
        slot = as_slot(action, self.env.num_actions)
        self._previous = self._obs["adjacency"]
        obs, self._state, reward, terminated, truncated, info = self._step(
            None, self._state, slot, self._params
        )
        self._obs = to_numpy(obs)
        found = {
            "cost": int(info["cost"]),
            "total": int(info["total"]),
            "illegal": bool(info["illegal"]),
        }
        return (
            copy_of(self._obs), float(reward), bool(terminated), bool(truncated), self._info(found)
        )  # fmt: skip

    def action_masks(self) -> Bool[np.ndarray, " A"]:
        """Legal actions of the current state (the name that sb3-contrib's MaskablePPO calls).

        Raises:
          gymnasium.error.ResetNeeded: before the first reset.
        """
        if self._state is None:
            raise ResetNeeded("call reset before action_masks")
        return self._obs["action_mask"].astype(bool)

    def render(self) -> Any:
        """The current state as the render mode says: text, or an image (uint8 [height, width, 3]).

        Raises:
          gymnasium.error.ResetNeeded: before the first reset.
        """
        if self._state is None:
            raise ResetNeeded("call reset before render")
        if self.render_mode is None:
            return None
        frame = Frame(
            self.tasks.names[self._index],
            self.tasks.graphs[self._index],
            self.env.spec,
            self._obs["adjacency"],
            self._previous,
            self.env.order(self._state, self._params),
            int(self._state.cost),
        )
        return ansi(frame) if self.render_mode == "ansi" else rgb_array(frame)

    def _info(self, info: dict[str, Any]) -> dict[str, Any]:
        assert self._state is not None
        info["action_mask"] = self._obs["action_mask"].copy()
        info["task"] = self.tasks.names[self._index]
        order = self.env.final_order(self._state, self._params)
        if order is not None:
            info["order"] = np.array(order, np.int64)
        return info


def task_distribution(
    task: Tasks, cost: CostModel, shaping: Shaping, normalise: bool
) -> TaskDistribution:
    """The tasks an adapter was asked for.

    Raises:
      TypeError: as `TaskDistribution.of`.
      ValueError: as `TaskDistribution.of`.
    """
    if isinstance(task, TaskDistribution):
        return task
    if isinstance(task, str | Graph) or not isinstance(task, Iterable):
        task = [task]
    tasks = list(task)
    return TaskDistribution.of(tasks, cost, shaping=shaping, normalise=normalise)


def check_render_mode(mode: str | None) -> str | None:
    """Returns the mode.

    Raises:
      ValueError: if there is no such mode.
    """
    if mode is not None and mode not in RENDER_MODES:
        raise ValueError(f"render_mode must be one of {', '.join(RENDER_MODES)}, got {mode!r}")
    return mode


def chosen_task(tasks: TaskDistribution, options: dict[str, Any] | None) -> int | None:
    """The position of the task that the options of a reset name, if any.

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
    """An action as an int32; what is out of range becomes -1.

    Raises:
      TypeError: if it is not an integer.
    """
    try:
        slot = None if isinstance(action, bool | np.bool_) else operator.index(action)
    except TypeError:
        slot = None
    if slot is None:
        raise TypeError(f"an action is an integer slot, got {action!r}")
    return np.int32(slot if 0 <= slot < num_actions else -1)


def to_numpy(obs: Observation) -> ObsDict:
    """An observation, single or batched, as a dictionary of fresh NumPy arrays."""
    return {
        "adjacency": np.array(obs.adjacency),
        "features": np.array(obs.features),
        "action_mask": np.array(obs.action_mask).astype(np.int8),
    }


def copy_of(obs: ObsDict) -> ObsDict:
    """A copy that the caller may change."""
    return {name: value.copy() for name, value in obs.items()}
