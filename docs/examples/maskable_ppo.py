"""sb3-contrib's MaskablePPO on a Gymnasium environment.

pip install sb3-contrib && python docs/examples/maskable_ppo.py
"""

from __future__ import annotations

import gymnasium
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback


class Totals(BaseCallback):
    """Keeps what the orders of finished episodes cost."""

    def __init__(self):
        """Nothing has been played."""
        super().__init__()
        self.totals = []

    def _on_step(self):
        ended = zip(self.locals["infos"], self.locals["dones"], strict=True)
        self.totals += [info["total"] for info, done in ended if done and "order" in info]
        return True


def main(task="HumanHeartDipole", episodes=100, seed=0, observation="adjacency"):
    """Trains and returns the cost of the best episode."""
    env = gymnasium.make(f"veenv:veenv/{task}-v0", normalise=True, observation=observation)
    length = env.unwrapped.env.max_steps
    read = "nodes" if observation == "graph" else "features"
    env = gymnasium.wrappers.FilterObservation(env, [read])  # the mask comes by a method
    model = MaskablePPO(
        "MultiInputPolicy", env, n_steps=4 * length, batch_size=length, gamma=1.0, seed=seed
    )
    played = Totals()
    model.learn(episodes * length, callback=played)
    print(f"{task}: best order of {len(played.totals)} episodes costs {min(played.totals)}")
    return min(played.totals)


if __name__ == "__main__":
    main()
