"""rejax's PPO learns to play through the gymnax-style adapter, trained as one program."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from veenv.env.random_play import random_episodes

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("promotion")]
pytest.importorskip("rejax")

import distrax
from rejax import PPO
from rejax.evaluate import evaluate
from rejax.networks import DiscretePolicy

import veenv
from veenv.env.adapters.gymnax import GymnaxEnv

EPISODES, EVALUATIONS, EVALUATED = 200, 5, 20


class MaskedPolicy(DiscretePolicy):
    """rejax's policy without the illegal actions: the last feature of a slot says legal."""

    def _action_dist(self, obs):
        legal = obs.reshape(*obs.shape[:-1], self.action_dim, -1)[..., -1] > 0
        logits = super()._action_dist(obs).logits
        return distrax.Categorical(logits=jnp.where(legal, logits, -1e9))


def test_every_return_is_the_cost_of_its_order():
    task = veenv.make("Robertson")
    env, length = GymnaxEnv(task, flat=True, split_done=False), task.max_steps
    ppo = PPO.create(
        env=env, num_envs=2, num_steps=length, num_minibatches=2, total_timesteps=8 * length,
        eval_freq=8 * length, skip_initial_evaluation=True, gamma=1.0,
    )  # fmt: skip
    ppo = ppo.replace(actor=MaskedPolicy(task.num_actions, (8,), jax.nn.swish))

    @jax.jit
    def trained(key):
        state, (_, returns) = ppo.train(key)
        act = ppo.make_act(state)

        def step(carry, key):
            obs, state = carry
            obs, state, reward, done, info = env.step(key, state, act(obs, key), ppo.env_params)
            return (obs, state), (reward, done, info["order"])

        start = env.reset(key, ppo.env_params)
        return returns, jax.lax.scan(step, start, jax.random.split(key, 4 * length))[1]

    evaluated, (rewards, done, orders) = jax.device_get(trained(jax.random.key(0)))
    assert np.flatnonzero(done).tolist() == [length * k - 1 for k in range(1, 5)]
    costs = [task.graph.cost(order.tolist()) for order in orders[done]]
    assert costs == (-rewards.reshape(4, length).sum(1)).tolist()
    least, most = 17, 40  # of Robertson, proven least, and more than any order
    assert ((-evaluated >= least) & (-evaluated <= most)).all()


def test_finds_a_better_order_than_random_play():
    task = veenv.make("HumanHeartDipole", normalise=True)
    env, length = GymnaxEnv(task, flat=True, split_done=False), task.max_steps
    ppo = PPO.create(
        env=env, num_envs=4, num_steps=length, num_minibatches=4, learning_rate=1e-3, gamma=1.0,
        max_grad_norm=0.5, ent_coef=0.0, total_timesteps=EPISODES * length,
        eval_freq=EPISODES * length // EVALUATIONS, skip_initial_evaluation=True,
    )  # fmt: skip

    def play(ppo, state, key):
        return evaluate(ppo.make_act(state), key, env, ppo.env_params, EVALUATED, length)

    actor = MaskedPolicy(task.num_actions, (64, 64), jax.nn.swish)
    ppo = ppo.replace(actor=actor, eval_callback=play)
    _, (lengths, returns) = jax.jit(ppo.train)(jax.random.key(0))
    assert (lengths == length).all()
    costs = -np.asarray(returns, np.float64) * float(task.default_params.scale)
    episodes = EPISODES + EVALUATIONS * EVALUATED
    best = round(costs.min())
    np.testing.assert_allclose(costs.min(), best, rtol=1e-5)
    random = jax.jit(lambda key: random_episodes(task, key, 4096).cost)(jax.random.key(0))
    random_best = int(np.asarray(random)[:episodes].min())
    print(f"rejax PPO {best}, random play {random_best}")
    assert best < random_best
