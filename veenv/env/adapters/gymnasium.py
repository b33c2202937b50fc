"""The environment as a `gymnasium.Env`: NumPy in, NumPy out."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import jax
import numpy as np

from veenv.env.adapters.gymnasium_tasks import (
    RENDER_MODES,
    GymTasks,
    Obs,
    Tasks,
    as_slot,
    chosen_task,
    mask_of,
    to_numpy,
)
from veenv.env.observe import ObservationKind
from veenv.env.rewards import Shaping
from veenv.graph.graph import CostModel


# Gymnasium's attribute `spec` is a property here, which pyright does not allow.
class GymVertexEnv(GymTasks, gymnasium.Env[Any, np.int64]):  # pyright: ignore[reportIncompatibleVariableOverride]
    """One episode at a time of `veenv.env.env.VertexEnv`.

    * **Observation**: a dictionary of ``adjacency`` (int32 [R, C]), ``features`` (float32 [A, 8])
      and ``action_mask`` (int8 [A]), as `veenv.env.env.Observation`, or what `observation` says.
    * **Action**: an integer slot.  One that is not legal ends the episode (``info["illegal"]``)
      with a reward no legal episode falls to; one that is not an integer (a float, NaN, a bool)
      is a TypeError.  A step after the end changes nothing and gives reward 0.
    * **Info**: ``action_mask`` (int8 [A], 1 = legal), ``cost`` and ``total`` (of this step
      and so far), ``illegal``, ``task``; at the end of a legal episode also ``order``,
      the vertex ids (int64).
    * **Options of reset**: ``{"task": name}`` picks one of the tasks; otherwise it is drawn with
      the environment's own generator (with one task there is nothing to draw).
    * **Version**: v0, the first. It changes when the same actions could give other rewards, masks
      or ends; new fields of info and new options do not change it.

    Examples:
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
        cost: CostModel | None = None,
        render_mode: str | None = None,
        *,
        shaping: Shaping = None,
        normalise: bool = False,
        observation: ObservationKind | None = None,
        max_edges: int | None = None,
    ):
        """Creates the environment.

        Args:
          task: a task's name, a graph, several of them (padded to one size), or a
            `VertexEnv` or a task distribution, which have a cost model and rewards of their own.
          cost: the cost model, ``"multiplications"`` by default.
          render_mode: ``"ansi"``, ``"rgb_array"`` or None.
          shaping: reference order that rewards are measured against, as `VertexEnv` takes it.
          normalise: divide rewards by the cost of the task's cheapest classical order.
          observation: the kind of observations, by default that of the tasks or ``"adjacency"``.
          max_edges: room for edges in observations of kind ``"graph"``, as `VertexEnv` takes it.

        Raises:
          ValueError: if the render mode or a name is unknown, a graph cannot be played, or a task
            distribution is given other options than its own.
        """
        self._set_up(task, cost, render_mode, shaping, normalise, observation, max_edges)
        self.observation_space = self.env.observation_space
        self.action_space = self.env.action_space
        self._index, self._params = 0, self.tasks.task(0)

    def _compile(self) -> None:
        self._reset = jax.jit(self.env.reset)
        self._step = jax.jit(self.env.step)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Obs, dict[str, Any]]:
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
        return to_numpy(obs), self._info({"cost": 0, "total": 0, "illegal": False})

    def step(self, action: Any) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        """Eliminates one vertex.

        Args:
          action: the slot.

        Raises:
          TypeError: if the action is not an integer.
          gymnasium.error.ResetNeeded: before the first reset.
        """
        state = self._begun("step")
        slot = as_slot(action, self.env.num_actions)
        obs, self._state, reward, terminated, truncated, info = self._step(
            None, state, slot, self._params
        )
        infos = self._info({name: value.item() for name, value in info.items()})
        return to_numpy(obs), float(reward), bool(terminated), bool(truncated), infos

    def render(self) -> Any:
        """Draws the current state in the render mode: text, or an image (uint8 [height, width, 3]).

        Raises:
          gymnasium.error.ResetNeeded: before the first reset.
        """
        state = self._begun("render")
        if self.render_mode is None:
            return None
        return self._picture(self._index, state)

    def _info(self, info: dict[str, Any]) -> dict[str, Any]:
        assert self._state is not None
        info["action_mask"] = mask_of(self._state)
        info["task"] = self.tasks.names[self._index]
        order = self.env.final_order(self._state, self._params)
        if order is not None:
            info["order"] = np.array(order, np.int64)
        return info
