"""What works with the core alone: a Jacobian, an environment, a search."""

import jax
import jax.numpy as jnp

import veenv
from veenv.search import search


def f(x, y):
    return jnp.sin(x * y) * y + jnp.exp(x)


jacobian = veenv.jacve(f, "markowitz", argnums=(0, 1))(0.5, 2.0)
assert veenv.tree_allclose(jacobian, jax.jacrev(f, argnums=(0, 1))(0.5, 2.0))
env = veenv.make(f, 0.5, 2.0, argnums=(0, 1))
obs, state = env.reset()
while not state.terminated:
    obs, state, *_ = env.step(None, state, obs.action_mask.argmax())
found = search(env.graph, "markowitz")
assert found.cost == env.graph.cost(env.graph.markowitz())
assert env.graph.cost(env.final_order(state)) == int(state.cost)
print("core:", veenv.__version__, veenv.__file__)
