"""mctx: the environment as its own exact model, searched before every move.

pip install mctx && python docs/examples/mctx_search.py
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mctx

import veenv


def main(task="HumanHeartDipole", num_simulations=32, seed=0, observation="adjacency"):
    """Plays one game and returns what its order costs."""
    env = veenv.make(task, normalise=True, observation=observation)
    first = env.spec.num_inputs  # node of the first slot

    def look(state):
        """Cheap eliminations are likely; the value is what is left at the present cost each."""
        obs = env.observe(state)
        seen = obs.nodes[first:][: env.num_actions] if observation == "graph" else obs.features
        cost = jnp.expm1(seen[:, :2]).prod(-1)  # Markowitz: edges in times edges out
        legal = state.action_mask
        left = jnp.where(legal, cost, 0.0).sum() / env.default_params.scale
        return jnp.where(legal, -jnp.log1p(cost), -1e9), -left * (~state.terminated)

    def model(params, key, action, states):
        states, reward, _ = jax.vmap(env.transition)(states, action)
        logits, value = jax.vmap(look)(states)
        discount = 1.0 - states.terminated.astype(jnp.float32)
        found = {"reward": reward, "discount": discount}
        return mctx.RecurrentFnOutput(**found, prior_logits=logits, value=value), states

    @jax.jit
    def move(key, state):
        states = jax.tree.map(lambda x: x[None], state)
        logits, value = jax.vmap(look)(states)
        root = mctx.RootFnOutput(prior_logits=logits, value=value, embedding=states)
        found = mctx.gumbel_muzero_policy(
            (), key, root, model, num_simulations, invalid_actions=~states.action_mask
        )
        return env.transition(state, found.action[0])[0]

    state = env.init()
    for key in jax.random.split(jax.random.key(seed), env.max_steps):
        state = move(key, state)
    order = env.final_order(state)
    assert env.graph.cost(order) == int(state.cost)
    print(f"{task}: the order of one game costs {int(state.cost)}")
    return int(state.cost)


if __name__ == "__main__":
    main()
