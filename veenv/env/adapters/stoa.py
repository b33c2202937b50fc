"""The environment as a `stoa.environment.Environment`, for Stoa's wrappers and Stoix."""

from __future__ import annotations

import importlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt8

from veenv.env.adapters.episode import Episode, TaskEpisodes, TimeSteps, bounds, check_kind
from veenv.env.encode import EnvParams
from veenv.env.env import VertexEnv
from veenv.env.observe import as_fields
from veenv.env.task_set import TaskDistribution


def to_stoa(played: VertexEnv | TaskDistribution) -> Any:
    """Wraps an environment, or a task set of which every reset draws a task, in Stoa's class.

    As `veenv.env.adapters.jumanji.to_jumanji`, but the observation is a dictionary (an array if
    it is flat), as Stoa's spaces want it, and an episode ends as ``TERMINATED``.

    Args:
      played: the environment, or the task set.

    Returns:
      A ``stoa.environment.Environment``; env_params are stacked params of tasks.

    Raises:
      ImportError: stoa-env is not installed.
      TypeError: `played` is neither.
      ValueError: the observations are of kind ``"packed"``.

    Examples:
      >>> import veenv
      >>> env = to_stoa(veenv.make("Robertson"))  # doctest: +SKIP
      >>> env.action_space().num_values  # doctest: +SKIP
      6
    """
    base = importlib.import_module("stoa.environment").Environment
    episodes = TaskEpisodes.of(played)
    check_kind(episodes.env, "Stoa")

    class StoaVertexEnv(_Stoa, base):
        """`VertexEnv` as Stoa's environment."""

        def __init__(self) -> None:
            self.episodes = episodes

    return StoaVertexEnv()


class _Stoa(TimeSteps):
    """Implements the abstract methods of `stoa.environment.Environment`."""

    types, last = "stoa.env_types", "TERMINATED"

    def reset(self, rng_key: Any, env_params: EnvParams | None = None) -> tuple[Episode, Any]:
        """Starts an episode."""
        return self._begin(rng_key, env_params)

    def step(
        self, state: Episode, action: Any, env_params: EnvParams | None = None
    ) -> tuple[Episode, Any]:
        """Eliminates one vertex."""
        return self._go_on(state, action, env_params)

    def _shown(self, obs: Any) -> Any:
        return obs if isinstance(obs, jax.Array) else as_fields(obs)

    def render(
        self, state: Episode, env_params: EnvParams | None = None
    ) -> UInt8[np.ndarray, "600 960 3"]:
        """Draws the remaining graph, laid out by depth; for the environment's own tasks only."""
        del env_params
        return self.episodes.picture(state.state, state.task)

    def observation_space(self, env_params: EnvParams | None = None) -> Any:
        """Returns the space of observations."""
        del env_params
        space: Any = self.episodes.env.observation_space
        if not hasattr(space, "spaces"):
            return _space(space, "observation")
        arrays = {name: _space(one, name) for name, one in space.spaces.items()}
        return importlib.import_module("stoa.spaces").DictSpace(arrays, "observation")

    def action_space(self, env_params: EnvParams | None = None) -> Any:
        """Returns the space of actions."""
        del env_params
        spaces = importlib.import_module("stoa.spaces")
        return spaces.DiscreteSpace(self.episodes.env.num_actions, jnp.int32, "action")

    def state_space(self, env_params: EnvParams | None = None) -> Any:
        """Returns the space of the arrays of a state, by their path."""
        del env_params
        spaces = importlib.import_module("stoa.spaces")
        shown = jax.eval_shape(self.episodes.env.init)
        leaves = jax.tree_util.tree_leaves_with_path(shown)
        arrays = {
            jax.tree_util.keystr(path): spaces.ArraySpace(leaf.shape, leaf.dtype)
            for path, leaf in leaves
        }
        return spaces.DictSpace(arrays, "state")


def _space(one: Any, name: str) -> Any:
    shape, dtype, low, high = bounds(one)
    return importlib.import_module("stoa.spaces").BoundedArraySpace(shape, dtype, low, high, name)
