"""Training with a window: from what is known, and never above it, or from nothing."""

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
from veenv.agents.ppo.ppo import make_batch, reread
from veenv.agents.ppo.rollouts import rollout
from veenv.agents.ppo.windows import Windows, cheapest_slots, next_slots
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
    windows = Windows(order, None, 4)
    play = jax.jit(lambda key: rollout(env, params, network, key, windows=windows))
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
    found = jax.jit(next_slots, static_argnums=0)(size + 1, state, env.default_params, order)
    expected = [s for s in range(size - 1, -1, -1) if s != size - 2]
    assert found.tolist() == [*expected, size, size]
    one = jax.tree.map(lambda x: x[None], (env.init(), env.default_params))
    slots, prior = Windows(order[None], None, 3)(env, *one)
    assert slots.tolist() == [[size - 1, size - 2, size - 3]]
    assert prior.tolist() == [[0, -1, -2]]


@pytest.mark.parametrize("array", [False, True])
def test_slots_are_the_cheapest_ones_of_a_state(array, tangle_task):
    if array:
        env = veenv.make(lambda x: jnp.cumsum(jnp.sin(x @ jnp.exp(x)) * x, 0) @ x, np.eye(3))
    else:
        env = tangle_task.env
    graph, rng = env.graph, np.random.default_rng(4)
    state, step = env.init(), jax.jit(env.transition)
    read = jax.jit(lambda s: cheapest_slots(4, env, s, env.default_params))
    done = []
    while not state.terminated:
        left = [v for v in graph.eliminable if v not in done]
        rest = {}
        for v in left:
            order = *done, v, *(w for w in left if w != v)
            rest[v] = graph.costs(order)[len(done)]
        found, prior = jax.device_get(read(state))
        kept = [graph.eliminable[slot] for slot in found[: len(left)]]
        assert [rest[v] for v in kept] == sorted(rest.values())[:4]
        assert (found[len(left) :] == env.num_actions).all()
        np.testing.assert_allclose(np.exp(-prior[: len(kept)]), [1 + rest[v] for v in kept], 1e-5)
        done.append(rng.choice(left))
        state, *_ = step(state, graph.eliminable.index(done[-1]))


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


NOTHING = dataclasses.replace(CONFIG, from_nothing=True, num_envs=8, steps=600)


def test_from_nothing_no_order_is_known_but_what_was_played(tangle_task):
    trainer = make_trainer("ppo", NOTHING, agents.SearchConfig(), tangle_task)
    assert trainer.known == ()
    state, params = trainer.init(), trainer._params
    env, [graph] = tangle_task.env, tangle_task.graphs
    step = jax.jit(lambda found, key: play(env, params, state.network, key, found, trainer.config))
    first, episodes, found = jax.device_get(step(state.found, jax.random.key(1)))
    assert episodes.complete.all()
    assert first.on_policy.all()
    assert int(found.cost[0]) == min(episodes.cost)
    second, episodes, better = jax.device_get(step(found, jax.random.key(2)))
    roles = Roles.of(trainer.config, 8)
    [replay] = np.flatnonzero(roles.replays)
    assert roles.by_cost.sum() == 4
    assert not roles.by_cost[replay]
    np.testing.assert_array_equal(episodes.order[replay], found.order[0])
    for slots, by_cost in zip(episodes.order, roles.by_cost, strict=True):
        order = tangle_task.vertex_ids(0, slots)
        graph.check_order(order)
        left = found.order[0].tolist()
        near = []
        for slot in slots:
            near.append(left.index(slot) < 4)
            left.remove(slot)
        assert all(near) or by_cost
    near = jax.jit(lambda key: play(env, params, state.network, key, found, trainer.config, False))
    for slots in jax.device_get(near(jax.random.key(3))[1].order):
        left = found.order[0].tolist()
        for slot in slots:
            assert left.index(slot) < 4
            left.remove(slot)
    saved = int(found.cost[0]) - np.asarray(episodes.cost)
    np.testing.assert_allclose(second.reward.sum(0) * params.scale, saved, atol=1e-4)
    assert int(better.cost[0]) == min(int(found.cost[0]), min(episodes.cost))
    for seen in (first, second):  # the loss reads the policy that played
        parts = make_batch(seen, trainer.config)
        flat = [jax.tree.map(lambda x: x.reshape(len(x) * 8, *x.shape[2:]), part) for part in parts]
        outputs, batch = jax.jit(reread)(state.network, flat)
        played = batch.weight > 0
        np.testing.assert_allclose(outputs.log_prob[played], batch.log_prob[played], atol=1e-4)


def test_training_from_nothing_finds_orders_of_its_own(tangle_task):
    run = agents.train(tangle_task, NOTHING)
    [graph] = tangle_task.graphs
    assert graph.cost(run.order.ids) == run.best.cost("tangle")
    assert "PPO" in run.order.found_by
    least = [row["min_cost"]["tangle"] for row in run.history]
    assert run.best.cost("tangle") == min(least)
    assert min(least) <= least[0]
