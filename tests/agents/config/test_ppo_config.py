"""Every setting is checked, and explained."""

import dataclasses
import inspect
import re

import pytest

from veenv.agents.config.ppo import PPOConfig

WRONG = {
    "seed": [-1, 2**32, 1.5],
    "num_envs": [0, -3, True, 2.0],
    "steps": [0, -1],
    "learning_rate": [0.0, -1e-3, float("nan"), float("inf")],
    "final_learning_rate": [-1e-9, float("nan")],
    "ent_coef": [-0.1, float("nan")],
    "final_ent_coef": [-0.1],
    "gae_lambda": [-0.1, 1.1],
    "clip_eps": [0.0],
    "vf_coef": [-1.0],
    "max_grad_norm": [0.0],
    "update_epochs": [0],
    "learned_share": [0.0, 1.1, float("nan")],
    "num_minibatches": [0],
    "target_kl": [0.0],
    "window": [-1, 2.5],
    "hidden": [0],
    "num_hops": [-1, 4],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in WRONG.items() for v in vs])
def test_wrong_values_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=rf"^{name} must be .*, got {re.escape(repr(value))}$"):
        PPOConfig(**{name: value})


def test_every_field_is_checked_and_documented():
    names = {f.name for f in dataclasses.fields(PPOConfig)}
    assert names - set(WRONG) == {"bfloat16", "from_nothing"}
    source = inspect.getsource(PPOConfig)
    for name in names:
        assert re.search(rf'    {name}: [^\n]*\n    """[^"]+\."""', source), name
