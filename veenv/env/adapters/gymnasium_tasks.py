"""What both Gymnasium adapters share: tasks, actions, observations and pictures."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from gymnasium.error import ResetNeeded

from veenv.env.render import Frame, ansi, rgb_array
from veenv.env.rewards import Shaping
from veenv.env.state import Observation, State
from veenv.env.task_set import TaskDistribution
from veenv.graph.graph import CostModel, Graph

RENDER_MODES = ("ansi", "rgb_array")
ObsDict = dict[str, np.ndarray]
Tasks: TypeAlias = str | Graph | Sequence[str | Graph] | TaskDistribution


class Played:
    """The tasks of an adapter, and what is played at the moment."""

    def _set_up(
        self,
        task: Tasks,
        cost: CostModel | None,
        render_mode: str | None,
        shaping: Shaping,
        scaled: bool,
    ) -> None:
        """Nothing is played yet; the arguments are those of the adapters."""
        self.render_mode = check_render_mode(render_mode)
        self.tasks = task_distribution(task, cost, shaping, scaled)
        self.env = self.tasks.env
        if self.env.observation != "adjacency":
            raise ValueError(
                "Gymnasium's environments have observation='adjacency' (FilterObservation and "
                f"FlattenObservation are its wrappers), got {self.env.observation!r}"
            )
        self._state: State | None = None
        self._obs: ObsDict = {}
        self._previous = np.zeros(0)

    def _begun(self, method: str) -> State:
        """The state, which `method` needs."""
        if self._state is None:
            raise ResetNeeded(f"call reset before {method}")
        return self._state

    def _action_masks(self) -> np.ndarray:
        """The legal actions, bool."""
        self._begun("action_masks")
        return self._obs["action_mask"].astype(bool)

    def _picture(self, index: int, state: State, codes: np.ndarray, previous: np.ndarray) -> Any:
        """A state of the task `index` as the render mode says: text or an image."""
        graph, slots = self.tasks.graphs[index], np.asarray(state.order)[: int(state.num_steps)]
        frame = Frame(
            self.tasks.names[index],
            graph,
            self.env.spec,
            codes,
            previous,
            tuple(graph.eliminable[slot] for slot in slots),
            int(state.cost),
        )
        return ansi(frame) if self.render_mode == "ansi" else rgb_array(frame)


def task_distribution(
    task: Tasks, cost: CostModel | None, shaping: Shaping, normalise: bool
) -> TaskDistribution:
    """The tasks an adapter was asked for.

    Raises:
      TypeError: as `TaskDistribution.of`.
      ValueError: as `TaskDistribution.of`, or a task distribution is given other options than its
        own.
    """
    if isinstance(task, TaskDistribution):
        asked = {"cost": cost, "shaping": shaping, "normalise": normalise or None}
        for name, value in asked.items():
            own = getattr(task.env, name)
            if value is not None and value != own:
                raise ValueError(
                    f"the task distribution has {name}={own!r} of its own, got {value!r}: give it "
                    "to TaskDistribution.of"
                )
        return task
    if isinstance(task, Graph) or not isinstance(task, Iterable):
        task = [task]
    chosen = "multiplications" if cost is None else cost
    tasks = task if isinstance(task, str) else list(task)
    return TaskDistribution.of(tasks, chosen, shaping=shaping, normalise=normalise)


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
