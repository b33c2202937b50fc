"""A run of the command: its budget, its weights, its orders."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import shutil
import threading
from types import SimpleNamespace

import equinox as eqx
import pytest

from veenv import Order
from veenv.agents.cli.session import run_training
from veenv.agents.config.args import TrainArgs, parse_training
from veenv.agents.config.ppo import PPOConfig
from veenv.agents.nn.weights import load_weights
from veenv.agents.ppo.trainer import Trainer
from veenv.agents.training.loop import train
from veenv.env.factory import task_graph


def test_a_limit_in_a_compilation_leaves_a_proved_classical_order(tmp_path, monkeypatch):
    compiled = threading.Event()
    monkeypatch.setattr(Trainer, "step", lambda *args: compiled.wait(60))
    out = io.StringIO()
    args = TrainArgs("Robertson", out=str(tmp_path), time_limit="0.1s", ppo=PPOConfig(num_envs=4))
    try:
        assert run_training(args, out) == 0
    finally:
        compiled.set()
    said = out.getvalue()
    assert said.count("the time limit, 0.1 s, has passed while the train step was compiled") == 1
    assert "training found no cheaper order than the order Markowitz" in said
    assert "best found" not in said
    assert "(right)" in said
    [folder] = (tmp_path / "Robertson").iterdir()
    order = Order.load(folder / "order.json")
    assert order.counts["multiplications"] == 17
    assert order.found_by == "the order Markowitz"


def test_a_run_is_logged_ends_with_its_budget_and_lends_its_weights(tmp_path, monkeypatch):
    monkeypatch.setattr("veenv.agents.cli.start.need", lambda *args: None)
    logged = []
    tracker = SimpleNamespace(log=logged.append, close=lambda: None)
    monkeypatch.setattr("veenv.agents.cli.start.TensorBoard", lambda *args: tracker)
    out, ppo = io.StringIO(), PPOConfig(num_envs=4, steps=150, hidden=8)
    args = TrainArgs("Robertson", out=str(tmp_path), ppo=ppo, tensorboard=True, timing=0.0)
    assert run_training(args, out) == 0
    (folder,) = (tmp_path / "Robertson").iterdir()
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["steps"] >= 150 > rows[-2]["steps"]
    assert [row["update"] for row in rows] == list(range(1, len(rows) + 1))
    assert [row["steps"] for row in logged] == [row["steps"] for row in rows]

    spent = shutil.copytree(folder, tmp_path / "spent")
    uses = ((), "150 steps"), (("--steps", "999", "--time-limit", "0.01s"), "0.01 s")
    for limit, used in uses:
        again = io.StringIO()
        with monkeypatch.context() as patched:
            patched.setattr(Trainer, "step", lambda *args: pytest.fail("it was compiled again"))
            assert run_training(parse_training(["--resume", str(spent), *limit]), again) == 0
        assert f"this run has used its {used}: give a larger" in again.getvalue()
        assert "compil" not in again.getvalue()

    again = parse_training(["--config", str(folder / "config.toml")])
    assert dataclasses.replace(again, config=None) == args

    begun = []

    def watched(learner, *, state, **options):
        begun.append(state.network)
        return train(learner, state=state, **options)

    monkeypatch.setattr("veenv.agents.cli.session.train", watched)
    more = parse_training(
        ["--config", str(folder / "config.toml"), "--init-from", str(folder / "weights.eqx")]
        + ["--steps", "1", "--seed", "1"]
    )
    assert run_training(more, io.StringIO()) == 0
    assert eqx.tree_equal(load_weights(folder / "weights.eqx"), begun[0])


@pytest.mark.slow
def test_polish_is_a_line_and_an_order_of_its_own(tmp_path):
    out = io.StringIO()
    ppo = PPOConfig(num_envs=2, steps=60, hidden=8)
    args = TrainArgs("PropaneCombustion", out=str(tmp_path), polish="5000", timing=0, ppo=ppo)
    assert run_training(args, out) == 0
    (folder,) = (tmp_path / "PropaneCombustion").iterdir()
    graph = task_graph("PropaneCombustion")
    agent, polished = (
        graph.cost(Order.load(folder / f"{name}.json").ids_for(graph))
        for name in ("order", "order-polished")
    )
    counts = dict(re.findall(r"^(.*\)) +(\d+) +[\d.]+$", out.getvalue(), re.MULTILINE))
    assert counts == {
        "best found (PPO)": str(agent),
        "polished (PPO + search)": str(polished),
    }
    assert polished == 88 < agent
