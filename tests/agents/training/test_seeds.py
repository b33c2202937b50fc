"""Seeds side by side: each learns what it would learn alone, and one table has them all."""

from __future__ import annotations

import dataclasses
import io
import json

import numpy as np
import pytest

from tests.agents.conftest import SHARED
from veenv import Order, agents
from veenv.agents.cli.session import run_training
from veenv.agents.config.args import parse_training

CONFIG = dataclasses.replace(SHARED, steps=60, start_updates=0)


def test_each_seed_learns_what_it_learns_alone(both):
    found = agents.train_seeds(both, CONFIG, seeds=(5, 0))
    alone = agents.train(both, CONFIG)  # seed 0
    run = found.runs[1]
    assert [row["steps"] for row in run.history] == [row["steps"] for row in alone.history]
    for ours, theirs in zip(run.history, alone.history, strict=True):
        np.testing.assert_allclose(
            list(ours["mean_cost"].values()), list(theirs["mean_cost"].values()), rtol=1e-6
        )
    assert [o.ids for o in run.orders.values()] == [o.ids for o in alone.orders.values()]
    other = [row["mean_cost"] for row in found.runs[0].history]
    assert other != [row["mean_cost"] for row in run.history]
    lines = str(found).splitlines()
    assert [line.split()[0] for line in lines] == ["task", "wide", "chain"]
    costs = [run.best.cost("wide") for run in found.runs]
    assert f"5: {costs[0]}, 0: {costs[1]}" in lines[1]
    assert np.shape(run.network.embed.weight) == np.shape(alone.network.embed.weight)


@pytest.mark.slow
def test_the_command_writes_the_best_orders(tmp_path):
    small = "--num-envs 2 --steps 24 --hidden 4 --timing 0".split()
    out = io.StringIO()
    args = ["--task", "Robertson", "--seeds", "2", *small, "--out", str(tmp_path)]
    assert run_training(parse_training(args), out) == 0
    [folder] = (tmp_path / "Robertson").iterdir()
    costs = json.loads((folder / "seeds.json").read_text())
    order = Order.load(folder / "order.json")
    assert order.counts["multiplications"] == min(c["Robertson"] for c in costs.values())
    assert parse_training(["--config", str(folder / "config.toml")]).seeds == 2
    assert "by seed" in out.getvalue()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--task", "mlp", "--polish", "1s"], "--seeds does not go with --polish"),
        (["--task", "mlp", "--init-from", "w"], "--seeds does not go with --init-from"),
        (["--task", "random"], "--task random does not go with --seeds"),
    ],
)
def test_what_does_not_go_with_seeds(args, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        run_training(parse_training([*args, "--seeds", "2", "--out", str(tmp_path)]), io.StringIO())
    assert list(tmp_path.iterdir()) == []
