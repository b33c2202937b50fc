"""Small tasks for the tests of the agent, and the programs that they share."""

import copy
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from veenv import Graph, make_graph
from veenv.agents.config.ppo import PPOConfig
from veenv.agents.ppo.rollouts import rollout
from veenv.agents.ppo.trainer import Trainer
from veenv.agents.ppo.updates import TrainState
from veenv.agents.training.best import BestOrders
from veenv.agents.training.learner import Learner
from veenv.agents.training.loop import train
from veenv.env import TaskDistribution
from veenv.env.random_play import random_episodes

SHARED = PPOConfig(
    num_envs=6, hidden=8, update_epochs=6, num_minibatches=1, learning_rate=1e-3, learned_share=1.0
)
"""The settings of the train step that tests share; its minibatches are the same on all devices."""


def wide(x, y):
    """Two inputs, three outputs, a shared stem: reverse is not the cheapest order."""
    s = jnp.sin(x) * y
    t = jnp.exp(s) + x
    u = jnp.tanh(t * s)
    return u * x, jnp.cos(u) + t, u * t


def chain(x):
    """A chain with a skip connection."""
    for _ in range(3):
        x = jnp.sin(x) * x
    return x


def tangle(*y):
    """A function on which uniformly random orders cost far more than good ones."""
    for _ in range(4):
        y = [jnp.sin(y[0] * y[1]), y[1] * y[2], jnp.exp(y[2]) * y[3], y[3] * y[0]]
    return y[0] * y[1] * y[2] * y[3]


def trained_beside_random(trainer: Trainer) -> tuple[BestOrders, float, int, float]:
    """Best orders and last mean cost of a training, least and mean cost of as many random games."""
    learner = Learner(trainer)
    last = list(train(learner))[-1]
    [graph], [mean] = learner.tasks.graphs, last.measured["mean_cost"].values()
    episodes, env = last.steps // len(graph.eliminable), learner.tasks.env
    final = jax.jit(lambda key: random_episodes(env, key, episodes))(jax.random.key(0))
    return learner.best, mean, int(final.cost.min()), float(final.cost.mean())


@pytest.fixture(scope="session")
def wide_graph() -> Graph:
    return make_graph(wide, (0, 1))(1.0, 2.0)


@pytest.fixture(scope="session")
def chain_graph() -> Graph:
    return make_graph(chain)(1.0)


@pytest.fixture(scope="session")
def both(wide_graph: Graph, chain_graph: Graph) -> TaskDistribution:
    graphs = {"wide": wide_graph, "chain": chain_graph}
    return TaskDistribution.of(graphs, normalise=True)


@pytest.fixture(scope="session")
def trainer(both: TaskDistribution) -> Trainer:
    """Whose train step is compiled once for all tests of the agent."""
    return Trainer(SHARED, both)


def lasting(trainer: Trainer, steps: int | None) -> Trainer:
    """The trainer with another budget, which its compiled train step does not know."""
    other = copy.copy(trainer)
    other.config = dataclasses.replace(trainer.config, steps=steps)
    return other


def bits(state: TrainState) -> list[bytes]:
    """What a train step changes, but for its number: parameters, moments and, last, the key."""
    leaves = [*jax.tree.leaves((state.network, state.opt_state)), jax.random.key_data(state.key)]
    return [np.asarray(x).tobytes() for x in leaves]


@pytest.fixture(scope="session")
def play(both: TaskDistribution):
    """Plays three episodes of each of `both`, of networks of width 8."""
    params = jax.tree.map(lambda x: jnp.repeat(x, 3, axis=0), both.params)
    return jax.jit(lambda network, key: rollout(both.env, params, network, key))


@pytest.fixture(scope="session")
def tangle_task() -> TaskDistribution:
    graph = make_graph(tangle, (0, 1, 2, 3))(1.0, 2.0, 0.5, 0.3)
    return TaskDistribution.of({"tangle": graph}, normalise=True)
