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


def make_ppo(inner, total_timesteps, kind=PPO):
    """rejax's PPO on an environment: every iteration plays four whole episodes."""
    ppo = kind.create(
        env=GymnaxEnv(inner, split_done=False), num_envs=4, num_steps=inner.max_steps,
        num_minibatches=2, learning_rate=1e-3, gamma=1.0, max_grad_norm=0.5, ent_coef=0.0,
        total_timesteps=total_timesteps, eval_freq=total_timesteps, skip_initial_evaluation=True,
    )  # fmt: skip
    return ppo.replace(actor=MaskedPolicy(inner.num_actions, (64, 64), jax.nn.swish))


def main(task="HumanHeartDipole", episodes=200, seed=0):
    """Trains, plays 20 episodes and returns the cost of the best."""
    inner = veenv.make(task, normalise=True, observation="flat")
    ppo = make_ppo(inner, episodes * inner.max_steps)

    def play(ppo, state, key):
        return evaluate(ppo.make_act(state), key, ppo.env, ppo.env_params, 20, inner.max_steps)

    _, (_, returns) = jax.jit(ppo.replace(eval_callback=play).train)(jax.random.key(seed))
    best = round(float(-np.max(returns) * inner.default_params.scale))
    print(f"{task}: best order of 20 episodes after {episodes} of training costs {best}")
    return best


if __name__ == "__main__":
    main()
