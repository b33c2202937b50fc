"""Finding, not only playing: what some environments do besides following the policy.

Environments of every graph take one of four parts: the first ones follow the policy, and PPO learns
from them; others sample at higher and lower temperatures, only to find; others start from a prefix
of the graph's best order so far and follow the policy from there, which PPO learns from as well;
and one may replay that order, for the policy to imitate (Oh et al. 2018, "Self-imitation learning";
restarts: Ecoffet et al. 2021, "First return, then explore").
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from agents.config.ppo import PPOConfig
from agents.nn.networks import GraphNetwork
from agents.ppo.rollout import Episodes, Trajectory, cheapest, rollout
from veenv.env import EnvParams, VertexEnv

HOTTEST = 2.0
"""Environments that only find sample at temperatures from 1/HOTTEST to HOTTEST."""

NOTHING = jnp.iinfo(jnp.int32).max
"""Cost of the best order of a graph that has none yet."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Found:
    """The best order of every graph so far.

    Attributes:
      cost: `NOTHING` if there is none yet, int32 [K].
      order: slots, -1 padded, int32 [K, A].
    """

    cost: Int[Array, " K"]
    order: Int[Array, "K A"]

    @classmethod
    def nothing(cls, num_graphs: int, num_actions: int) -> Found:
        """No orders yet."""
        none = jnp.full(num_graphs, NOTHING, jnp.int32)
        return cls(none, jnp.full((num_graphs, num_actions), -1, jnp.int32))

    def updated(self, cost: Int[Array, " K"], order: Int[Array, "K A"]) -> Found:
        """With other orders taken over where they cost less."""
        less = cost < self.cost
        return Found(jnp.where(less, cost, self.cost), jnp.where(less[:, None], order, self.order))


@dataclasses.dataclass(frozen=True)
class Parts:
    """What each of a graph's environments does.

    Attributes:
      temperature: at which it samples, float32 [each].
      restarts: whether it starts from a prefix of the best order, bool [each].
      replays: whether it replays the best order, bool [each].
    """

    temperature: Float[np.ndarray, " each"]
    restarts: Bool[np.ndarray, " each"]
    replays: Bool[np.ndarray, " each"]

    @classmethod
    def of(cls, config: PPOConfig, each: int) -> Parts:
        """The parts of a graph's environments.

        Raises:
          ValueError: none would be left to follow the policy from the start.
        """
        replays = int(config.self_imitation > 0)
        others = round(config.temperatures * each)
        restarts = round(config.restarts * each)
        if each - replays - others - restarts < 1:
            raise ValueError(
                f"of {each} environments a graph, {others} for temperatures, {restarts} for "
                f"restarts and {replays} for self_imitation leave none to follow the policy; "
                "raise num_envs or lower the shares"
            )
        temperature = np.ones(each, np.float32)
        place = np.arange(each)
        if others:
            steps = np.arange(others)
            sign = np.where(steps % 2 == 0, -1, 1)
            temperature[-others:] = HOTTEST ** (sign * (steps // 2 + 1) / -(-others // 2))
        restarting = (place >= each - others - restarts) & (place < each - others)
        replaying = (place < each - others - restarts) & (
            place >= each - others - restarts - replays
        )
        return cls(temperature, restarting, replaying)

    @property
    def follows(self) -> Bool[np.ndarray, " each"]:
        """Whether it follows the policy from start to end."""
        return (self.temperature == 1) & ~self.restarts & ~self.replays


def is_finding(config: PPOConfig) -> bool:
    """Whether any environment does more than follow the policy."""
    return max(config.temperatures, config.restarts, config.self_imitation) > 0


def play(
    env: VertexEnv,
    params: EnvParams,
    network: GraphNetwork,
    key: PRNGKeyArray,
    found: Found | None,
    config: PPOConfig,
) -> tuple[Trajectory, Episodes, Found | None]:
    """An episode in each environment, every one in its part.

    Args:
      env: the environment.
      params: the graph of each environment, arrays with a leading axis [B], sorted by graph.
      network: the policy and the critic.
      key: typed PRNG key.
      found: the best orders so far; None if every environment follows the policy.
      config: the settings.

    Returns:
      The steps, the episodes, and the best orders with these episodes' taken in.
    """
    if found is None:
        return *rollout(env, params, network, key), None
    num_graphs = len(found.cost)
    parts = Parts.of(config, len(params.vertex_ids) // num_graphs)
    prefix_key, key = jax.random.split(key)
    moves = prefixes(found, parts, prefix_key)
    temperature = jnp.tile(parts.temperature, num_graphs)
    trajectory, episodes = rollout(env, params, network, key, temperature, moves)
    replays = jnp.tile(parts.replays, num_graphs) & (found.cost < NOTHING).repeat(
        len(parts.replays)
    )
    trajectory = dataclasses.replace(
        trajectory,
        taught=jnp.where((temperature == 1)[None], trajectory.taught, 0.0),
        replayed=jnp.where(replays[None], trajectory.active, 0.0)
        if config.self_imitation > 0
        else None,
    )
    return trajectory, episodes, found.updated(*cheapest(episodes, num_graphs)[1:])


def prefixes(found: Found, parts: Parts, key: PRNGKeyArray) -> Int[Array, "B A"]:
    """Moves that environments have to make: slots from the first step on, then -1 for free ones.

    Args:
      found: the best orders.
      parts: what each of a graph's environments does.
      key: draws how long the prefixes of restarts are: uniform, at least one step stays free.
    """
    num_graphs, num_actions = found.order.shape
    shape = (num_graphs, len(parts.restarts))
    lengths = (found.order >= 0).sum(-1)[:, None]
    share = jax.random.uniform(key, shape)
    restart = jnp.floor(share * lengths.astype(share.dtype)).astype(jnp.int32)
    rest = jnp.where(parts.restarts[None], restart, 0)
    forced = jnp.where(parts.replays[None], lengths, rest)
    within = jnp.arange(num_actions)[None, None] < forced[..., None]
    moves = jnp.where(within, found.order[:, None, :], -1)
    return moves.reshape(-1, num_actions)
