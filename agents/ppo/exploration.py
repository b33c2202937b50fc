"""Exploration: what some environments do instead of following the policy.

Environments of every graph take one of four roles: the first ones follow the policy, and PPO learns
from them; others sample at higher and lower temperatures, only to find cheap orders; others start
from a prefix of the graph's best order so far and follow the policy from there, which PPO learns
from as well; and one may replay that order, for the policy to imitate (Oh et al. 2018,
"Self-imitation learning"; restarts: Ecoffet et al. 2021, "First return, then explore").  With a
window all of them play stretches of that order.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from veenv.agents.config.ppo import PPOConfig
from veenv.agents.nn.own import Network
from veenv.agents.ppo.found import BestSoFar
from veenv.agents.ppo.phases import PHASES
from veenv.agents.ppo.rollouts import Episodes, Trajectory, cheapest, rollout
from veenv.agents.ppo.stretches import sweep
from veenv.env import EnvParams, VertexEnv

MAX_TEMPERATURE = 2.0
"""Environments that do not teach sample at temperatures from its reciprocal to it."""


@dataclasses.dataclass(frozen=True)
class Roles:
    """What each of a graph's environments does.

    Attributes:
      temperature: at which it samples, float32 [E].
      restarts: whether it starts from a prefix of the best order, bool [E].
      replays: whether it replays the best order, bool [E].
    """

    temperature: Float[np.ndarray, " E"]
    restarts: Bool[np.ndarray, " E"]
    replays: Bool[np.ndarray, " E"]

    @classmethod
    def of(cls, config: PPOConfig, num_envs: int) -> Roles:
        """The roles of a graph's environments.

        Raises:
          ValueError: none would be left to follow the policy from the start, or some are to start
            from a prefix where all do.
        """
        if config.window and config.restarts:
            raise ValueError(
                "restarts are for small graphs: with a window every episode begins with a prefix "
                f"of the best order; expected restarts=0 or window=0, got {config.restarts}"
            )
        replays = int(config.self_imitation > 0)
        others = round(config.temperatures * num_envs)
        restarts = round(config.restarts * num_envs)
        if num_envs - replays - others - restarts < 1:
            raise ValueError(
                f"of {num_envs} environments a graph, {others} for temperatures, {restarts} for "
                f"restarts and {replays} for self_imitation leave none to follow the policy; "
                "raise num_envs or lower the shares"
            )
        temperature = np.ones(num_envs, np.float32)
        place = np.arange(num_envs)
        if others:
            steps = np.arange(others)
            sign = np.where(steps % 2 == 0, -1, 1)
            temperature[-others:] = MAX_TEMPERATURE ** (sign * (steps // 2 + 1) / -(-others // 2))
        restarting = (place >= num_envs - others - restarts) & (place < num_envs - others)
        replaying = (place < num_envs - others - restarts) & (
            place >= num_envs - others - restarts - replays
        )
        return cls(temperature, restarting, replaying)

    @property
    def follows(self) -> Bool[np.ndarray, " E"]:
        """Whether it follows the policy from start to end."""
        return (self.temperature == 1) & ~self.restarts & ~self.replays


def explores(config: PPOConfig) -> bool:
    """Whether any environment does more than follow the policy."""
    return max(config.temperatures, config.restarts, config.self_imitation, config.window or 0) > 0


def play(
    env: VertexEnv,
    params: EnvParams,
    network: Network,
    key: PRNGKeyArray,
    found: BestSoFar | None,
    config: PPOConfig,
) -> tuple[Trajectory, Episodes, BestSoFar | None]:
    """Episodes in each of B environments, every one in its role: one, or the stretches of an order.

    Returns:
      The steps, the episodes, and the best orders with these episodes' taken in.
    """
    if found is None:
        return *rollout(env, params, network, key, most_phases=PHASES), None
    num_graphs = len(found.order)
    roles = Roles.of(config, len(params.vertex_ids) // num_graphs)
    each = len(roles.replays)
    temperature = jnp.tile(roles.temperature, num_graphs)
    known = (found.order[:, 0] >= 0).repeat(each)
    replays = jnp.tile(roles.replays, num_graphs) & known
    if config.window:
        trajectory, episodes, found = sweep(
            env, params, network, key, found, config.window, temperature, replays
        )
    else:
        prefix_key, key = jax.random.split(key)
        moves = prefixes(found, roles, prefix_key)
        trajectory, episodes = rollout(env, params, network, key, temperature, moves, PHASES)
        found = found.updated(*cheapest(episodes, num_graphs)[1:])
    trajectory = dataclasses.replace(
        trajectory,
        on_policy=jnp.where((temperature == 1)[None], trajectory.on_policy, 0.0),
        replayed=jnp.where(replays[None], trajectory.active - trajectory.on_policy, 0.0)
        if config.self_imitation > 0
        else None,
    )
    return trajectory, episodes, found


def prefixes(found: BestSoFar, roles: Roles, key: PRNGKeyArray) -> Int[Array, "B A"]:
    """Moves that environments have to make: slots from the first step on, then -1 for free ones.

    The prefixes of restarts have uniformly drawn lengths; at least one step stays free.
    """
    num_graphs, num_actions = found.order.shape
    shape = (num_graphs, len(roles.restarts))
    lengths = (found.order >= 0).sum(-1)[:, None]
    fraction = jax.random.uniform(key, shape)
    restart = jnp.floor(fraction * lengths.astype(fraction.dtype)).astype(jnp.int32)
    rest = jnp.where(roles.restarts[None], restart, 0)
    forced = jnp.where(roles.replays[None], lengths, rest)
    within = jnp.arange(num_actions)[None, None] < forced[..., None]
    moves = jnp.where(within, found.order[:, None, :], -1)
    return moves.reshape(-1, num_actions)
