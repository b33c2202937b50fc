"""The train step's parts, and that the whole learns."""

import dataclasses

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.agents.conftest import SHARED, trained_beside_random
from veenv.agents.config.ppo import PPOConfig
from veenv.agents.devices import place
from veenv.agents.ppo.ppo import make_batch, make_loss
from veenv.agents.ppo.rollouts import Episodes, cheapest
from veenv.agents.ppo.trainer import Trainer
from veenv.agents.ppo.updates import fit, minibatch_indices
from veenv.env import WideCount

CONFIG = dataclasses.replace(SHARED, steps=100)


@pytest.fixture(scope="module")
def start(trainer, play):
    """Fresh parameters and a batch that they played."""
    state = trainer.init()
    trajectory, _ = play(state.network, jax.random.key(1))
    return state, jax.jit(lambda x: make_batch(x, CONFIG))(trajectory)


@eqx.filter_jit
def learn(state, batch, config):
    """The first update of PPO."""
    key, progress = jax.random.key(0), jnp.float32(0.0)
    loss, start = make_loss(config, progress), (state.network, state.opt_state)
    return fit(loss, *start, batch, config, key, progress, place(6, 1))


def test_loss_where_nothing_has_moved_yet(start):
    state, [batch] = start
    batch = jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), batch)
    _, stats = eqx.filter_jit(make_loss(CONFIG, jnp.float32(0.0)))(state.network, (batch,))
    mean_advantage = float((batch.advantage * batch.weight).sum() / batch.weight.sum())
    np.testing.assert_allclose(stats["policy_loss"], -mean_advantage, atol=1e-5)
    np.testing.assert_allclose(stats["approx_kl"], 0.0, atol=1e-6)
    np.testing.assert_allclose(stats["clip_fraction"], 0.0)
    kept = np.asarray(batch.weight) == 1
    error = np.asarray(batch.value - batch.target)[kept]
    np.testing.assert_allclose(stats["value_loss"], 0.5 * np.mean(error**2), rtol=1e-4)


def test_minibatches_hold_every_step_once_an_epoch():
    config = dataclasses.replace(CONFIG, num_minibatches=4, update_epochs=3)
    indices = np.asarray(minibatch_indices(jax.random.key(0), 20, config))
    assert indices.shape == (12, 5)
    epochs = indices.reshape(3, 20)
    for epoch in epochs:
        np.testing.assert_array_equal(np.sort(epoch), np.arange(20))
    assert not np.array_equal(epochs[0], epochs[1])


def test_gradients_that_are_not_finite_are_skipped(start):
    state, [batch] = start
    broken = (dataclasses.replace(batch, advantage=batch.advantage.at[:].set(jnp.nan)),)
    network, opt_state, stats = learn(state, broken, CONFIG)
    assert eqx.tree_equal(network, state.network)
    chex.assert_trees_all_equal(opt_state, state.opt_state)
    assert stats["not_finite"] == stats["minibatches"] > 0


def test_updates_stop_at_the_kl_limit(start):
    state, batch = start
    hasty = dataclasses.replace(CONFIG, learning_rate=0.3, target_kl=1e-3)
    _, _, stats = learn(state, batch, hasty)
    assert 2 <= stats["minibatches"] < 6
    _, _, stats = learn(state, batch, CONFIG)
    assert stats["minibatches"] == 6


def test_cheapest_leaves_out_incomplete_episodes():
    orders = jnp.arange(12, dtype=jnp.int32).reshape(6, 2)
    cost = np.array([5, 3, 4, 9, 7, 1])
    complete = jnp.array([True, True, True, True, True, False])
    for counts, scale in (
        (jnp.asarray(cost, jnp.int32), 1),
        (WideCount.of_ints(cost << 40), 2**40),
    ):
        mean, least, order = cheapest(Episodes(counts, orders, complete), 2)
        np.testing.assert_allclose(np.asarray(mean) / scale, [4.0, 8.0], rtol=1e-6)
        np.testing.assert_array_equal(least, np.array([3, 7]) * scale)
        np.testing.assert_array_equal(order, orders[jnp.array([1, 4])])


def test_train_step_is_deterministic_and_compiles_once(trainer, both):
    again, results = Trainer(CONFIG, both), []
    chex.assert_trees_all_equal(again._params, trainer._params)
    for state in (trainer.init(), again.init()):
        for progress in (0.0, 0.3, 0.6):
            state, update = trainer.step(state, progress)
        results.append((state.network, update))
    assert trainer._step._cache_size() == 1
    assert eqx.tree_equal(results[0][0], results[1][0])
    chex.assert_trees_all_equal(results[0][1], results[1][1])
    assert trainer.num_envs == 6
    assert trainer.steps_per_update == 3 * sum(len(g.eliminable) for g in both.graphs)


@pytest.mark.slow
@pytest.mark.usefixtures("optimised")
def test_ppo_beats_best_of_n_random_play(tangle_task):
    trainer = Trainer(PPOConfig(num_envs=16, steps=20_000, hidden=16), tangle_task)
    best, mean, random_best, random_mean = trained_beside_random(trainer)
    assert best.cost("tangle") < random_best
    # The policy itself has learned, not only its luckiest episode.
    assert mean < 0.6 * random_mean + 0.4 * random_best
    assert tangle_task.graphs[0].cost(best["tangle"].ids) == best.cost("tangle")
