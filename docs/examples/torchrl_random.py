"""TorchRL's GymEnv with its ActionMask transform, and a random policy that heeds the mask.

pip install torchrl && python docs/examples/torchrl_random.py
"""

from __future__ import annotations

import gymnasium
import torch
from torchrl.envs import GymWrapper
from torchrl.envs.transforms import ActionMask, TransformedEnv


def main(task="HumanHeartDipole", episodes=4, seed=0, observation="adjacency"):
    """Plays legal random episodes and returns the cost of the best."""
    torch.manual_seed(seed)
    inner = gymnasium.make(f"veenv:veenv/{task}-v0", observation=observation)
    env = TransformedEnv(GymWrapper(inner, categorical_action_encoding=True), ActionMask())
    costs = []
    for _ in range(episodes):
        rollout = env.rollout(max_steps=inner.unwrapped.env.max_steps)
        earned = rollout["next", "reward"].sum().item()
        graph, order = inner.unwrapped.env.graph, inner.unwrapped.env.order(inner.unwrapped._state)
        assert graph.cost(order) == -earned
        costs.append(round(-earned))
    print(f"{task}: best order of {episodes} episodes costs {min(costs)}")
    return min(costs)


if __name__ == "__main__":
    main()
