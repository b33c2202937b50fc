"""sb3-contrib's MaskablePPO learns to play through Gymnasium, knowing nothing of veenv."""

from __future__ import annotations

import gymnasium
import pytest

pytestmark = pytest.mark.clients
pytest.importorskip("sb3_contrib")

from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback

EPISODES, LENGTH = 100, 78


class Finished(BaseCallback):
    """Keeps the infos of the episodes that ended."""

    def __init__(self):
        super().__init__()
        self.infos = []

    def _on_step(self):
        self.infos += [info for info in self.locals["infos"] if "order" in info]
        return True


def test_finds_a_better_order_than_random_play(random_best):
    env = gymnasium.make("veenv:veenv/HumanHeartDipole-v0", normalise=True)
    env = gymnasium.wrappers.FilterObservation(env, ["features"])  # the mask comes by a method
    model = MaskablePPO(
        "MultiInputPolicy", env, n_steps=4 * LENGTH, batch_size=LENGTH, learning_rate=1e-3,
        gamma=1.0, seed=0, device="cpu",
    )  # fmt: skip
    finished = Finished()
    model.learn(EPISODES * LENGTH, callback=finished)
    assert len(finished.infos) == EPISODES
    best = min(finished.infos, key=lambda info: info["total"])
    graph = env.unwrapped.tasks.graphs[0]
    assert graph.cost(best["order"].tolist()) == best["total"]
    print(f"MaskablePPO {best['total']}, random play {random_best(EPISODES)}")
    assert best["total"] < random_best(EPISODES)
