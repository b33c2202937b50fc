"""What environments do besides following the policy: temperatures, restarts, replays."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from veenv.agents.config.ppo import PPOConfig
from veenv.agents.nn.networks import GraphNetwork
from veenv.agents.ppo.exploration import Roles, explores, play, prefixes
from veenv.agents.ppo.found import BestSoFar
from veenv.agents.ppo.ppo import make_batch, make_loss
from veenv.agents.ppo.trainer import Trainer
from veenv.env import Spec

CONFIG = PPOConfig(num_envs=16, hidden=8, temperatures=0.25, restarts=0.25, self_imitation=1.0)


def test_roles_of_the_environments():
    roles = Roles.of(CONFIG, 8)
    assert roles.follows.tolist() == [True] * 3 + [False] * 5
    assert roles.replays.tolist() == [False] * 3 + [True] + [False] * 4
    assert roles.restarts.tolist() == [False] * 4 + [True, True] + [False, False]
    np.testing.assert_allclose(roles.temperature, [1] * 6 + [0.5, 2.0])
    assert Roles.of(PPOConfig(), 4).follows.all()
    four = Roles.of(PPOConfig(temperatures=0.4), 10).temperature
    np.testing.assert_allclose(four, [1] * 6 + [0.5**0.5, 2**0.5, 0.5, 2.0], rtol=1e-6)
    assert explores(CONFIG)
    assert not explores(PPOConfig())


def test_somebody_has_to_follow_the_policy(both):
    with pytest.raises(ValueError, match=r"of 2 environments a graph, .* leave none"):
        Trainer(dataclasses.replace(CONFIG, num_envs=4, restarts=0.5), both)


def test_prefixes_are_those_of_the_best_orders():
    order = jnp.array([[3, 1, 0, 2], [1, 0, -1, -1]], jnp.int32)
    found = BestSoFar(jnp.array([7, 5], jnp.int32), order)
    roles = Roles.of(CONFIG, 8)
    lengths = set()
    drawn = jax.jit(jax.vmap(lambda seed: prefixes(found, roles, jax.random.key(seed))))
    for moves in np.asarray(drawn(jnp.arange(50))).reshape(50, 2, 8, 4):
        for k, full in enumerate((4, 2)):
            taken = (moves[k] >= 0).sum(-1)
            assert (taken[[0, 1, 2, 6, 7]] == 0).all()
            assert taken[3] == full
            assert (taken[4:6] < full).all()
            lengths |= {(k, int(n)) for n in taken[4:6]}
            for row, n in zip(moves[k], taken, strict=True):
                assert row.tolist() == order[k, :n].tolist() + [-1] * (4 - n)
    assert lengths == {(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)}


def test_the_best_so_far_keeps_the_cheaper_order():
    first = jnp.array([[0, 1, 2], [2, 1, 0]], jnp.int32)
    for wide in (False, True):
        spec = Spec(num_inputs=1, num_actions=3, num_outputs=1, wide=wide)
        found = BestSoFar.nothing(2, spec)
        found = found.updated(spec.counts(np.array([5, 6])), first)
        found = found.updated(spec.counts(np.array([6, 4])), first[::-1])
        assert found.cost.tolist() == [5, 4]
        assert found.order.tolist() == [[0, 1, 2], [0, 1, 2]]
        other = found.updated(spec.counts(np.array([5, 4])), first[::-1])  # as good, and another
        assert other.order.tolist() == first[::-1].tolist()
        none = BestSoFar.nothing(2, spec)
        assert (none.updated(none.cost, first).order == -1).all()  # those that broke off


def test_replays_cost_what_the_best_order_costs_and_teach_only_by_imitation(both):
    network = GraphNetwork(8, key=jax.random.key(0))
    graph_of_env = jnp.repeat(jnp.arange(2), 8)
    params = jax.tree.map(lambda x: x[graph_of_env], both.params)
    run = jax.jit(lambda key, found: play(both.env, params, network, key, found, CONFIG))
    nothing = BestSoFar.nothing(2, both.env.spec)
    first, _, found = run(jax.random.key(1), nothing)
    assert first.replayed.sum() == 0
    assert nothing.cost.tolist() == [2**31 - 1] * 2
    trajectory, episodes, _ = run(jax.random.key(2), found)
    replaying = np.array([3, 11])
    np.testing.assert_array_equal(episodes.order[replaying], found.order)
    np.testing.assert_array_equal(episodes.cost[replaying], found.cost)
    assert [both.graphs[k].cost(both.vertex_ids(k, found.order[k])) for k in (0, 1)] == list(
        found.cost
    )
    lengths = np.array([len(graph.eliminable) for graph in both.graphs])
    np.testing.assert_array_equal(trajectory.replayed.sum(0)[replaying], lengths)
    assert float(trajectory.replayed.sum()) == lengths.sum()
    on_policy = np.asarray(trajectory.on_policy.sum(0)).reshape(2, 8)
    np.testing.assert_array_equal(on_policy[:, :3], np.repeat(lengths[:, None], 3, 1))
    assert (on_policy[:, [3, 6, 7]] == 0).all()
    assert (on_policy[:, 4:6] >= 1).all()

    def loss(network, weight):
        config = dataclasses.replace(CONFIG, self_imitation=weight)
        [batch] = make_batch(trajectory, config)
        rows = jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), batch)
        return make_loss(config, jnp.float32(1.0))(network, (rows,))[0]

    replayed = np.asarray(trajectory.replayed) == 1
    expected = -np.asarray(trajectory.log_prob)[replayed].mean()
    imitating, without = jax.jit(lambda n: (loss(n, 3.0), loss(n, 0.0)))(network)
    np.testing.assert_allclose(imitating - without, 3 * expected, rtol=1e-4)
