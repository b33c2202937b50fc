"""An environment with the `TimeStep` of dm_env."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from veenv.env.encode import EnvParams
from veenv.env.env import VertexEnv
from veenv.env.state import Observation, State, owned

FIRST, MID, LAST = 0, 1, 2


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TimeStep:
    """What a step shows, as in dm_env, jumanji and Stoa.

    Attributes:
      step_type: int8 [], 0 first, 1 in the middle, 2 last.
      reward: float32 [].
      discount: float32 [], 0 at the end of an episode, else 1.
      observation: the observation.
      extras: what `VertexEnv.step` calls info.

    Examples:
      >>> import jax.numpy as jnp, veenv
      >>> env = veenv.make(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0)
      >>> state, timestep = TimeStepEnv(env).reset()
      >>> bool(timestep.first()), bool(timestep.last()), float(timestep.discount)
      (True, False, 1.0)
    """

    step_type: Int[Array, ""]
    reward: Float[Array, ""]
    discount: Float[Array, ""]
    observation: Observation
    extras: dict[str, Any]

    def first(self) -> Bool[Array, ""]:
        """Whether an episode begins here."""
        return self.step_type == FIRST

    def mid(self) -> Bool[Array, ""]:
        """Whether an episode is under way."""
        return self.step_type == MID

    def last(self) -> Bool[Array, ""]:
        """Whether an episode ends here."""
        return self.step_type == LAST


class TimeStepEnv:
    """`VertexEnv` called as ``reset(key) -> (state, timestep)``, ``step(state, action)``.

    Nothing resets by itself.

    Examples:
      >>> import jax.numpy as jnp, veenv
      >>> env = veenv.make(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0)
      >>> wrapped = TimeStepEnv(env)
      >>> state, timestep = wrapped.reset()
      >>> for action in (1, 0):
      ...     state, timestep = wrapped.step(state, action)
      >>> bool(timestep.last()), int(timestep.extras["total"])
      (True, 2)
    """

    def __init__(self, env: VertexEnv):
        """Wraps an environment."""
        self.env = env

    @property
    def num_actions(self) -> int:
        """Number of action slots."""
        return self.env.num_actions

    def reset(
        self, key: PRNGKeyArray | None = None, params: EnvParams | None = None
    ) -> tuple[State, TimeStep]:
        """Starts an episode.

        A graph without a vertex to eliminate begins and ends at once: its first time step is a
        last one.
        """
        obs, state = self.env.reset(key, params)
        cost, total = owned((state.cost, state.cost))
        extras = {"cost": cost, "total": total, "illegal": jnp.zeros((), bool)}
        return state, _time_step(obs, jnp.zeros((), jnp.float32), state.terminated, extras, FIRST)

    def step(
        self, state: State, action: ArrayLike, params: EnvParams | None = None
    ) -> tuple[State, TimeStep]:
        """Eliminates one vertex."""
        obs, state, reward, terminated, _, info = self.env.step(None, state, action, params)
        return state, _time_step(obs, reward, terminated, info, MID)


def _time_step(
    obs: Observation, reward: Array, terminated: Array, extras: dict[str, Any], otherwise: int
) -> TimeStep:
    step_type = jnp.where(terminated, jnp.int8(LAST), jnp.int8(otherwise))
    return TimeStep(step_type, reward, 1.0 - terminated.astype(jnp.float32), obs, extras)
