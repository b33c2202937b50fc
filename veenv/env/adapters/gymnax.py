"""The environment in the shape of gymnax's calls; the library itself is not needed."""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, PRNGKeyArray, UInt8

from veenv.env.adapters.episode import Episode, TaskEpisodes, bounds, check_kind, order_ids
from veenv.env.encode import EnvParams
from veenv.env.env import VertexEnv
from veenv.env.observe import NUM_FEATURES, fields_of, largest_feature
from veenv.env.task_set import TaskDistribution


class GymnaxEnv:
    """`VertexEnv` called as a gymnax environment, which resets by itself.

    ``reset(key, params) -> (obs, state)`` and ``step(key, state, action, params) -> (obs, state,
    reward, terminated, truncated, info)``, as gymnax 1.0; with ``split_done=False`` the five values
    of before, with ``done``. After the end of an episode obs and state are those of the next one.
    ``info`` has ``cost``, ``total``, ``illegal``, ``discount`` (0 at the end), ``terminated``,
    ``truncated``, ``order`` (int32 [A]: the vertex ids eliminated so far, then -1) and
    ``final_observation``, what the step showed before the reset. Observations are of the kind that
    the environment shows.

    With a `TaskDistribution` every reset draws a task, also those at the end of an episode, with
    the key of the step; ``params`` are then the stacked params of its tasks (those of a renewed
    pool, for example), the state is an `Episode`, and ``info["task"]`` says which task was played.

    Examples:
      >>> import jax.numpy as jnp, veenv
      >>> env = veenv.make(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0)
      >>> wrapped = GymnaxEnv(env, flat=True)
      >>> obs, state = wrapped.reset()
      >>> for action in (1, 0):
      ...     obs, state, reward, terminated, _, info = wrapped.step(None, state, action)
      >>> bool(terminated), int(info["total"]), int(state.num_steps)  # the next episode's state
      (True, 2, 0)
    """

    def __init__(
        self,
        env: VertexEnv | TaskDistribution,
        *,
        flat: bool = False,
        split_done: bool = True,
    ):
        """Wraps an environment, or a task set.

        Args:
          env: the environment, or the task set.
          flat: observe the features only, as one float32 array [A · 8], for networks that take
            arrays. The mask is in the last of each slot's features.
          split_done: return terminated and truncated, as gymnax 1.0; if not, done in their place.

        Raises:
          TypeError: `env` is neither.
          ValueError: `flat` is asked of observations that are of another kind than adjacency.
        """
        self._all = TaskEpisodes.of(env)
        self.tasks = env if isinstance(env, TaskDistribution) else None
        self.env = env.env if isinstance(env, TaskDistribution) else env
        if flat and self.env.observation not in ("adjacency", "flat"):
            raise ValueError(f"flat=True does not go with observation={self.env.observation!r}")
        self._episodes = None if self.tasks is None else self._all
        self.flat = flat or self.env.observation == "flat"
        self.split_done = split_done

    @property
    def name(self) -> str:
        """The environment's name."""
        return "VertexEnv"

    @property
    def default_params(self) -> EnvParams:
        """The graph as data; with several tasks, the stacked params of all."""
        return self.env.default_params if self.tasks is None else self.tasks.params

    @property
    def num_actions(self) -> int:
        """Number of action slots."""
        return self.env.num_actions

    def action_space(self, params: EnvParams | None = None) -> Any:
        """Returns the space of slots: gymnax's `Discrete` if installed, else Gymnasium's."""
        del params
        return _as_gymnax(self.env.action_space)

    def observation_space(self, params: EnvParams | None = None) -> Any:
        """Returns the space of observations, in the same library as `action_space`.

        Raises:
          ValueError: the observations are of kind ``"packed"``.
        """
        del params
        check_kind(self.env, "gymnax")
        if self.flat:
            shape = (self.num_actions * NUM_FEATURES,)
            most = largest_feature(self.env.spec)
            return _as_gymnax(gymnasium.spaces.Box(0.0, most, shape, np.float32))
        return _as_gymnax(self.env.observation_space)

    def state_space(self, params: EnvParams | None = None) -> Any:
        """Returns the space of states, as a nested dictionary; a key has none."""
        del params
        space = _space_of(jax.eval_shape(self.env.init))
        if self._episodes is not None:
            tasks = gymnasium.spaces.Discrete(len(self._all.graphs))
            space = gymnasium.spaces.Dict({"state": space, "task": tasks})
        return _as_gymnax(space)

    def get_obs(
        self, state: Any, params: EnvParams | None = None, key: PRNGKeyArray | None = None
    ) -> Any:
        """Returns the observation of a state."""
        del key
        if self._episodes is None:
            return self._view(self.env.observe(state, params))
        return self._view(self._episodes.observe(state, params))

    def render(self, state: Any, params: EnvParams | None = None) -> UInt8[np.ndarray, "600 960 3"]:
        """Draws the remaining graph, laid out by depth; for the environment's own tasks only."""
        del params
        if isinstance(state, Episode):
            return self._all.picture(state.state, state.task)
        return self._all.picture(state)

    def reset(
        self, key: PRNGKeyArray | None = None, params: EnvParams | None = None
    ) -> tuple[Any, Any]:
        """Starts an episode; returns observation and state.

        Raises:
          ValueError: there are several tasks and no key to draw one.
        """
        return self.reset_env(key, params)

    def reset_env(
        self, key: PRNGKeyArray | None = None, params: EnvParams | None = None
    ) -> tuple[Any, Any]:
        """Calls `reset`: `step` needs this name, as gymnax's bridges batch `reset` itself.

        Raises:
          ValueError: there are several tasks and no key to draw one.
        """
        if self._episodes is None:
            obs, state = self.env.reset(key, params)
            return self._view(obs), state
        if key is None:
            raise ValueError("reset needs a key to draw a task with")
        obs, episode = self._episodes.begin(key, params)
        return self._view(obs), episode

    def step(
        self,
        key: PRNGKeyArray | None,
        state: Any,
        action: ArrayLike,
        params: EnvParams | None = None,
    ) -> tuple[Any, ...]:
        """Calls `step_env`, then resets if that ended the episode.

        Raises:
          ValueError: as `reset`.
        """
        obs, state, reward, *ends, info = self.step_env(key, state, action, params)
        done = ends[0]
        first_obs, first = self.reset_env(key, params)

        def pick(new: Array, old: Array) -> Array:
            return jnp.where(done, new, old)

        info["final_observation"] = obs
        obs, state = jax.tree.map(pick, (first_obs, first), (obs, state))
        return (obs, state, reward, *ends, info)

    def step_env(
        self,
        key: PRNGKeyArray | None,
        state: Any,
        action: ArrayLike,
        params: EnvParams | None = None,
    ) -> tuple[Any, ...]:
        """Takes one step without a reset; returns the tuple described above."""
        if self._episodes is None:
            obs, state, reward, terminated, _, info = self.env.step(key, state, action, params)
            info["order"] = order_ids(state, self.default_params if params is None else params)
        else:
            obs, state, reward, info = self._episodes.step(state, action, params)
            terminated = state.state.terminated
        truncated = jnp.zeros_like(terminated)
        info |= {"discount": 1.0 - terminated.astype(jnp.float32)}
        info |= {"terminated": terminated, "truncated": truncated}
        ends = (terminated, truncated) if self.split_done else (terminated,)
        return (self._view(obs), state, reward, *ends, info)

    def _view(self, obs: Any) -> Any:
        return obs.features.reshape(-1) if self.flat and hasattr(obs, "features") else obs


def _space_of(tree: Any) -> gymnasium.Space[Any]:
    """Returns the space of the arrays of a dataclass, by the names of its fields."""
    if hasattr(tree, "__dataclass_fields__"):
        return gymnasium.spaces.Dict({n: _space_of(x) for n, x in fields_of(tree).items()})
    if tree.dtype == bool:
        return gymnasium.spaces.MultiBinary(tree.shape)
    dtype, info = np.dtype(tree.dtype).type, np.iinfo(tree.dtype)
    return gymnasium.spaces.Box(dtype(info.min), dtype(info.max), tree.shape, dtype)


def _as_gymnax(space: Any) -> Any:
    """Converts a space to gymnax's class where gymnax is installed, as its users test for it."""
    try:
        spaces = importlib.import_module("gymnax.environments.spaces")
    except ImportError:
        return space
    if isinstance(space, gymnasium.spaces.Dict):
        return spaces.Dict({name: _as_gymnax(one) for name, one in space.spaces.items()})
    if isinstance(space, gymnasium.spaces.Discrete):
        return spaces.Discrete(int(space.n))
    shape, dtype, low, high = bounds(space)
    return spaces.Box(low, high, shape, dtype)
