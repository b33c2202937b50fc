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


def test_each_seed_learns_what_it_learns_alone_and_goes_on_in_a_folder(both, tmp_path):
    def stop(progress):
        raise KeyboardInterrupt

    given = {"seeds": (5, 0), "folder": tmp_path / "run"}
    first = agents.train_seeds(both, CONFIG, callback=stop, **given)
    found = agents.train_seeds(both, CONFIG, **given)
    alone = agents.train(both, CONFIG)  # seed 0
    run, rows = found.runs[1], first.runs[1].history + found.runs[1].history
    assert [len(first.runs[1].history), len(rows)] == [1, len(alone.history)]
    for ours, theirs in zip(rows, alone.history, strict=True):
        assert ours["steps"] == theirs["steps"]
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
    read = agents.load_weights(tmp_path / "run" / "weights-0.eqx")
    np.testing.assert_array_equal(read.embed.weight, run.network.embed.weight)
    np.testing.assert_allclose(read.embed.weight, alone.network.embed.weight, rtol=1e-4)
    written = Order.load(tmp_path / "run" / "order-wide.json")
    assert written.counts["multiplications"] == min(costs)
    with pytest.raises(ValueError, match="of another list of seeds: it is 5, 0"):
        agents.train_seeds(both, CONFIG, seeds=(5, 1), folder=given["folder"])
    with pytest.raises(ValueError, match="of another list of seeds"):
        agents.train(both, CONFIG, folder=given["folder"])
    kept = tmp_path / "run" / "weights.eqx"
    kept.write_bytes(b"kept")
    assert not agents.train_seeds(both, CONFIG, **given).runs[0].history  # it is used up
    assert kept.read_bytes() == b"kept"
    with pytest.raises(ValueError, match="several different seeds"):
        agents.train_seeds(both, CONFIG, seeds=(5, 5))


@pytest.mark.slow
def test_the_command_writes_what_all_seeds_and_what_each_has_found(tmp_path):
    small = "--num-envs 2 --hidden 4 --timing 0".split()
    out, folder = io.StringIO(), tmp_path / "run"
    args = ["--task", "Robertson", "--seeds", "2", *small, "--folder", str(folder), "--report"]
    assert run_training(parse_training([*args, "--steps", "24"]), out) == 0
    assert run_training(parse_training([*args, "--steps", "48"]), out) == 0
    assert "going on in" in out.getvalue()
    costs = json.loads((folder / "seeds.json").read_text())
    order = Order.load(folder / "order.json")
    assert order.counts["multiplications"] == min(c["Robertson"] for c in costs.values())
    assert parse_training(["--config", str(folder / "config.toml")]).seeds == 2
    assert "by seed" in out.getvalue()
    last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["steps"] >= 48
    each = [seen["mean_cost"]["Robertson"] for seen in last["seeds"].values()]
    assert last["mean_cost"]["Robertson"] == pytest.approx(np.mean(each))
    names = {"report.html", "learning_curve.png", "best.eqx", "weights-0.eqx", "weights-1.eqx"}
    assert names <= {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--task", "mlp", "--distributed"], "--seeds does not go with several processes"),
        (["--task", "random"], "--task random does not go with --seeds"),
    ],
)
def test_what_does_not_go_with_seeds(args, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        run_training(parse_training([*args, "--seeds", "2", "--out", str(tmp_path)]), io.StringIO())
    assert list(tmp_path.iterdir()) == []
