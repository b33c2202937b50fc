"""How well a network plays without learning: greedily, and the best of several samples."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from agents.games import Game
from agents.networks import GraphNetwork
from agents.rollout import Episodes, rollout
from veenv.env.rollout import random_episodes

# Low enough that only ties are decided by chance.
GREEDY = 1e-6


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Play on one graph.

    Attributes:
      name: the graph.
      greedy: cost of always taking the likeliest vertex.
      best: least cost of the samples.
      mean: mean cost of the samples.
      random: least cost of as many episodes of uniformly random play.
      order: vertex ids of the cheapest order, greedy or sampled.
      samples: number of samples.
    """

    name: str
    greedy: int
    best: int
    mean: float
    random: int
    order: tuple[int, ...]
    samples: int


def evaluate(
    network: GraphNetwork,
    game: Game,
    *,
    samples: int = 32,
    temperature: float = 1.0,
    seed: int = 0,
) -> tuple[Evaluation, ...]:
    """Plays every graph of a game.

    Args:
      network: the policy.
      game: the graphs.
      samples: number of sampled episodes on each graph.
      temperature: of the sampling; below 1 the policy is surer of itself.
      seed: of the sampling.

    Raises:
      RuntimeError: the environment and the graph disagree on a cost.
    """
    results = []
    for index, name in enumerate(game.names):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), index), 3)
        greedy = play(network, game, index, keys[0], 1, GREEDY)
        sampled = play(network, game, index, keys[1], samples, temperature)
        final = random_episodes(game.env, keys[2], samples, game.params_of(index))
        costs = np.concatenate([greedy.cost, sampled.cost])
        orders = np.concatenate([greedy.order, sampled.order])
        order = game.vertex_ids(index, orders[costs.argmin()])
        if game.graphs[index].cost(order, game.cost) != costs.min():
            raise RuntimeError(f"{name}: environment and graph count the order differently")
        results.append(
            Evaluation(
                name,
                int(greedy.cost[0]),
                int(sampled.cost.min()),
                float(sampled.cost.mean()),
                int(final.cost.min()),
                order,
                samples,
            )
        )
    return tuple(results)


def play(
    network: GraphNetwork,
    game: Game,
    index: int,
    key: PRNGKeyArray,
    episodes: int,
    temperature: float,
) -> Episodes:
    """Plays episodes on one graph of a game; the results as numpy arrays."""
    params = jax.tree.map(
        lambda x: jnp.broadcast_to(x, (episodes, *x.shape)), game.params_of(index)
    )
    run = eqx.filter_jit(lambda n, p, k: rollout(game.env, p, n, k, temperature)[1])
    return jax.device_get(run(network, params, key))
