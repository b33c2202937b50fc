"""The environment in the shapes of other JAX libraries: gymnax and jumanji or Stoa.

Neither library is needed; what they expect is the shape of the calls.
"""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from veenv.env.encode import EnvParams
from veenv.env.env import LARGEST_FEATURE, NUM_FEATURES, VertexEnv
from veenv.env.state import Observation, State


class GymnaxEnv:
    """`VertexEnv` called as a gymnax environment, which resets by itself.

    ``reset(key, params) -> (obs, state)`` and ``step(key, state, action, params) -> (obs, state,
    reward, done, info)``, or with `split_done` the six-tuple with ``terminated, truncated``. After
    the end of an episode obs and state are those of the next one; ``info["discount"]`` is 0 then.

    Example:
      >>> import jax.numpy as jnp, veenv
      >>> env = veenv.make(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0)
      >>> wrapped = GymnaxEnv(env, flat=True)
      >>> obs, state = wrapped.reset()
      >>> for action in (1, 0):
      ...     obs, state, reward, done, info = wrapped.step(None, state, action)
      >>> bool(done), int(info["total"]), int(state.num_steps)  # the state is the next episode's
      (True, 2, 0)
    """

    def __init__(self, env: VertexEnv, *, flat: bool = False, split_done: bool = False):
        """Wraps an environment.

        Args:
          env: the environment.
          flat: observe the features only, as one float32 array [A · 8], for networks that take
            arrays. The mask is in the last of each slot's features.
          split_done: return terminated and truncated instead of done.
        """
        self.env = env
        self.flat = flat
        self.split_done = split_done

    @property
    def name(self) -> str:
        """The environment's name."""
        return "VertexEnv"

    @property
    def default_params(self) -> EnvParams:
        """The graph as data."""
        return self.env.default_params

    @property
    def num_actions(self) -> int:
        """Number of action slots."""
        return self.env.num_actions

    def action_space(self, params: EnvParams | None = None) -> Any:
        """The slots: a `Discrete` of gymnax where it is installed, else of Gymnasium."""
        del params
        return _spaces().Discrete(self.num_actions)

    def observation_space(self, params: EnvParams | None = None) -> Any:
        """The space of what `reset` and `step` return, of the same library as `action_space`."""
        del params
        spaces = _spaces()
        if self.flat:
            shape = (self.num_actions * NUM_FEATURES,)
            return spaces.Box(0.0, LARGEST_FEATURE, shape, np.float32)
        whole = self.env.observation_space
        if spaces is gymnasium.spaces:
            return whole
        arrays: Any = [(name, whole[name]) for name in ("adjacency", "features")]
        boxes = {n: spaces.Box(box.low, box.high, box.shape, box.dtype) for n, box in arrays}
        mask = spaces.Box(0, 1, (self.num_actions,), np.bool_)
        return spaces.Dict({**boxes, "action_mask": mask})

    def reset(
        self, key: PRNGKeyArray | None = None, params: EnvParams | None = None
    ) -> tuple[Any, State]:
        """Starts an episode; returns observation and state."""
        obs, state = self.env.reset(key, params)
        return self._view(obs), state

    def step(
        self,
        key: PRNGKeyArray | None,
        state: State,
        action: Int[Array, ""],
        params: EnvParams | None = None,
    ) -> tuple[Any, ...]:
        """`step_env`, followed by a reset if it ended the episode."""
        obs, state, reward, *ends, info = self.step_env(key, state, action, params)
        done = ends[0]
        first_obs, first = self.reset(key, params)

        def pick(new: Array, old: Array) -> Array:
            return jnp.where(done, new, old)

        obs, state = jax.tree.map(pick, (first_obs, first), (obs, state))
        return (obs, state, reward, *ends, info)

    def step_env(
        self,
        key: PRNGKeyArray | None,
        state: State,
        action: Int[Array, ""],
        params: EnvParams | None = None,
    ) -> tuple[Any, ...]:
        """One step without a reset; the tuple described above."""
        obs, state, reward, terminated, truncated, info = self.env.step(key, state, action, params)
        discount = 1.0 - terminated.astype(jnp.float32)
        ends = (terminated, truncated) if self.split_done else (terminated,)
        return (self._view(obs), state, reward, *ends, {**info, "discount": discount})

    def _view(self, obs: Observation) -> Any:
        return obs.features.reshape(-1) if self.flat else obs


def _spaces() -> Any:
    """gymnax's module of spaces where it is installed, as its users test for its classes."""
    try:
        return importlib.import_module("gymnax.environments.spaces")
    except ImportError:
        return gymnasium.spaces
