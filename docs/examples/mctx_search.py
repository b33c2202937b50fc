"""mctx: the environment as its own exact model, searched before every move.

No network is trained: the prior of a vertex is what its elimination costs now, and the value of a
state is what the rest costs in reverse order.

pip install -e '.[agents,mctx]' && python docs/examples/mctx_search.py --task RoeFlux_1d
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
import mctx
import tyro

import veenv


def value(env, state):
    """Return of eliminating what is left in reverse order, float32 []."""
    slots = jnp.arange(env.num_actions, dtype=jnp.int32)
    order = jnp.argsort(jnp.where(state.action_mask, -slots, env.num_actions))

    def step(state, slot):
        after, reward, _ = env.transition(state, slot)
        return after, reward

    return jax.lax.scan(step, state, order.astype(jnp.int32))[1].sum()


def prior(env, state):
    """Logits that favour cheap eliminations, legal ones only, float32 [A]."""
    obs, first = env.observe(state), env.spec.num_inputs  # node of the first slot
    seen = obs.features if hasattr(obs, "features") else obs.nodes[first:][: env.num_actions]
    return jnp.where(state.action_mask, -seen[:, 2], jnp.finfo(jnp.float32).min)  # log of costs


def model(env, actions, states):
    """One step of the environment, as mctx calls a learned model."""
    states, reward, _ = jax.vmap(env.transition)(states, actions)
    logits, left = jax.vmap(lambda s: (prior(env, s), value(env, s)))(states)
    discount = 1.0 - states.terminated.astype(jnp.float32)
    output = mctx.RecurrentFnOutput(
        reward=reward, discount=discount, prior_logits=logits, value=left
    )
    return output, states


def play(env, key, games, num_simulations):
    """Plays whole games side by side; the final states, every leaf with a first axis of games."""

    def move(states, key):
        logits, left = jax.vmap(lambda s: (prior(env, s), value(env, s)))(states)
        root = mctx.RootFnOutput(prior_logits=logits, value=left, embedding=states)
        found = mctx.gumbel_muzero_policy(
            None,
            key,
            root,
            lambda _, __, actions, states: model(env, actions, states),
            num_simulations,
            invalid_actions=~states.action_mask,
        )
        return jax.vmap(env.transition)(states, found.action)[0], None

    start = jax.tree.map(lambda leaf: jnp.stack([leaf] * games), env.init())
    return jax.lax.scan(move, start, jax.random.split(key, env.max_steps))[0]


def main(
    task: str = "HumanHeartDipole",
    games: int = 4,
    num_simulations: int = 32,
    seed: int = 0,
    cost: Literal["multiplications", "executed", "operations"] = "multiplications",
    observation: Literal["adjacency", "graph"] = "adjacency",
) -> int:
    """Plays games side by side, and prints the order of the best one.

    Args:
        task: the task to play.
        games: games, each with noise of its own; the best one counts.
        num_simulations: simulations before each move.
        seed: seed of the noise.
        cost: what an elimination costs.
        observation: kind of the observations that the prior reads.
    """
    env = veenv.make(task, cost=cost, observation=observation)
    states = jax.jit(lambda key: play(env, key, games, num_simulations))(jax.random.key(seed))
    best = jax.tree.map(lambda leaf: leaf[states.cost.argmin()], states)
    order = env.final_order(best)
    assert env.graph.cost(order, cost) == int(best.cost)
    print(f"{task}: the games cost", *sorted(states.cost.tolist()))
    for name in ("forward", "reverse", "markowitz"):
        print(f"{name} {env.graph.cost(getattr(env.graph, name)(), cost)}")
    print("order:", *order)
    return int(best.cost)


if __name__ == "__main__":
    tyro.cli(main)
