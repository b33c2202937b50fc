"""Both modes of resets of the vector environment, and episodes that are cut short."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from veenv.env.adapters import GymVectorEnv

NAME, STEPS = "Robertson", 6


@pytest.fixture(scope="module")
def envs():
    return {
        mode: GymVectorEnv(3, NAME, autoreset_mode=mode)
        for mode in (AutoresetMode.SAME_STEP, "NextStep")
    }


def first_legal(info):
    return info["action_mask"].argmax(-1)


def test_next_step_shows_the_end_and_then_the_beginning(envs):
    env = envs["NextStep"]
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    graph = env.tasks.graphs[0]
    first, info = env.reset()
    for _ in range(2):
        returns = np.zeros(3)
        for step in range(STEPS):
            obs, reward, terminated, truncated, info = env.step(first_legal(info))
            returns += reward
            assert (terminated == (step == STEPS - 1)).all()
            assert not truncated.any()
        assert "final_obs" not in info
        assert not obs["action_mask"].any()
        assert info["_order"].all()
        for order, total, earned in zip(info["order"], info["total"], returns, strict=True):
            assert graph.cost(order) == total == -earned
        obs, reward, terminated, _, info = env.step(np.full(3, -1))  # ignored
        assert (reward == 0).all()
        assert not (terminated.any())
        assert not (info["illegal"].any())
        assert not (info["total"].any())
        np.testing.assert_array_equal(obs["adjacency"], first["adjacency"])


@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
def test_an_illegal_move_ends_one_environment_only(envs, mode):
    env = envs["NextStep" if mode == "NextStep" else AutoresetMode.SAME_STEP]
    _, info = env.reset()
    actions = first_legal(info)
    actions[1] = -1
    _, reward, terminated, _, info = env.step(actions)
    assert terminated.tolist() == [False, True, False]
    assert reward[1] < reward[0]
    _, reward, terminated, _, info = env.step(first_legal(info))
    assert not terminated.any()
    assert (reward[1] == 0) == (mode == "NextStep")
    assert info["action_mask"].sum(-1).tolist() == [STEPS - 2, STEPS - (mode != "NextStep"), 4]


@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
def test_long_episodes_are_truncated(mode):
    env = gymnasium.make_vec(
        f"veenv/{NAME}-v0", num_envs=2, max_episode_steps=4, autoreset_mode=mode
    )
    _, info = env.reset()
    for step in range(4):
        _, _, terminated, truncated, info = env.step(first_legal(info))
        assert not terminated.any()
        assert truncated.all() == (step == 3)
    ended = info["final_info"] if mode == "SameStep" else info
    assert ended["total"].min() > 0
    assert not ended["_order"].any()
    _, _, _, truncated, info = env.step(first_legal(info))
    assert not truncated.any()
    assert info["action_mask"].sum(-1).tolist() == [STEPS - (mode == "SameStep")] * 2
