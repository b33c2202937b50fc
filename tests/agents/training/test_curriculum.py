"""Training on pools of random functions."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from veenv.agents.config.ppo import PPOConfig
from veenv.agents.training.curriculum import (
    EVALUATION_SEEDS,
    UPDATES_PER_POOL,
    RandomPools,
    mean_ratio,
    pool_seed,
)
from veenv.agents.training.loop import train
from veenv.tasks import RandomFunctions

FAMILY = RandomFunctions(vertices=(4, 8), inputs=(1, 2), outputs=(1, 2), fan_out=(1.2, 1.8))


@pytest.fixture(scope="module")
def played():
    pools = RandomPools(PPOConfig(num_envs=4, steps=600, hidden=8), FAMILY, 2)
    first = pools.trainers["scalar"]
    return pools, first, list(train(pools))


def test_pools_are_renewed_without_compiling(played):
    pools, first, rounds = played
    assert [p.measured["unseen"] for p in rounds] == [
        k % UPDATES_PER_POOL == 0 for k in range(len(rounds))
    ]
    assert len(rounds) > UPDATES_PER_POOL
    last = pools.trainers["scalar"]
    assert last.tasks.names != first.tasks.names
    assert last._step._cache_size() == 1
    assert rounds[-1].steps >= 600 > rounds[-2].steps
    assert [p.update for p in rounds] == list(range(1, len(rounds) + 1))


def test_ratios_are_to_markowitz(played):
    pools, _, rounds = played
    tasks = pools.trainers["scalar"].tasks
    markowitz = [graph.cost(graph.markowitz()) for graph in tasks.graphs]
    costs = np.array([3.0 * markowitz[0], 1.0 * markowitz[1]])
    assert mean_ratio(costs, tasks) == pytest.approx(2.0)
    assert all(0.5 < p.measured["ratio"]["scalar"] < 4.0 for p in rounds)


def test_evaluation_has_seeds_of_its_own():
    seeds = {pool_seed(seed, number) for seed in range(20) for number in range(20)}
    assert len(seeds) == 400
    assert max(seeds) < EVALUATION_SEEDS


def test_a_stopped_run_goes_on_with_the_pools_it_would_have_drawn():
    config = PPOConfig(num_envs=2, steps=1, hidden=4)
    family = dataclasses.replace(FAMILY, arrays=0.5)
    pools, again = (RandomPools(config, family, 4) for _ in range(2))
    assert list(pools.trainers) == ["scalar", "array"]
    assert [pools.renew(k) for k in (0, 1, UPDATES_PER_POOL)] == [True, False, True]
    assert not again.renew(UPDATES_PER_POOL + 3)
    for name, trainer in pools.trainers.items():
        other = again.trainers[name].tasks
        assert trainer.tasks.names == other.names
        assert [g.edges for g in trainer.tasks.graphs] == [g.edges for g in other.graphs]
