"""Training with a window: it starts from what is known, and never ends above it."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.agents.conftest import SHARED
from veenv import agents
from veenv.agents.config.ppo import PPOConfig, window_on
from veenv.agents.ppo.exploration import BestSoFar, Roles, play
from veenv.agents.ppo.rollouts import kept_slots, prior, rollout
from veenv.agents.training import curriculum
from veenv.agents.training.played import known_order, make_trainer
from veenv.env.rewards import classical_costs
from veenv.orders.order import Order

CONFIG = dataclasses.replace(SHARED, window=4, steps=200, num_envs=4)


@pytest.fixture(scope="module")
def run(tangle_task):
    return agents.train(tangle_task, CONFIG)


def test_it_never_ends_above_what_is_known(run, tangle_task):
    [graph] = tangle_task.graphs
    assert run.best.cost("tangle") <= min(classical_costs(graph, "multiplications").values())
    assert (
        run.best.cost("tangle") <= known_order(graph, "multiplications").counts["multiplications"]
    )
    assert graph.cost(run.order.ids) == run.best.cost("tangle")
    assert run.classical == {}
    first = run.history[0]["mean_cost"]["tangle"]  # random play of all vertices costs far more
    assert first < np.mean(list(classical_costs(graph, "multiplications").values()))


def test_returns_are_costs_below_those_of_the_known_order(tangle_task):
    [graph] = tangle_task.graphs
    trainer = make_trainer("ppo", CONFIG, agents.SearchConfig(), tangle_task)
    env, params = trainer._env, trainer._params
    [known] = trainer.known
    order = trainer.init().found.order.repeat(4, axis=0)
    assert tangle_task.vertex_ids(0, order[0]) == known.ids
    network = trainer.init().network
    play = jax.jit(lambda key: rollout(env, params, network, key, ahead=order, window=4))
    trajectory, episodes = jax.device_get(play(jax.random.key(2)))
    assert episodes.complete.all()
    saved = known.counts["multiplications"] - np.asarray(episodes.cost)
    np.testing.assert_allclose(trajectory.reward.sum(0) * params.scale, saved, atol=1e-4)
    orders = {tuple(o) for o in episodes.order}
    assert len(orders) > 1
    for slots in orders:
        graph.check_order(tangle_task.vertex_ids(0, slots))
        left = list(order[0].tolist())
        for slot in slots:  # among the next four of the known order
            assert left.index(slot) < 4
            left.remove(slot)


def test_returns_are_what_episodes_save_next_to_the_best_order(tangle_task):
    [graph] = tangle_task.graphs
    config = dataclasses.replace(CONFIG, num_envs=4)
    trainer = make_trainer("ppo", config, agents.SearchConfig(), tangle_task)
    env, params, state = trainer._env, trainer._params, trainer.init()
    best = max((graph.reverse(), graph.forward()), key=graph.cost)  # not the known one
    found = BestSoFar.of([Order.from_graph(graph, best)], tangle_task)
    run = jax.jit(lambda key: play(env, params, state.network, key, found, trainer.config))
    trajectory, episodes, better = jax.device_get(run(jax.random.key(3)))
    [replay] = np.flatnonzero(Roles.of(trainer.config, 4).replays)
    np.testing.assert_array_equal(episodes.order[replay], found.order[0])
    assert not trajectory.on_policy[:, replay].any()
    assert np.delete(trajectory.on_policy, replay, 1).all()
    saved = graph.cost(best) - np.asarray(episodes.cost)
    np.testing.assert_allclose(trajectory.reward.sum(0) * params.scale, saved, atol=1e-4)
    assert not trajectory.reward[:, replay].any()
    assert int(better.cost[0]) == min(episodes.cost)
    assert Roles.of(dataclasses.replace(trainer.config, num_envs=3), 3).follows.all()


def test_slots_are_the_next_ones_of_an_order():
    env = veenv.make(lambda x: jnp.sin(jnp.exp(jnp.tanh(x) * x)) * x, 0.5)
    size = env.num_actions
    order = jnp.arange(size)[::-1]
    state = jax.jit(env.transition)(env.init(), size - 2)[0]
    found = jax.jit(kept_slots, static_argnums=0)(size + 1, state, env.default_params, order)
    expected = [s for s in range(size - 1, -1, -1) if s != size - 2]
    assert found.tolist() == [*expected, size, size]
    assert prior(3).tolist() == [[0, -1, -2]]
    assert prior(0) == 0


def test_windows_are_for_large_graphs():
    assert window_on(100, PPOConfig()) == 0 < window_on(184, PPOConfig())  # the smallest of `hard`
    assert 0 < window_on(1000, PPOConfig()) < 100
    assert window_on(8, PPOConfig(window=7)) == 7
    assert window_on(7, PPOConfig(window=7)) == 0


def test_no_run_ends_above_the_classical_orders_of_a_large_task(monkeypatch, tangle_task):
    trainer = make_trainer(
        "ppo", dataclasses.replace(CONFIG, window=0), agents.SearchConfig(), tangle_task
    )
    assert curriculum.FixedTasks(trainer).best.get("tangle") is None
    monkeypatch.setattr(curriculum, "LARGE", 4)
    least = min(classical_costs(tangle_task.graphs[0], "multiplications").values())
    assert curriculum.FixedTasks(trainer).best.cost("tangle") == least
