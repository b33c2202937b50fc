"""Cutting off slots that are gone changes what is computed, and no result."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from veenv.agents.config.ppo import PPOConfig
from veenv.agents.nn.networks import GraphNetwork
from veenv.agents.ppo.phases import PHASES, Phase, phases_of
from veenv.agents.ppo.ppo import Batch, make_batch, make_loss
from veenv.agents.ppo.rollouts import rollout
from veenv.agents.ppo.updates import phase_indices

CONFIG = PPOConfig(hidden=8)
NAMES = ("action", "log_prob", "value", "advantage", "target", "weight")


@pytest.mark.parametrize(("num_actions", "number"), [(1, 1), (23, 1), (24, 2), (98, 6), (500, 6)])
def test_phases_cover_the_episode(num_actions, number):
    phases = phases_of(num_actions, 6)
    assert len(phases) == number
    steps = [step for phase in phases for step in range(phase.start, phase.stop)]
    assert steps == list(range(num_actions))
    assert all(phase.num_slots == num_actions - phase.start for phase in phases)
    assert phases_of(num_actions, 1) == (Phase(0, num_actions, num_actions),)


@pytest.fixture(scope="module")
def played(tangle_task):
    """Episodes of one network in one phase and in two, with the same key."""
    network = GraphNetwork(8, key=jax.random.key(0))
    params = jax.tree.map(lambda x: jnp.repeat(x, 3, axis=0), tangle_task.params)
    env = tangle_task.env
    assert len(phases_of(env.num_actions, PHASES)) == 2
    play = jax.jit(
        lambda n: rollout(env, params, network, jax.random.key(1), most_phases=n), static_argnums=0
    )
    return network, jax.device_get([play(most) for most in (1, PHASES)])


def test_phases_are_played_as_a_whole_episode(played):
    _, [(one, episodes), (two, same)] = played
    np.testing.assert_array_equal(episodes.order, same.order)
    np.testing.assert_array_equal(one.action, two.action)
    np.testing.assert_array_equal(one.place, one.action)
    legal = [np.take_along_axis(x.mask, p[..., None], 2) for x, p in _places(two)]
    assert all(x.all() for x in legal)
    np.testing.assert_allclose(one.log_prob, two.log_prob, atol=1e-5)
    np.testing.assert_allclose(one.value, two.value, rtol=1e-5, atol=1e-6)
    assert [x.nodes.shape[2] for x in two.inputs] == [26, 13]


def _places(trajectory):
    """What the network read in each phase, and the places of the actions in it."""
    bounds = np.cumsum([len(inputs.mask) for inputs in trajectory.inputs])[:-1]
    return zip(trajectory.inputs, np.split(trajectory.place, bounds), strict=True)


def test_losses_and_gradients_do_not_depend_on_the_phases(played):
    network, [(one, _), (two, _)] = played
    parts = make_batch(two, CONFIG)
    assert [part.inputs.mask.shape for part in parts] == [(13, 3, 26), (13, 3, 13)]
    joined = {name: jnp.concatenate([getattr(p, name) for p in parts]) for name in NAMES}
    joined["action"] = jnp.asarray(one.place)
    whole = Batch(one.inputs[0], **joined)
    gradient = jax.jit(jax.grad(lambda n, b: make_loss(CONFIG, jnp.float32(0.0))(n, b)[0]))
    flat = [jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), b) for b in ((whole,), parts)]
    pairs = zip(*(jax.tree.leaves(gradient(network, b)) for b in flat), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_every_minibatch_holds_its_share_of_each_phase():
    config = PPOConfig(num_minibatches=4, update_epochs=3, learned_share=1.0)
    early, late = phase_indices(jax.random.key(0), [22, 8], config)
    assert (early.shape, late.shape) == ((12, 5), (12, 2))
    few = phase_indices(jax.random.key(0), [22, 3], config)
    assert [x.shape for x in few] == [(9, 7), (9, 1)]
    half = phase_indices(jax.random.key(0), [24, 8], dataclasses.replace(config, learned_share=0.5))
    assert [x.shape for x in half] == [(12, 3), (12, 1)]
    first, second = (set(np.asarray(x).ravel().tolist()) for x in (half[0][:4], half[0][4:8]))
    assert len(first) == len(second) == 12  # a step at most once in a pass
    assert first != second
