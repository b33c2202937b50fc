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
from veenv.agents.ppo.exploration import FEWEST_WIDE, BestSoFar, Roles, play
from veenv.agents.ppo.ppo import make_batch, play_batch, reread
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


def is_near(slots, order):
    """Whether each of the slots is among the next four of an order."""
    left, near = list(order), []
    for slot in slots:
        near.append(left.index(slot) < 4)
        left.remove(slot)
    return all(near)


def is_cheap(slots, tasks):
    """Whether nothing that is left costs less than each of the slots but three vertices."""
    order, [graph] = tasks.vertex_ids(0, slots), tasks.graphs
    for k, own in enumerate(graph.costs(order)):
        others = [(*order[:k], v, *(w for w in order[k:] if w != v)) for v in order[k:]]
        if sorted(graph.costs(other)[k] for other in others)[:4][-1] < own:
            return False
    return True


@pytest.fixture(scope="module")
def nothing(tangle_task):
    trainer = make_trainer("ppo", NOTHING, agents.SearchConfig(), tangle_task)
    assert trainer.known == ()
    return trainer


@pytest.fixture(scope="module")
def updates(nothing):
    """What is played in two updates, and what is known before, between and after them."""
    state, params = nothing.init(), nothing._params
    env, config = nothing.tasks.env, nothing.config
    step = jax.jit(lambda found, key: play(env, params, state.network, key, found, config))
    first = jax.device_get(step(state.found, jax.random.key(1)))
    return first, jax.device_get(step(first[2], jax.random.key(2)))


def test_from_nothing_no_order_is_known_but_what_was_played(nothing, updates):
    (first, episodes, found), (second, later, better) = updates
    assert episodes.complete.all()
    assert first.on_policy.all()
    assert all(is_cheap(slots, nothing.tasks) for slots in episodes.order)
    assert int(found.cost[0]) == min(episodes.cost)
    roles = Roles.of(nothing.config, 8)
    [replay] = np.flatnonzero(roles.replays)
    assert roles.by_cost.tolist() == [True] * 4 + [False] * 4
    np.testing.assert_array_equal(later.order[replay], found.order[0])
    near = [is_near(slots, found.order[0].tolist()) for slots in later.order]
    cheap = [is_cheap(slots, nothing.tasks) for slots in later.order]
    assert all(near[4:])
    assert all(cheap[:4])
    assert not any(near[:4])
    saved = int(found.cost[0]) - np.asarray(later.cost)
    scale = nothing._params.scale
    np.testing.assert_allclose(second.reward.sum(0) * scale, saved, atol=1e-4)
    assert int(better.cost[0]) == min(int(found.cost[0]), min(later.cost))


def test_the_loss_reads_the_policy_that_played(nothing, updates):
    for seen, *_ in updates:
        parts = make_batch(seen, nothing.config)
        flat = [jax.tree.map(lambda x: x.reshape(len(x) * 8, *x.shape[2:]), part) for part in parts]
        outputs, batch = jax.jit(reread)(nothing.init().network, flat)
        played = batch.weight > 0
        np.testing.assert_allclose(outputs.log_prob[played], batch.log_prob[played], atol=1e-4)


@pytest.mark.parametrize(
    ("progress", "num_updates", "wide"),
    [(0.4, FEWEST_WIDE, True), (0.6, FEWEST_WIDE - 1, True), (0.6, FEWEST_WIDE, False)],
)
def test_the_second_half_follows_the_best_order(progress, num_updates, wide, nothing, updates):
    found = updates[0][2]
    state = dataclasses.replace(nothing.init(), found=found, num_updates=jnp.int32(num_updates))
    step = jax.jit(
        lambda key, progress: play_batch(
            nothing.tasks.env, nothing._params, state, key, nothing.config, progress
        )
    )
    orders = jax.device_get(step(jax.random.key(3), jnp.float32(progress))[1].order)
    near = [is_near(slots, found.order[0].tolist()) for slots in orders]
    assert all(near[4:])
    assert any(near[:4]) == all(near[:4]) == (not wide)


def test_training_from_nothing_keeps_the_cheapest_order_that_was_played(tangle_task):
    run = agents.train(tangle_task, NOTHING)
    [graph] = tangle_task.graphs
    assert graph.cost(run.order.ids) == run.best.cost("tangle")
    assert "PPO" in run.order.found_by
    assert run.best.cost("tangle") == min(row["min_cost"]["tangle"] for row in run.history)
