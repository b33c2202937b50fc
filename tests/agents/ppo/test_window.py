"""Training with a window: from what is known, and never above it, or from nothing."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from tests.agents.conftest import SHARED
from veenv import agents
from veenv.agents.config.ppo import PPOConfig, window_on
from veenv.agents.ppo import stretches
from veenv.agents.ppo.best_orders import BestSoFar
from veenv.agents.ppo.ppo import make_batch, reread
from veenv.agents.ppo.rollouts import cheapest
from veenv.agents.ppo.stretches import sweep
from veenv.agents.training import learner
from veenv.agents.training.inputs import known_order, make_trainer
from veenv.env.rewards import classical_costs
from veenv.orders.order import Order

CONFIG = dataclasses.replace(SHARED, window=4, steps=200, num_envs=4)


def test_it_never_ends_above_what_is_known(tangle_task):
    run = agents.train(tangle_task, CONFIG)
    [graph] = tangle_task.graphs
    classical = [*classical_costs(graph, "multiplications").values()]
    known = known_order(graph, "multiplications").counts["multiplications"]
    assert run.best.cost("tangle") <= min(known, *classical)
    assert graph.cost(run.order.ids) == run.best.cost("tangle")
    assert run.classical == {}
    first = run.history[0]["mean_cost"]["tangle"]  # random play of all vertices costs far more
    assert first < np.mean(classical)


LENGTH = 8
"""Steps of a stretch in these tests, so that an order of 26 vertices has four."""


def is_near(free, left):
    """Whether each of these vertices is among the next four of an order."""
    left, near = list(left), []
    for v in free:
        near.append(left.index(v) < 4)
        left.remove(v)
    return all(near)


def is_cheap(order, start, length, graph):
    """Whether nothing that is left costs less than each of an order's next ones but three."""
    costs = graph.costs(order)
    for k in range(start, min(start + length, len(order))):
        others = [(*order[:k], v, *(w for w in order[k:] if w != v)) for v in order[k:]]
        if sorted(graph.costs(other)[k] for other in others)[:4][-1] < costs[k]:
            return False
    return True


def pieces_of(order, best, start):
    """Whether an order is a best one but for one stretch, and where that stretch leads."""
    free = order[start : start + LENGTH]
    rest = [v for v in best[start:] if v not in free]
    return order[:start] == best[:start] and order[start + LENGTH :] == tuple(rest)


def swept(tasks, config, found, seed, monkeypatch):
    """What is played in the stretches of one update, on the host."""
    monkeypatch.setattr(stretches, "STRETCH", LENGTH)
    trainer = make_trainer("ppo", config, agents.SearchConfig(), tasks)
    env, params, state = trainer._env, trainer._params, trainer.init()
    run = jax.jit(lambda key: sweep(env, params, state.network, key, found, config.window))
    return trainer, jax.device_get(run(jax.random.key(seed)))


def known_of(tasks, orders):
    return BestSoFar.of(
        [Order.from_graph(*x) for x in zip(tasks.graphs, orders, strict=True)], tasks
    )


