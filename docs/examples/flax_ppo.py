"""A flax network of your own, trained by our PPO on one set and evaluated on two others.

Run with: python docs/examples/flax_ppo.py [SECONDS]
"""

import sys

import flax.linen as nn
import jax.numpy as jnp

import veenv
from veenv import agents


class Net(nn.Module):
    """Each vertex sees its features and those of its neighbours; the value sees their mean."""

    width: int = 32

    @nn.compact
    def __call__(self, seen):
        """Logits of all slots [A] and the value [] of one observation."""
        slots = len(seen.action_mask)
        edges = jnp.where(seen.adjacency[-slots:, :slots] != 0, 1.0, 0.0)
        around = [m @ seen.features / (1 + m.sum(1, keepdims=True)) for m in (edges, edges.T)]
        h = nn.relu(nn.Dense(self.width)(jnp.concatenate([seen.features, *around], axis=-1)))
        h = h * seen.action_mask[:, None]
        mean = jnp.broadcast_to(h.sum(0) / (1 + seen.action_mask.sum()), h.shape)
        both = nn.relu(nn.Dense(self.width)(jnp.concatenate([h, mean], axis=-1)))
        logits = nn.Dense(1, kernel_init=nn.initializers.zeros)(both)[:, 0]
        return logits, nn.Dense(1)(nn.relu(nn.Dense(self.width)(h.sum(0) / 32)))[0]


seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 120
run = agents.train("scalar-small-train", network=Net(), time_limit=seconds, folder="runs/flax")
for name in ("scalar-small", "hard"):
    print(veenv.evaluate(run.network, name, samples=8, name="own flax network"))
