"""Rollouts: whole legal episodes whose rewards add up to the graph's own count."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.nn.networks import GraphNetwork
from agents.ppo.rollouts import rollout
from veenv.env import TaskDistribution


@pytest.fixture(scope="module")
def played(both):
    network = GraphNetwork(8, key=jax.random.key(0))
    graph_of_env = jnp.array([0, 0, 0, 1, 1, 1])
    params = jax.tree.map(lambda x: x[graph_of_env], both.params)
    trajectory, episodes = jax.jit(lambda key: rollout(both.env, params, network, key))(
        jax.random.key(1)
    )
    return jax.device_get((trajectory, episodes)), np.asarray(graph_of_env)


def test_episodes_are_orders_with_their_exact_cost(played, both):
    (trajectory, episodes), graph_of_env = played
    returns = (trajectory.reward * trajectory.active).sum(0) * both.params.scale[graph_of_env]
    for b, index in enumerate(graph_of_env):
        ids = both.vertex_ids(index, episodes.order[b])
        assert both.graphs[index].cost(ids) == episodes.cost[b]
        np.testing.assert_allclose(returns[b], -episodes.cost[b], rtol=1e-6)
        assert episodes.complete[b]


def test_steps_after_the_end_do_not_count(played, both):
    (trajectory, _), graph_of_env = played
    lengths = [len(both.graphs[index].eliminable) for index in graph_of_env]
    assert len(set(lengths)) == 2
    np.testing.assert_array_equal(trajectory.active.sum(0), lengths)
    over = trajectory.active == 0
    assert np.all(trajectory.reward[over] == 0)
    assert np.all(trajectory.value[over] == 0)


def test_actions_were_legal_when_chosen(played):
    (trajectory, _), _ = played
    [inputs] = trajectory.inputs
    legal = np.take_along_axis(inputs.mask, trajectory.place[..., None], -1)[..., 0]
    assert np.all(legal[trajectory.active == 1])


def test_low_temperature_is_greedy(wide_task):
    network = GraphNetwork(8, key=jax.random.key(3))
    params = jax.tree.map(lambda x: jnp.repeat(x, 4, axis=0), wide_task.params)
    play = jax.jit(lambda key: rollout(wide_task.env, params, network, key, temperature=1e-6))
    _, episodes = play(jax.random.key(0))
    assert len(np.unique(np.asarray(episodes.order), axis=0)) == 1


def test_task_set_of_nothing():
    with pytest.raises(ValueError, match="at least one graph"):
        TaskDistribution.of({}, normalise=True)
