"""A loop in jumanji's style: its wrapper resets, a scan plays, a random policy heeds the mask.

pip install jumanji && python docs/examples/jumanji_loop.py
"""

from __future__ import annotations

import jax
import numpy as np
from jumanji.wrappers import VmapAutoResetWrapper

import veenv
from veenv.env import random_action
from veenv.env.adapters import to_jumanji


def main(task="HumanHeartDipole", num_envs=64, episodes=2, seed=0, observation="adjacency"):
    """Plays and returns the cost of the best episode."""
    inner = veenv.make(task, observation=observation)
    env = VmapAutoResetWrapper(to_jumanji(inner))

    @jax.jit
    def play(key):
        def step(carry, key):
            state, timestep = carry
            action = random_action(key, timestep.observation.action_mask)
            state, timestep = env.step(state, action)
            return (state, timestep), (timestep.last(), timestep.extras)

        first = env.reset(jax.random.split(key, num_envs))
        return jax.lax.scan(step, first, jax.random.split(key, episodes * inner.max_steps))[1]

    last, extras = jax.device_get(play(jax.random.key(seed)))
    totals, orders = extras["total"][last], extras["order"][last]
    best = int(totals.argmin())
    assert inner.graph.cost(orders[best].tolist()) == totals[best]
    print(f"{task}: best order of {len(totals)} episodes costs {totals[best]}")
    return int(np.min(totals))


if __name__ == "__main__":
    main()
