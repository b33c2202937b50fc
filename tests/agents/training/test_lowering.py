"""Whole train steps lower for accelerators that are not here."""

import importlib.util

import jax
import numpy as np
import pytest

from veenv.agents.config.ppo import PPOConfig
from veenv.agents.config.search import SearchConfig
from veenv.agents.ppo.trainer import Trainer

CONFIG = PPOConfig(num_envs=4, hidden=8, bfloat16=True)
PLATFORMS = ("tpu", "cuda", "cpu")


def ppo(tasks):
    return Trainer(CONFIG, tasks)


def alphazero(tasks):
    from veenv.agents.alphazero.alphazero import make_trainer

    return make_trainer(CONFIG, SearchConfig(4, 4), tasks)


needs_mctx = pytest.mark.skipif(importlib.util.find_spec("mctx") is None, reason="needs mctx")


@pytest.mark.parametrize("make", [ppo, pytest.param(alphazero, marks=needs_mctx)])
def test_train_steps_lower_for_accelerators(make, both):
    trainer = make(both)
    inputs = (trainer.init(), np.float32(0.0), trainer._params)
    exported = jax.export.export(trainer._step, platforms=PLATFORMS)(*inputs)
    assert exported.platforms == PLATFORMS
    shapes = jax.tree.leaves(jax.eval_shape(trainer._step, *inputs))
    assert [(x.shape, x.dtype) for x in exported.out_avals] == [(x.shape, x.dtype) for x in shapes]
