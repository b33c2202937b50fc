"""rejax's PPO with a policy that leaves out illegal actions.

pip install rejax && python docs/examples/rejax_ppo.py
"""

from __future__ import annotations

import distrax
import jax
import jax.numpy as jnp
import numpy as np
from rejax import PPO
from rejax.evaluate import evaluate
from rejax.networks import DiscretePolicy

import veenv
from veenv.env.adapters import GymnaxEnv
from veenv.env.observe import mask_of


class MaskedPolicy(DiscretePolicy):
    """rejax's policy without the illegal actions."""

    def _action_dist(self, obs):
        logits = super()._action_dist(obs).logits
        return distrax.Categorical(logits=jnp.where(mask_of(obs, self.action_dim), logits, -1e9))


def main(task="HumanHeartDipole", episodes=200, seed=0):
    """Trains, plays 20 episodes and returns the cost of the best."""
    inner = veenv.make(task, normalise=True, observation="flat")
    env, length = GymnaxEnv(inner, split_done=False), inner.max_steps
    steps = episodes * length
    ppo = PPO.create(
        env=env, num_envs=4, num_steps=length, num_minibatches=2, learning_rate=1e-3, gamma=1.0,
        max_grad_norm=0.5, ent_coef=0.0, total_timesteps=steps, eval_freq=steps,
        skip_initial_evaluation=True,
    )  # fmt: skip

    def play(ppo, state, key):
        return evaluate(ppo.make_act(state), key, env, ppo.env_params, 20, length)

    actor = MaskedPolicy(inner.num_actions, (64, 64), jax.nn.swish)
    ppo = ppo.replace(actor=actor, eval_callback=play)
    _, (_, returns) = jax.jit(ppo.train)(jax.random.key(seed))
    best = round(float(-np.max(returns) * inner.default_params.scale))
    print(f"{task}: best order of 20 episodes after {episodes} of training costs {best}")
    return best


if __name__ == "__main__":
    main()
