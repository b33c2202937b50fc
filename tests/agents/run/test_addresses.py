"""Run folders at addresses: the same runs as in folders, with few requests, and nothing lost."""

import contextlib
import json
import runpy
import sys
from pathlib import Path

import equinox as eqx
import pytest

from tests.agents.conftest import bits, lasting
from tests.agents.run.stores import RefusedError, Store
from veenv import Order
from veenv.agents.config.args import TrainArgs
from veenv.agents.files import new_folder
from veenv.agents.nn.weights import load_weights
from veenv.agents.run.folder import RunFolder, identity_of
from veenv.agents.training.learner import Learner
from veenv.agents.training.loop import train
from veenv.orders.documents import as_path, read_bytes

RUN = "s3://bucket/runs/both"
MOST = {"an order": 1, "a checkpoint": 16}
"""Requests of what is written; those of a checkpoint with the metrics and the best weights."""


@pytest.fixture
def store(monkeypatch, tmp_path):
    """The store behind ``s3://``; nothing may be written to the working directory instead."""
    store = Store()
    monkeypatch.setattr("etils.epath.backend.fsspec_backend.fs", lambda path: store)
    monkeypatch.chdir(tmp_path)
    yield store
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def opened(trainer, both, store):
    """Opens the run folder as a process that starts does: the learner, the folder, warnings."""
    trainer, said = lasting(trainer, 300), []
    identity = identity_of("ppo", "multiplications", trainer.init().network, both)

    def opened(path=RUN):
        learner = Learner(trainer)
        return learner, RunFolder(as_path(path), identity, learner.best, warn=said.append)

    return opened, trainer.init(), said


def test_a_run_at_an_address_goes_on_as_if_it_had_not_stopped(opened, store, tmp_path_factory):
    """It is stopped after the fifth update; its last checkpoint is the third's."""
    opened, start, said = opened
    whole = list(train(opened()[0]))

    learner, folder = opened()
    for progress in train(learner, state=start):
        before, orders = len(store.requests), dict(folder._written)
        folder.log(progress.row)
        improved = sum(order is not orders.get(name) for name, order in folder._written.items())
        assert len(store.requests) - before <= MOST["an order"] * improved
        if progress.update in (2, 3):
            before = len(store.requests)
            folder.save_checkpoint(progress, 0.0)
            assert 0 < len(store.requests) - before <= MOST["a checkpoint"]
        if progress.update == 5:
            break

    learner, folder = opened()
    for progress in train(learner, state=folder.resume(start).state):
        folder.log(progress.row)
    folder.save_checkpoint(progress, 0.0)
    folder.write_weights(progress.state.network)
    assert bits(progress.state) == bits(whole[-1].state)
    assert folder.checkpoints.numbers() == [2, 3, progress.update]
    lines = read_bytes(f"{RUN}/metrics.jsonl", 10**6, "metrics").splitlines()
    costs = [json.loads(line)["mean_cost"] for line in lines]
    assert costs == [progress.measured["mean_cost"] for progress in whole]
    assert eqx.tree_equal(load_weights(RUN), progress.state.network)
    for name in learner.best.tasks.names:
        assert Order.load(f"{RUN}/order-{name}.json").ids == learner.best[name].ids

    disk = tmp_path_factory.mktemp("disk")
    for name, content in store.objects.items():
        path = disk / name.removeprefix("bucket/runs/both/")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    _, folder = opened(disk)
    assert bits(folder.resume(start).state) == bits(progress.state)
    folder.close()
    assert said == []


