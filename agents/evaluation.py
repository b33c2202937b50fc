"""How well a network plays without learning: greedily, and the best of several samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from agents.nn.networks import GraphNetwork
from agents.ppo.rollouts import Episodes, rollout
from veenv.env import EnvParams, TaskDistribution, VertexEnv
from veenv.env.random_play import random_episodes

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
      untrained: least cost of as many samples of a network with fresh parameters.
      order: vertex ids of the cheapest order, greedy or sampled.
      samples: number of samples.
    """

    name: str
    greedy: int
    best: int
    mean: float
    random: int
    untrained: int
    order: tuple[int, ...]
    samples: int


class Player:
    """Plays episodes on graphs of one size; compiled once.

    Attributes:
      env: the environment.

    Example:
      >>> import veenv
      >>> env = veenv.make(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0)
      >>> Player(env).play_at_random(env.default_params, jax.random.key(0), 3).tolist()
      [2, 2, 2]
    """

    def __init__(self, env: VertexEnv):
        """Nothing is compiled yet.

        Args:
          env: the environment.
        """
        self.env = env
        self._play = jax.jit(self._rollout)
        self._random = jax.jit(
            lambda key, params, num: random_episodes(env, key, num, params), static_argnums=2
        )

    def play(
        self,
        network: GraphNetwork,
        params: EnvParams,
        key: PRNGKeyArray,
        temperatures: Sequence[float],
    ) -> Episodes:
        """Plays one graph, one episode at each temperature; the results as numpy arrays."""
        scale = jnp.asarray(temperatures, jnp.float32)
        return jax.device_get(self._play(network, params, key, scale))

    def play_at_random(self, params: EnvParams, key: PRNGKeyArray, episodes: int) -> np.ndarray:
        """Costs of episodes of uniformly random play, integers [episodes]."""
        return np.asarray(self._random(key, params, episodes).cost)

    def _rollout(
        self,
        network: GraphNetwork,
        params: EnvParams,
        key: PRNGKeyArray,
        temperature: Float[Array, " B"],
    ) -> Episodes:
        return rollout(self.env, _repeat(params, len(temperature)), network, key, temperature)[1]


@lru_cache(maxsize=4)
def _player_of(env: VertexEnv) -> Player:
    """The player of an environment that was evaluated lately: the same again compiles nothing."""
    return Player(env)


def _repeat(tree: Any, size: int) -> Any:
    """Arrays with a new first axis along which they repeat."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (size, *x.shape)), tree)


def evaluate(
    network: GraphNetwork,
    tasks: TaskDistribution,
    *,
    samples: int = 32,
    temperature: float = 1.0,
    seed: int = 0,
) -> tuple[Evaluation, ...]:
    """Plays every graph of a task set.

    Args:
      network: the policy.
      tasks: the graphs.
      samples: number of sampled episodes on each graph.
      temperature: of the sampling; below 1 the policy is surer of itself.
      seed: of the sampling.

    Returns:
      One `Evaluation` for each graph.

    Raises:
      RuntimeError: the environment and the graph disagree on a cost.

    Example:
      >>> import veenv
      >>> graph = veenv.make_graph(lambda x: jnp.sin(jnp.exp(x)) * x)(1.0)
      >>> network = GraphNetwork(hidden=4, key=jax.random.key(0))
      >>> [played] = evaluate(network, TaskDistribution.of({"f": graph}), samples=2)
      >>> played.greedy, played.best, played.samples
      (2, 2, 2)
    """
    player = _player_of(tasks.env)
    untrained = network.renewed(jax.random.key(seed))
    results = []
    for index, name in enumerate(tasks.names):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), index), 3)
        params = tasks.task(index)
        temperatures = [GREEDY] + [temperature] * samples
        played = player.play(network, params, keys[0], temperatures)
        fresh = player.play(untrained, params, keys[1], temperatures)
        costs = np.asarray(played.cost)
        order = tasks.vertex_ids(index, played.order[costs.argmin()])
        if tasks.graphs[index].cost(order, tasks.env.cost) != costs.min():
            raise RuntimeError(f"{name}: environment and graph count the order differently")
        results.append(
            Evaluation(
                name=name,
                greedy=int(costs[0]),
                best=int(costs[1:].min()),
                mean=float(costs[1:].mean()),
                random=int(player.play_at_random(params, keys[2], samples).min()),
                untrained=int(np.asarray(fresh.cost)[1:].min()),
                order=order,
                samples=samples,
            )
        )
    return tuple(results)
