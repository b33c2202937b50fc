"""PPO in one file, in the style of purejaxrl: the whole training is one compiled program.

python docs/examples/ppo_one_file.py
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import veenv
from veenv.env.adapters import GymnaxEnv
from veenv.env.observe import mask_of


class Step(NamedTuple):
    """What the rollout keeps, [T, B, …]."""

    obs: jax.Array
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    reward: jax.Array
    done: jax.Array


class Episode(NamedTuple):
    """What an episode came to: its return, and the order and its cost as the info tells them."""

    earned: jax.Array
    total: jax.Array
    order: jax.Array


class ActorCritic(eqx.Module):
    """Two small networks on the features of all vertices; illegal actions are left out."""

    actor: eqx.nn.MLP
    critic: eqx.nn.MLP
    num_actions: int = eqx.field(static=True)

    def __init__(self, num_actions, size, key):
        """Fresh parameters."""
        actor, critic = jax.random.split(key)
        self.actor = eqx.nn.MLP(size, num_actions, 64, 2, jnp.tanh, key=actor)
        self.critic = eqx.nn.MLP(size, "scalar", 64, 2, jnp.tanh, key=critic)
        self.num_actions = num_actions

    def __call__(self, obs):
        """Logits and value of one observation."""
        read = obs.nodes.ravel() if hasattr(obs, "nodes") else obs
        logits = jnp.where(mask_of(obs, self.num_actions), self.actor(read), -1e9)
        return logits, self.critic(read)


def advantages(steps, last_value, lam=0.95):
    """Generalised advantages, undiscounted: costs add up."""

    def back(carry, step):
        advantage, following = carry
        alive = 1.0 - step.done
        delta = step.reward + following * alive - step.value
        advantage = delta + lam * alive * advantage
        return (advantage, step.value), advantage

    zeros = jnp.zeros_like(last_value)
    return jax.lax.scan(back, (zeros, last_value), steps, reverse=True)[1]


def loss_of(network, steps, advantage, target):
    """The clipped loss of a minibatch."""
    logits, value = jax.vmap(network)(steps.obs)
    log_probs = jax.nn.log_softmax(logits)
    log_prob = jnp.take_along_axis(log_probs, steps.action[:, None], 1)[:, 0]
    ratio = jnp.exp(log_prob - steps.log_prob)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy = -jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.8, 1.2) * advantage).mean()
    entropy = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
    return policy + 0.5 * jnp.square(value - target).mean() - 0.01 * entropy


def make_train(
    task="HumanHeartDipole", num_envs=16, updates=60, epochs=4, minibatches=4, observation="flat"
):
    """How to begin with a key, and to go on: it also returns every `Episode`, [updates, B, …]."""
    inner = veenv.make(task, normalise=True, observation=observation)
    env, length = GymnaxEnv(inner), inner.max_steps
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-3))
    first, _ = inner.reset()
    size = getattr(first, "nodes", first).size
    network = ActorCritic(inner.num_actions, size, jax.random.key(0))
    static = eqx.filter(network, eqx.is_array, inverse=True)

    def play(params, start, key):
        """One episode of every environment."""
        network = eqx.combine(params, static)

        def step(carry, key):
            obs, state = carry
            logits, value = jax.vmap(network)(obs)
            action = jax.random.categorical(key, logits)
            log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]
            after, state, reward, done, _, info = jax.vmap(env.step, (None, 0, 0))(
                None, state, action
            )
            kept = Step(obs, action, log_prob, value, reward, done.astype(jnp.float32))
            return (after, state), (kept, info["total"], info["order"])

        keys = jax.random.split(key, length)
        end, (steps, totals, orders) = jax.lax.scan(step, start, keys)
        advantage = advantages(steps, jax.vmap(network)(end[0])[1])
        episodes = Episode(steps.reward.sum(0), totals[-1], orders[-1])  # all end together
        return end, (steps, advantage, advantage + steps.value), episodes

    def learn(carry, batch):
        """One step of Adam."""
        params, opt_state = carry
        grads = jax.grad(lambda p: loss_of(eqx.combine(p, static), *batch))(params)
        change, opt_state = optimizer.update(grads, opt_state)
        return (optax.apply_updates(params, change), opt_state), None

    def update(carry, key):
        """A rollout, and some passes over it in shuffled minibatches."""
        learner, env_state = carry
        key, *shuffles = jax.random.split(key, epochs + 1)
        env_state, batch, episodes = play(learner[0], env_state, key)
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)
        for shuffle in shuffles:
            order = jax.random.permutation(shuffle, num_envs * length).reshape(minibatches, -1)
            learner, _ = jax.lax.scan(lambda c, i: learn(c, jax.tree.map(lambda x: x[i], flat)),
                                      learner, order)  # fmt: skip
        return (learner, env_state), episodes

    def begin(key):
        first, second = jax.random.split(key)
        params = eqx.filter(ActorCritic(inner.num_actions, size, first), eqx.is_array)
        start = jax.vmap(env.reset)(jax.random.split(second, num_envs))
        return (params, optimizer.init(params)), start

    def train(carry, key):
        return jax.lax.scan(update, carry, jax.random.split(key, updates))

    return begin, train


def main(task="HumanHeartDipole", updates=60, num_envs=16, seed=0, observation="flat"):
    """Trains and returns the cost of the best episode."""
    begin, train = make_train(task, num_envs, updates, observation=observation)
    first, rest = jax.random.split(jax.random.key(seed))
    _, episodes = jax.jit(lambda: train(begin(first), rest))()
    best = jnp.unravel_index(episodes.total.argmin(), episodes.total.shape)
    cost, order = int(episodes.total[best]), episodes.order[best].tolist()
    assert veenv.make(task).graph.cost(order) == cost
    print(f"{task}: best order of {episodes.total.size} episodes costs {cost}")
    return cost


if __name__ == "__main__":
    main()
