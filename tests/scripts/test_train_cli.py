"""The command line of training: errors, signals and what a run leaves behind."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agents.cli import TrainArgs, parse, parse_duration, task_names
from agents.config import PPOConfig
from veenv import Order, make_graph, tasks

ROOT = Path(__file__).parents[2]
SMALL = ("--task", "PropaneCombustion", "--num-envs", "4", "--hidden", "8")


def start(*args: str, out: Path) -> subprocess.Popen[str]:
    """Starts the script in the background, with its runs in `out`."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [sys.executable, str(ROOT / "scripts" / "train.py"), *args, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=out.parent,
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--task", "nosuch"], "unknown task 'nosuch'"),
        (["--task", "RoeFluks_1d"], "did you mean RoeFlux_1d"),
        (["--task", "RoeFlux_1d", "--num-envs", "0"], "num_envs must be .* got 0"),
        (["--task", "mlp", "--steps", "-1"], "steps must be .* got -1"),
        (["--task", "mlp", "--time-limit", "soon"], "time_limit must be .* got 'soon'"),
        (["--task", "mlp", "--num-env", "3"], "did you mean --num-envs"),
        (["--task", "mlp", "--hidden", "many"], "--hidden: invalid literal"),
        (["--task", "mlp", "--cost", "time"], "invalid choice 'time'"),
        (["--task", "RoeFlux,roeflux_1d"], "task names RoeFlux_1d twice"),
        ([], "missing option --task"),
    ],
)
def test_wrong_input_is_one_line_and_code_2(args, message, tmp_path):
    out = tmp_path / "runs"
    process = start(*args, out=out)
    said, complaint = process.communicate(timeout=120)
    assert process.returncode == 2
    assert said == ""
    assert complaint.count("\n") == 1
    assert complaint.startswith("error: ")
    assert re.search(message, complaint)
    assert not out.exists()


def test_help_explains_every_option():
    process = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "train.py"), "--help"],
        env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    for option in ("--task", "--steps", "--num-envs", "--seed", "--cost", "--time-limit", "--out"):
        assert re.search(rf"{option} .*?\s[A-Z][a-z]+", process.stdout, re.DOTALL), option


def test_run_leaves_a_proved_order(tmp_path):
    process = start(*SMALL, "--steps", "600", "--seed", "3", out=tmp_path / "runs")
    said, complaint = process.communicate(timeout=300)
    assert process.returncode == 0, complaint
    (folder,) = (tmp_path / "runs" / "PropaneCombustion").iterdir()
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "config.json",
        "metrics.jsonl",
        "order.json",
        "weights.eqx",
        "learning_curve.png",
    }

    task = tasks.get("PropaneCombustion")
    graph = make_graph(task.fun, task.argnums)(*task.example_args())
    order = Order.load(folder / "order.json")
    cost = graph.cost(order.ids_for(graph))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 3
    assert rows[-1]["steps"] == 612
    assert rows[-1]["best_cost"] == {"PropaneCombustion": cost}
    assert min(row["min_cost"]["PropaneCombustion"] for row in rows) == cost
    config = json.loads((folder / "config.json").read_text())
    assert config["ppo"] | {"seed": 3, "num_envs": 4, "steps": 600, "hidden": 8} == config["ppo"]
    assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")

    assert "forward 151, reverse 90, Markowitz 111" in said
    assert re.search(rf"best found \(PPO\) +{cost} +{cost / 90:.3f}\n", said)
    assert re.search(r"largest relative error \S+ \(right\)", said)
    assert "\r" not in said  # plain lines, no progress bar


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_a_run_cleanly(number, tmp_path):
    process = start(*SMALL, "--time-limit", "10m", out=tmp_path / "runs")
    deadline = time.monotonic() + 200
    while not (found := list(tmp_path.glob("runs/*/*/metrics.jsonl"))):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.2)
    process.send_signal(number)
    said, complaint = process.communicate(timeout=120)
    assert process.returncode == 0, complaint
    assert "Traceback" not in complaint
    assert "stopped by" in said
    assert "(right)" in said
    task = tasks.get("PropaneCombustion")
    graph = make_graph(task.fun, task.argnums)(*task.example_args())
    order = Order.load(found[0].with_name("order.json"))
    last = json.loads(found[0].read_text().splitlines()[-1])
    assert graph.cost(order.ids_for(graph)) == last["best_cost"]["PropaneCombustion"]


def test_arguments_become_settings():
    args = parse(TrainArgs, ["--task", "mlp, LSTM", "--learning-rate", "0.1", "--time-limit", "2m"])
    assert task_names(args.task) == ("mlp", "LSTM")
    assert args.ppo == PPOConfig(learning_rate=0.1)
    assert args.seconds == 120.0
    assert TrainArgs("mlp").seconds == 100.0
    assert TrainArgs("mlp", ppo=PPOConfig(steps=5)).seconds is None


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), ("1.5m", 90.0), ("2 h", 7200.0), ("7s", 7.0)]
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-3", "1d", "m", "1e3", "nan"])
def test_wrong_durations(text):
    with pytest.raises(ValueError, match="time_limit must be a positive duration"):
        parse_duration(text)
