"""sb3-contrib's MaskablePPO learns to play through Gymnasium, knowing nothing of veenv."""

from __future__ import annotations

import gymnasium
import pytest

pytestmark = pytest.mark.clients
pytest.importorskip("sb3_contrib")

from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback


class Finished(BaseCallback):
    """Keeps the infos of the episodes that ended, and what each earned as the learner saw it."""

    def __init__(self):
        super().__init__()
        self.infos, self.returns, self.earned = [], [], 0.0

    def _on_step(self):
        self.earned += float(self.locals["rewards"][0])
        if self.locals["dones"][0]:
            self.infos.append(self.locals["infos"][0])
            self.returns.append(self.earned)
            self.earned = 0.0
        return True


def test_every_return_is_the_cost_of_its_order():
    env = gymnasium.make("veenv:veenv/Robertson-v0")
    length = env.unwrapped.env.max_steps
    model = MaskablePPO(
        "MultiInputPolicy", env, n_steps=4 * length, batch_size=length, gamma=1.0, seed=0,
        device="cpu",
    )  # fmt: skip
    finished = Finished()
    model.learn(8 * length, callback=finished)
    assert len(finished.infos) == 8
    graph = env.unwrapped.env.graph
    costs = [graph.cost(info["order"].tolist()) for info in finished.infos]
    assert costs == [-earned for earned in finished.returns]
    assert costs == [info["total"] for info in finished.infos]
