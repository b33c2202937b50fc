"""Many devices and many processes give what one gives."""

import dataclasses
import json
import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import jax
import numpy as np
import pytest

from scripts.benchmarks.devices import exchanges
from tests.agents.conftest import SHARED
from tests.agents.six_devices import run
from tests.paths import ROOT
from veenv.agents.devices import (
    ScaleConfig,
    own_key,
    place,
)
from veenv.agents.nn.weights import load_weights
from veenv.agents.ppo.trainer import Trainer
from veenv.agents.training.inputs import Played
from veenv.agents.training.learner import Learner
from veenv.agents.training.loop import TrainProgress, train

# Sums are added up in another order; Adam makes more of it where a gradient is nearly zero.
TOLERANCE = 2e-4
TASK = "--task=Robertson"


def environment(num_devices: int) -> dict[str, str]:
    flags = f"--xla_force_host_platform_device_count={num_devices}"
    return {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Results of `six_devices.py`, by file name."""
    return results(tmp_path_factory.mktemp("runs"))


def results(out: Path, *args: str) -> dict[str, dict[str, np.ndarray]]:
    script = Path(__file__).parent / "six_devices.py"
    subprocess.run([sys.executable, script, out, *args], env=environment(8), check=True)
    return {path.stem: dict(np.load(path)) for path in out.iterdir()}


@pytest.mark.whole
def test_six_devices_train_as_one(runs, trainer):
    one = run(trainer, trainer.init())
    assert (one["shards"], runs["several"]["shards"]) == (1, 6)
    assert_trained_alike(one, runs["several"], runs["other"])


def assert_trained_alike(one, several, other):
    for step in range(3):
        np.testing.assert_array_equal(one[f"order{step}"], several[f"order{step}"])
        np.testing.assert_array_equal(one[f"mean{step}"], several[f"mean{step}"])
    ends = [name for name in one if name.startswith("end")]
    for name in ends:
        np.testing.assert_allclose(several[name], one[name], atol=TOLERANCE)
    # Training moves the parameters, and another seed leads elsewhere, by far more than that.
    moved = max(abs(one[name] - one[name.replace("end", "start")]).max() for name in ends)
    apart = max(abs(one[name] - other[name]).max() for name in ends)
    assert min(moved, apart) > 20 * TOLERANCE


@pytest.mark.whole
def test_an_update_exchanges_gradients_and_nothing_else(runs):
    assert_exchanges_gradients(runs, 6)


@pytest.mark.devices
@pytest.mark.skipif(find_spec("libtpu") is None, reason="needs libtpu")
def test_an_update_on_tpus_exchanges_gradients_and_nothing_else(tmp_path, trainer):
    found = results(tmp_path, "tpu")
    start = {f"start{i}": x for i, x in enumerate(jax.tree.leaves(trainer.init().network))}
    assert_exchanges_gradients({**found, "several": start}, 4)


def assert_exchanges_gradients(runs, num_devices):
    parameters = sum(x.nbytes for name, x in runs["several"].items() if name.startswith("start"))
    reduced, others = [], []
    for exchange in exchanges(str(runs["text"]["text"])):
        (reduced if exchange.name == "all-reduce" else others).append(exchange)
    assert parameters <= sum(exchange.num_bytes for exchange in reduced) <= 2 * parameters
    # Where each of the two graphs has its cheapest episode: a place and a cost from each device.
    assert {exchange.name for exchange in others} <= {"all-gather"}
    assert sum(exchange.num_bytes for exchange in others) <= 2 * 2 * 4 * num_devices


@pytest.mark.whole
def test_placements(runs):
    """All devices that divide the environments; what cannot be shared evenly is an error."""
    np.testing.assert_array_equal(runs["placements"]["found"], [8, 6, 7])
    assert list(runs["placements"]["errors"]) == [
        "12 environments cannot be shared evenly by 8 devices; choose 8 or 16",
        "devices is 9, but there are only 8",
        "4 environments cannot be shared evenly by 8 devices; choose 8",
    ]


@pytest.mark.whole
def test_every_device_shuffles_by_itself(runs):
    assert len(set(runs["placements"]["draws"].tolist())) == 6
    key = jax.random.key(0)
    alone = place(1).apart(lambda key: jax.random.bits(own_key(key)), [None])
    assert alone(key) == jax.random.bits(key)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"devices": 0}, "devices must be an integer of at least 1, got 0"),
        ({"coordinator": "127.0.0.1:1"}, "go together"),
        ({"num_processes": 2, "process_id": 0}, "go together"),
        (
            {"coordinator": "a:1", "num_processes": 2, "process_id": 2},
            "process_id must be from 0 to num_processes - 1 = 1, got 2",
        ),
        (
            {"coordinator": "a:1", "num_processes": 2, "process_id": 0, "distributed": True},
            "without distributed",
        ),
    ],
)
def test_settings_are_checked(settings, text):
    with pytest.raises(ValueError, match=text):
        ScaleConfig(**settings)


# One minibatch: devices shuffle their own steps, so smaller ones depend on their number.
CONFIG = dataclasses.replace(SHARED, num_envs=4, update_epochs=2, seed=5, steps=120)


def command(out: Path, *options: str) -> list[str]:
    """Trains with the settings of `CONFIG`."""
    settings = ["--num-envs=4", "--hidden=8", "--learning-rate=1e-3", "--seed=5", "--steps=120"]
    settings += ["--num-minibatches=1", "--learned-share=1", "--timing=0", f"--out={out}"]
    return [sys.executable, "scripts/train.py", TASK, *settings, *options]


def train_together(*commands: list[str]) -> list[str]:
    """Trains in processes of two devices each; what each of them says."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    group = [f"--num-processes={len(commands)}", f"--coordinator={address}"]
    processes = [
        subprocess.Popen(
            [*command, *group, f"--process-id={i}"],
            cwd=ROOT,
            env=environment(2),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for i, command in enumerate(commands)
    ]
    try:
        said = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], said
    return said


@pytest.fixture(scope="module")
def alone():
    """What one process of one device sees after every train step."""
    tasks = Played.named("Robertson").tasks
    return list(train(Learner(Trainer(CONFIG, tasks))))


def assert_ends_alike(folder: Path, alone: list[TrainProgress]) -> None:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["mean_cost"] for row in rows] == [seen.measured["mean_cost"] for seen in alone]
    ends = load_weights(folder / "weights.eqx"), alone[-1].state.network
    for a, b in zip(*map(jax.tree.leaves, ends), strict=True):
        np.testing.assert_allclose(a, b, atol=TOLERANCE)


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path, alone):
    said = train_together(*[command(tmp_path / str(i)) for i in range(2)])
    # Only the first process reports and writes.
    assert "run folder" in said[0]
    assert "run folder" not in said[1]
    assert [path.name for path in tmp_path.iterdir()] == ["0"]
    (folder,) = (tmp_path / "0" / "Robertson").iterdir()
    assert_ends_alike(folder, alone)
    assert len(alone) == 5