@pytest.mark.parametrize("seed", range(2))
def test_an_episode_is_the_best_order_but_for_a_stretch(seed, tangle_task, monkeypatch):
    [graph] = tangle_task.graphs
    config = dataclasses.replace(CONFIG, num_envs=5)
    best = max((graph.reverse(), graph.forward()), key=graph.cost)  # with room below it
    found = known_of(tangle_task, [best])
    trainer, (seen, episodes, better) = swept(tangle_task, config, found, seed, monkeypatch)
    count, size = -(-len(best) // LENGTH), len(best)
    assert count == 4
    assert episodes.complete.all()
    orders = [tangle_task.vertex_ids(0, slots) for slots in episodes.order]
    of_stretch = [orders[k::count] for k in range(count)]  # those of an environment lie together
    costs = [[graph.cost(graph.check_order(order)) for order in some] for some in of_stretch]
    np.testing.assert_array_equal(np.ravel(costs, order="F"), episodes.cost)
    [first] = [
        n for n in range(LENGTH) if all(pieces_of(order, best, n) for order in of_stretch[0])
    ]
    parts = seen.reward.reshape(count, LENGTH, 5).sum(1) * np.asarray(trainer._params.scale)
    taken, kinds = seen.action.reshape(count, LENGTH, 5), set()
    for k, some in enumerate(of_stretch):
        start = first + LENGTH * k
        assert all(pieces_of(order, best, start) for order in some)
        np.testing.assert_allclose(parts[k], graph.cost(best) - np.array(costs[k]), atol=1e-4)
        free = [order[start : start + LENGTH] for order in some]
        slots = [tangle_task.vertex_ids(0, taken[k, : len(free[e]), e]) for e in range(5)]
        assert slots == free
        near = all(is_near(vertices, best[start:]) for vertices in free)
        cheap = all(is_cheap(order, start, LENGTH, graph) for order in some)
        assert near or cheap
        kinds.add((near, cheap))
        if min(costs[k]) <= graph.cost(best):
            best = some[int(np.argmin(costs[k]))]
    assert tangle_task.vertex_ids(0, better.order[0]) == best
    assert int(better.cost[0]) == graph.cost(best)
    assert seen.active.sum() == 5 * (size - first)
    [batch] = make_batch(seen, config)  # nothing is to come after a stretch
    ends = slice(LENGTH - 1, -1, LENGTH)
    np.testing.assert_allclose(batch.target[ends], seen.reward[ends], atol=1e-6)
    assert len(set(orders)) > count
    assert {(True, False), (False, True)} <= kinds


def test_stretches_of_graphs_of_different_sizes(both, monkeypatch):
    monkeypatch.setattr(stretches, "STRETCH", 2)
    config = dataclasses.replace(CONFIG, num_envs=8, window=2)
    trainer = make_trainer("ppo", config, agents.SearchConfig(), both)
    env, params, state = trainer._env, trainer._params, trainer.init()
    run = jax.jit(lambda key, found: sweep(env, params, state.network, key, found, 2))
    for found in (state.best, BestSoFar.nothing(2, env.spec)):
        _, episodes, better = jax.device_get(run(jax.random.key(0), found))
        done = np.flatnonzero(episodes.complete)
        assert len(done) == len(episodes.cost) or found is not state.best
        for i in done:
            k = int(i >= len(episodes.cost) // 2)
            ids = both.vertex_ids(k, episodes.order[i])
            assert both.graphs[k].cost(both.graphs[k].check_order(ids)) == episodes.cost[i]
            assert better.cost[k] <= episodes.cost[i]
        assert {int(i >= len(episodes.cost) // 2) for i in done} == {0, 1}


def test_windows_are_for_large_graphs():
    assert window_on(100, PPOConfig()) == 0 < window_on(184, PPOConfig())  # the smallest of `hard`
    assert 0 < window_on(1000, PPOConfig()) < 100
    assert window_on(8, PPOConfig(window=7)) == 7
    assert window_on(7, PPOConfig(window=7)) == 0


def test_no_run_ends_above_the_classical_orders_of_a_large_task(monkeypatch, tangle_task):
    trainer = make_trainer(
        "ppo", dataclasses.replace(CONFIG, window=0), agents.SearchConfig(), tangle_task
    )
    assert learner.Learner(trainer).best.get("tangle") is None
    monkeypatch.setattr(learner, "LARGE", 4)
    least = min(classical_costs(tangle_task.graphs[0], "multiplications").values())
    assert learner.Learner(trainer).best.cost("tangle") == least


NOTHING = dataclasses.replace(CONFIG, from_nothing=True, num_envs=8, steps=600)


@pytest.fixture(scope="module")
def nothing(tangle_task):
    trainer = make_trainer("ppo", NOTHING, agents.SearchConfig(), tangle_task)
    assert trainer.known == ()
    return trainer


@pytest.fixture(scope="module")
def updates(nothing):
    """What is played in two updates, and what is known before, between and after them."""
    state, params = nothing.init(), nothing._params
    env, size = nothing.tasks.env, nothing.config.window
    step = jax.jit(lambda best, key: sweep(env, params, state.network, key, best, size))
    first = jax.device_get(step(state.best, jax.random.key(1)))
    return first, jax.device_get(step(first[2], jax.random.key(2)))


def test_from_nothing_no_order_is_known_but_what_was_played(nothing, updates):
    (first, episodes, found), (second, later, better) = updates
    assert episodes.complete.all()
    assert not first.ends.any()
    [graph], orders = nothing.tasks.graphs, [nothing.tasks.vertex_ids(0, o) for o in episodes.order]
    assert all(is_cheap(order, 0, len(order), graph) for order in orders)
    assert int(found.cost[0]) == min(episodes.cost)
    scale = nothing._params.scale
    np.testing.assert_allclose(-first.reward.sum(0) * scale, episodes.cost, rtol=1e-5)
    saved = int(found.cost[0]) - np.asarray(later.cost)
    np.testing.assert_allclose(second.reward.sum(0) * scale, saved, atol=1e-4)
    assert int(better.cost[0]) == min(int(found.cost[0]), min(later.cost))


def test_the_mean_cost_is_that_of_whole_episodes(nothing, monkeypatch):
    monkeypatch.setattr(stretches, "STRETCH", LENGTH)
    _, (_, episodes, found) = swept(nothing.tasks, NOTHING, nothing.init().best, 0, monkeypatch)
    whole = episodes.complete.reshape(8, 4)
    assert whole.sum(1).tolist() == [1] * 8
    mean, least, _ = cheapest(episodes, 1)
    assert float(mean[0]) == np.mean(episodes.cost.reshape(8, 4)[whole])
    assert int(least[0]) == int(found.cost[0])


def test_the_loss_reads_the_policy_that_played(nothing, updates):
    for seen, *_ in updates:
        parts = make_batch(seen, nothing.config)
        flat = [jax.tree.map(lambda x: x.reshape(len(x) * 8, *x.shape[2:]), part) for part in parts]
        outputs, batch = jax.jit(reread)(nothing.init().network, flat)
        played = batch.weight > 0
        np.testing.assert_allclose(outputs.log_prob[played], batch.log_prob[played], atol=1e-4)
