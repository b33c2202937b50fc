"""TensorBoard and Weights & Biases: what reaches them, and what is said where they are missing."""

import errno
import struct
import sys
import time
from types import SimpleNamespace

import pytest

from veenv.agents.cli.start import open_trackers
from veenv.agents.config.args import TrainArgs
from veenv.agents.run.trackers import Trackers, need

ROW = {"update": 3, "steps": 60, "mean_cost": {"mlp": 7.5}, "stats": {"loss": None, "kl": 0.25}}


def test_what_is_not_installed_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ValueError, match=r"--tensorboard needs tensorboardX .*'veenv\[tensorboard"):
        need("tensorboardX", "tensorboard")


def test_a_tracker_that_fails_does_not_end_the_run():
    seen, said = [], []

    def fail(row):
        raise OSError(errno.ENOSPC, "No space left on device")

    broken = SimpleNamespace(log=fail, close=lambda: seen.append("closed"))
    whole = SimpleNamespace(log=seen.append, close=lambda: None)
    with Trackers([broken, whole], said.append) as trackers:
        trackers.log(ROW)
        trackers.log(ROW)
    assert seen == [ROW, ROW, "closed"]
    assert len(said) == 1
    assert "No space left" in said[0]


def records(path):
    """The records of a TensorBoard event file: length, checksum, bytes, checksum."""
    data, found = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        found.append(data[12 : 12 + length])
        data = data[16 + length :]
    return found


@pytest.mark.clients
def test_tensorboard_gets_every_number(tmp_path):
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    args = TrainArgs("mlp", tensorboard=True)
    with Trackers(open_trackers(args, tmp_path, 0, print), print) as trackers:
        trackers.log(ROW)
    (path,) = (tmp_path / "tensorboard").iterdir()
    events = [Event.FromString(record) for record in records(path)]
    values = {v.tag: (e.step, v.simple_value) for e in events for v in e.summary.value}
    assert values == {
        "update": (60, 3.0),
        "steps": (60, 60.0),
        "mean_cost/mlp": (60, 7.5),
        "stats/kl": (60, 0.25),
    }


@pytest.mark.clients
@pytest.mark.filterwarnings("ignore")  # wandb's own
def test_wandb_works_without_an_account(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    args, said = TrainArgs("mlp", wandb=True), []
    run = tmp_path / "run"
    run.mkdir()
    with Trackers(open_trackers(args, run, 0, said.append), said.append) as trackers:
        trackers.log(ROW)
    (path,) = run.glob("wandb/offline-run-*/*.wandb")
    deadline = time.monotonic() + 30  # a process of its own writes the file
    while b"mean_cost/mlp" not in path.read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    (line,) = said
    assert "No API key" in line
