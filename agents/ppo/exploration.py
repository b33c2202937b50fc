"""Exploration: what some environments do instead of following the policy.

Environments of every graph take one of four roles: the first ones follow the policy, and PPO learns
from them; others sample at higher and lower temperatures, only to find cheap orders; others start
from a prefix of the graph's best order so far and follow the policy from there, which PPO learns
from as well; and one may replay that order, for the policy to imitate (Oh et al. 2018,
"Self-imitation learning"; restarts: Ecoffet et al. 2021, "First return, then explore").  With a
window one of four or more replays it in any case, and the others' rewards count against its.  From
nothing the window of some holds the cheapest vertices, and not the next ones of that order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from veenv.agents.config.ppo import PPOConfig
from veenv.agents.nn.own import Network
from veenv.agents.ppo.phases import PHASES
from veenv.agents.ppo.rollouts import Episodes, Trajectory, cheapest, rollout
from veenv.agents.ppo.windows import Windows
from veenv.env import EnvParams, Spec, TaskDistribution, VertexEnv
from veenv.env.counts import Count, largest_like, less, select
from veenv.orders.order import Order

BY_COST = 0.5
"""Share of environments that choose among the cheapest vertices, and of a start in which they do:
1/4 and 3/4 of the environments found as much, and all of the start less."""

FEWEST_WIDE = 200
"""Updates in which they do so in any case: after half of a hundred they had not learned enough."""

MAX_TEMPERATURE = 2.0
"""Environments that do not teach sample at temperatures from its reciprocal to it."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BestSoFar:
    """The best order of every graph so far.

    Attributes:
      cost: counts [K], the largest there are if there is none yet.
      order: slots, -1 padded, int32 [K, A].
    """

    cost: Count
    order: Int[Array, "K A"]

    @classmethod
    def nothing(cls, num_graphs: int, spec: Spec) -> BestSoFar:
        """No orders yet."""
        none = largest_like(spec.counted(jnp.zeros(num_graphs, jnp.int32)))
        return cls(none, jnp.full((num_graphs, spec.num_actions), -1, jnp.int32))

    @classmethod
    def of(cls, known: Sequence[Order], tasks: TaskDistribution) -> BestSoFar:
        """Orders that are known, one for each task."""
        env = tasks.env
        slots = np.full((len(tasks), env.num_actions), -1, np.int32)
        for row, order, graph in zip(slots, known, tasks.graphs, strict=True):
            row[: len(order.ids)] = np.searchsorted(graph.eliminable, order.ids)
        costs = env.spec.counts(np.array([order.counts[env.cost] for order in known]))
        return cls(costs, jax.device_put(slots))

    def updated(self, cost: Count, order: Int[Array, "K A"]) -> BestSoFar:
        """With other orders taken over where they cost less."""
        better = less(cost, self.cost)
        return BestSoFar(
            select(better, cost, self.cost), jnp.where(better[:, None], order, self.order)
        )


@dataclasses.dataclass(frozen=True)
class Roles:
    """What each of a graph's environments does.

    Attributes:
      temperature: at which it samples, float32 [E].
      restarts: whether it starts from a prefix of the best order, bool [E].
      replays: whether it replays the best order, bool [E].
      by_cost: whether its window holds the vertices that cost least, bool [E].
    """

    temperature: Float[np.ndarray, " E"]
    restarts: Bool[np.ndarray, " E"]
    replays: Bool[np.ndarray, " E"]
    by_cost: Bool[np.ndarray, " E"]

    @classmethod
    def of(cls, config: PPOConfig, num_envs: int) -> Roles:
        """The roles of a graph's environments.

        Raises:
          ValueError: none would be left to follow the policy from the start.
        """
        replays = int(config.self_imitation > 0 or (bool(config.window) and num_envs >= 4))
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
        # What an order prescribes need not be among the cheapest.
        free = ~restarting & ~replaying & config.from_nothing
        return cls(temperature, restarting, replaying, free & (place < BY_COST * num_envs))

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
    wide: Bool[Array, ""] | bool = True,
) -> tuple[Trajectory, Episodes, BestSoFar | None]:
    """An episode in each of B environments, every one in its role.

    From nothing only a wide search reads windows of the cheapest vertices where an order is known.

    Returns:
      The steps, the episodes, and the best orders with these episodes' taken in.
    """
    if found is None:
        return *rollout(env, params, network, key, most_phases=PHASES), None
    num_graphs = len(found.order)
    roles = Roles.of(config, len(params.vertex_ids) // num_graphs)
    prefix_key, key = jax.random.split(key)
    moves = prefixes(found, roles, prefix_key)
    temperature = jnp.tile(roles.temperature, num_graphs)
    known = (found.order[:, 0] >= 0).repeat(len(roles.replays))
    windows = None
    if config.window:
        ahead = found.order.repeat(len(roles.replays), axis=0)
        by_cost = None
        if config.from_nothing:
            by_cost = (jnp.tile(roles.by_cost, num_graphs) & wide) | ~known
        windows = Windows(ahead, by_cost, config.window)
    trajectory, episodes = rollout(env, params, network, key, temperature, moves, PHASES, windows)
    if config.window and roles.replays.any():
        trajectory = to_the_best(trajectory, roles, num_graphs)
    replays = jnp.tile(roles.replays, num_graphs) & known
    trajectory = dataclasses.replace(
        trajectory,
        on_policy=jnp.where((temperature == 1)[None], trajectory.on_policy, 0.0),
        replayed=jnp.where(replays[None], trajectory.active, 0.0)
        if config.self_imitation > 0
        else None,
    )
    return trajectory, episodes, found.updated(*cheapest(episodes, num_graphs)[1:])


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


def to_the_best(trajectory: Trajectory, roles: Roles, num_graphs: int) -> Trajectory:
    """Rewards less what the same vertex earns where the best order is replayed.

    The return of an episode is then what it saves next to the best order so far.
    """
    action, reward = (
        x.reshape(len(x), num_graphs, -1) for x in (trajectory.action, trajectory.reward)
    )
    [replay], graphs = np.flatnonzero(roles.replays), jnp.arange(num_graphs)
    base = jnp.zeros((num_graphs, len(action)), reward.dtype)  # as many slots as steps
    base = base.at[graphs, action[..., replay]].add(reward[..., replay])
    saved = (reward - base[graphs[:, None], action]).reshape(trajectory.reward.shape)
    return dataclasses.replace(trajectory, reward=saved * trajectory.active)
