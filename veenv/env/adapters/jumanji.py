"""The environment as a `jumanji.env.Environment`, for jumanji's wrappers and agents."""

from __future__ import annotations

import importlib
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt8

from veenv.env.adapters.episode import Episode, TaskEpisodes, TimeSteps, bounds, check_kind
from veenv.env.env import VertexEnv
from veenv.env.task_set import TaskDistribution


def to_jumanji(played: VertexEnv | TaskDistribution) -> Any:
    """Wraps an environment, or a task set of which every reset draws a task, in jumanji's class.

    ``reset(key) -> (state, timestep)`` and ``step(state, action) -> (state, timestep)`` with
    jumanji's own ``TimeStep``; ``timestep.extras`` has ``cost``, ``total``, ``illegal``, ``task``
    and ``order`` (int32 [A]: the vertex ids eliminated so far, then -1).  The observation is that
    of the environment.  Nothing resets by itself: ``AutoResetWrapper`` and
    ``VmapAutoResetWrapper`` do that.

    Args:
      played: the environment, or the task set.

    Returns:
      A ``jumanji.env.Environment``.

    Raises:
      ImportError: jumanji is not installed.
      TypeError: `played` is neither.
      ValueError: the observations are of kind ``"packed"``.

    Examples:
      >>> import veenv
      >>> env = to_jumanji(veenv.make("Robertson"))  # doctest: +SKIP
      >>> env.action_spec.num_values  # doctest: +SKIP
      6
    """
    base = importlib.import_module("jumanji.env").Environment
    episodes = TaskEpisodes.of(played)
    check_kind(episodes.env, "jumanji")

    class JumanjiVertexEnv(_Jumanji, base):
        """`VertexEnv` as jumanji's environment."""

        def __init__(self) -> None:
            self.episodes = episodes
            base.__init__(self)

    return JumanjiVertexEnv()


class _Jumanji(TimeSteps):
    """Implements the abstract methods of `jumanji.env.Environment`."""

    types, last = "jumanji.types", "LAST"

    def reset(self, key: Any) -> tuple[Episode, Any]:
        """Starts an episode."""
        return self._begin(key)

    def step(self, state: Episode, action: Any) -> tuple[Episode, Any]:
        """Eliminates one vertex."""
        return self._go_on(state, action)

    def render(self, state: Episode) -> UInt8[np.ndarray, "600 960 3"]:
        """Draws the remaining graph, laid out by depth."""
        return self.episodes.picture(state.state, state.task)

    @cached_property
    def observation_spec(self) -> Any:
        """The spec of observations."""
        specs = importlib.import_module("jumanji.specs")
        space = self.episodes.env.observation_space
        obs, _ = self.episodes.env.reset()

        def spec(name: str, one: Any) -> Any:
            shape, dtype, low, high = bounds(one)
            return specs.BoundedArray(shape, dtype, low, high, name)

        if not hasattr(space, "spaces"):
            return spec("observation", space)
        fields: Any = space
        arrays = {name: spec(name, one) for name, one in fields.spaces.items()}
        return specs.Spec(type(obs), "observation", **arrays)

    @cached_property
    def action_spec(self) -> Any:
        """The spec of actions."""
        specs = importlib.import_module("jumanji.specs")
        return specs.DiscreteArray(self.episodes.env.num_actions, jnp.int32, "action")