def test_a_store_that_does_not_answer_loses_nothing(opened, store):
    """Neither while a run is under way, nor at any moment of going on."""
    opened, start, said = opened
    learner, folder = opened()
    for progress in train(learner, state=start):
        folder.log(progress.row)
        store.left = 0 if progress.update == 3 else None
        folder.save_checkpoint(progress, 0.0)
        if progress.update == 3:
            break
    failed = ("the metrics", "a checkpoint")
    assert said == [f"cannot write {what}: the store does not answer" for what in failed]
    store.left = None
    folder.save_checkpoint(progress, 0.0)
    assert said[2:] == [f"{what} can be written again" for what in failed]
    said.clear()

    def go_on():
        again, folder = opened()
        restored = folder.resume(start)
        assert (restored.number, len(folder.metrics.rows)) == (3, 3)
        assert bits(restored.state) == bits(progress.state)
        assert again.best.record() == learner.best.record()

    before, store.requests = dict(store.objects), []
    go_on()
    store.once = True
    for left in range(len(store.requests)):
        store.objects, store.left = dict(before), left
        with contextlib.suppress(RefusedError, OSError):
            go_on()
        store.left = None
        go_on()
    assert said == []


def test_what_is_no_address_is_refused(store):
    for wrong, error, message in (
        ("nowhere://a/b", ValueError, "nowhere://a/b: no file system has addresses of this kind"),
        (Path("s3://a/b"), ValueError, "s3:/a/b lacks a slash"),
    ):
        with pytest.raises(error, match=message):
            as_path(wrong)
    with pytest.raises(FileNotFoundError):
        read_bytes("s3://bucket/none", 9, "file")
    as_path("s3://bucket/a").mkdir()
    as_path("s3://bucket/a/b").write_bytes(b"c")
    with pytest.raises(IsADirectoryError, match="file s3://bucket/a is a directory"):
        read_bytes("s3://bucket/a", 9, "file")
    with pytest.raises(ValueError, match="size: 1 bytes, expected at most 0"):
        read_bytes("s3://bucket/a/b", 0, "file")
    with pytest.raises(ValueError, match="wandb writes to folders of the file system alone"):
        TrainArgs("mlp", folder="s3://bucket/a", wandb=True)
    store.left = 0
    with pytest.raises(OSError, match="s3://bucket cannot be reached: RefusedError: the store"):
        as_path("s3://bucket")


def test_runs_that_start_at_once_have_folders_of_their_own(store):
    assert len({new_folder(as_path("s3://bucket/runs")) for _ in range(9)}) == 9


@pytest.mark.slow
def test_commands_take_addresses(store, monkeypatch, capsys):
    def run(script, *args):
        monkeypatch.setattr(sys, "argv", [script, *args])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(Path(__file__).parents[3] / "scripts" / script), run_name="__main__")
        assert ended.value.code in (0, None)
        return capsys.readouterr().out

    small = ["--task", "Robertson", "--num-envs", "4", "--hidden", "8", "--timing", "0"]
    run("train.py", *small, "--steps", "48", "--folder", "s3://bucket/a", "--report")
    said = run("train.py", "--steps", "96", "--folder", "s3://bucket/a")
    assert "going on in s3://bucket/a from train step 2" in said
    assert store.objects["bucket/a/report.html"].startswith(b"<!")
    assert store.objects["bucket/a/learning_curve.png"].startswith(b"\x89PNG")
    said = run("train.py", "--resume", "s3://bucket/a", "--steps", "120")
    assert "going on in s3://bucket/a from train step 4" in said
    assert "Robertson" in run("evaluate.py", "--run", "s3://bucket/a", "--anneal", "0")
    said = run("report.py", "s3://bucket/a", "--rounds", "0", "--out", "s3://bucket/b/page.html")
    assert said == "report: s3://bucket/b/page.html\n"
    assert store.objects["bucket/b/page.html"].startswith(b"<!")
    order = "s3://bucket/order.json"
    run("search.py", "--task", "Robertson", "--budget", "9", "--timing", "0", "--out", order)
    assert "PASS" in run("validate.py", "--order", order, "--rounds", "0")
    said = run(
        "train.py", *small, "--steps", "24", "--out", "s3://bucket/c", "--init-from=s3://bucket/a"
    )
    assert "run folder: s3://bucket/c/Robertson/" in said
