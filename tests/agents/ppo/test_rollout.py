"""Rollouts: whole legal episodes whose rewards add up to the graph's own count."""

import jax
import numpy as np
import pytest

from veenv.agents.nn.networks import GraphNetwork


@pytest.fixture(scope="module")
def played(play):
    network = GraphNetwork(8, key=jax.random.key(0))
    found = play(network, jax.random.key(1))
    return jax.device_get(found), np.array([0, 0, 0, 1, 1, 1])


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
