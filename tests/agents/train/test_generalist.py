"""Training on pools of random functions."""

from __future__ import annotations

import numpy as np
import pytest

from agents.config.ppo import PPOConfig
from agents.train.generalist import (
    EVALUATION_SEEDS,
    UPDATES_PER_POOL,
    Generalist,
    mean_ratio,
    pool_seed,
)
from veenv.tasks import RandomFunctions

FAMILY = RandomFunctions(vertices=(4, 8), inputs=(1, 2), outputs=(1, 2), fan_out=(1.2, 1.8))


@pytest.fixture(scope="module")
def played():
    agent = Generalist(PPOConfig(num_envs=4, steps=600, hidden=8), FAMILY, 2)
    first = agent.trainers["scalar"]
    return agent, first, list(agent.train(state=agent.init()))


def test_pools_are_renewed_without_compiling(played):
    agent, first, rounds = played
    assert [p.unseen for p in rounds] == [k % UPDATES_PER_POOL == 0 for k in range(len(rounds))]
    assert len(rounds) > UPDATES_PER_POOL
    last = agent.trainers["scalar"]
    assert last.game.names != first.game.names
    assert last._step._cache_size() == 1
    assert rounds[-1].steps >= 600 > rounds[-2].steps
    assert [p.update for p in rounds] == list(range(1, len(rounds) + 1))


def test_ratios_are_to_markowitz(played):
    agent, _, rounds = played
    game = agent.trainers["scalar"].game
    markowitz = [graph.cost(graph.markowitz()) for graph in game.graphs]
    costs = np.array([3.0 * markowitz[0], 1.0 * markowitz[1]])
    assert mean_ratio(costs, game) == pytest.approx(2.0)
    assert all(0.5 < p.ratio["scalar"] < 4.0 for p in rounds)


def test_evaluation_has_seeds_of_its_own():
    seeds = {pool_seed(seed, number) for seed in range(20) for number in range(20)}
    assert len(seeds) == 400
    assert max(seeds) < EVALUATION_SEEDS


def test_it_needs_a_budget(played):
    agent, _, _ = played
    endless = Generalist(PPOConfig(num_envs=2, hidden=4), FAMILY, 2)
    with pytest.raises(ValueError, match="steps or a time limit"):
        next(endless.train(state=agent.init()))
