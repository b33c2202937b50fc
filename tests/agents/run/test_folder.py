"""Run folders: what is written, what survives a full disk, how a run goes on."""

import dataclasses
import errno
import json

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from tests.agents.conftest import bits, lasting
from veenv import Order
from veenv.agents.run.checkpoints import Restored
from veenv.agents.run.folder import RunFolder, identity_of
from veenv.agents.run.metrics import Metrics
from veenv.agents.training.best import BestOrders
from veenv.agents.training.learner import Learner
from veenv.agents.training.loop import DivergedError, train
from veenv.env.rewards import classical_cost


def full(*args, **kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(scope="module", name="trainer")
def lasting_trainer(trainer):
    return lasting(trainer, 300)


@pytest.fixture
def open_folder(trainer, both, tmp_path):
    """Opens the run folder of these tests with other best orders, and lists the warnings."""
    said, folders = [], []

    def opened(best):
        for folder in folders:
            folder.close()
        network = trainer.init().network
        identity = identity_of("ppo", "multiplications", network, both)
        folders.append(RunFolder(tmp_path, identity, best, warn=said.append))
        return folders[-1]

    yield opened, said
    for folder in folders:
        folder.close()


def test_orders_in_the_folder_are_never_lost(trainer, both, open_folder):
    """The folder may know a cheaper order than the checkpoint, an expensive or a broken one."""
    opened, said = open_folder
    wide, chain = both.graphs
    reverse = {"ids": list(wide.reverse()), "cost": wide.cost(wide.reverse()), "steps": 70}
    forward = {"ids": list(wide.forward()), "cost": wide.cost(wide.forward()), "steps": 30}
    cheap, expensive = sorted([reverse, forward], key=lambda r: r["cost"])
    assert cheap["cost"] < expensive["cost"]
    chained = {"ids": list(chain.forward()), "cost": chain.cost(chain.forward()), "steps": 5}

    best = BestOrders(both)
    best.merge({"wide": cheap, "chain": chained})
    folder = opened(best)
    folder.resume(trainer.init())
    assert Order.load(folder.order_path("wide")).ids == tuple(cheap["ids"])

    best = BestOrders(both)  # as of an older checkpoint
    best.merge({"wide": expensive})
    opened(best).resume(trainer.init())
    assert best.record() == {"wide": cheap, "chain": chained}
    assert Order.load(folder.order_path("wide")).ids == tuple(cheap["ids"])

    folder.order_path("wide").write_text("{}")
    best = BestOrders(both)
    best.merge({"wide": expensive})
    opened(best).resume(trainer.init())
    assert best.cost("wide") == expensive["cost"]
    assert Order.load(folder.order_path("wide")).ids == tuple(expensive["ids"])
    assert len(said) == 1
    assert "order-wide.json" in said[0]
    assert (folder.path / "order-wide.json.damaged").read_text() == "{}"


def test_rows_that_break_off_leave_no_trace(tmp_path, monkeypatch):
    metrics, file = Metrics(tmp_path), tmp_path / "metrics.jsonl"
    metrics.add({"update": 1, "stats": {"loss": float("nan")}})
    before = file.read_bytes()
    assert json.loads(before) == {"update": 1, "stats": {"loss": None}}
    monkeypatch.setattr("veenv.agents.run.metrics.append_bytes", full)
    with pytest.raises(OSError, match="No space"):
        metrics.add({"update": 2, "stats": {"loss": 1.0}})
    monkeypatch.undo()
    assert file.read_bytes() == before
    metrics.flush()
    again = Metrics(tmp_path)
    assert again.resume(1) == []
    assert again.rows == [{"update": 1, "stats": {"loss": None}}]
    assert file.read_bytes() == before


def test_rows_that_cannot_be_read_are_named_and_kept(tmp_path):
    """The others stay; what is no row of a train step is named by its line."""
    metrics, file = Metrics(tmp_path), tmp_path / "metrics.jsonl"
    rows = [{"update": n, "stats": {"loss": n / 2}} for n in range(1, 10)]
    for row in rows:
        metrics.add(row)
    lines = file.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b"stats", b"st\xfft")
    lines[3:6] = b"[4]\n", b'{"update": NaN}\n', b'{"update": "six"}\n'
    lines[7] = lines[7][:-5]  # and its end of line: the next one cannot be read either
    file.write_bytes(b"".join(lines))
    again = Metrics(tmp_path)
    [said] = again.resume(9)
    assert "metrics.jsonl: line 2: not UTF-8 at byte" in said
    assert "line 4: expected an object of JSON, got list" in said
    assert again.rows == [rows[0], rows[2], rows[6]]
    assert (tmp_path / "metrics.jsonl.damaged").read_bytes() == b"".join(lines)
    again.add({"update": 10, "stats": {"loss": 0.0}})
    last = Metrics(tmp_path)
    assert last.resume(7) == []
    assert [row["update"] for row in last.rows] == [1, 3, 7]


ODD_RUNS = [
    {"best": 3},
    {"best": {"wide": {}}},
    {"best": {"wide": {"ids": "1", "cost": 1, "steps": 1}}},
    {"best": {"wide": {"ids": [1, 1], "cost": 1, "steps": 1}}},
    {"best": {"wide": {"ids": [1], "cost": 1, "steps": 1}}},
    {"seconds": -1},
    {"steps": [3]},
]


@pytest.mark.parametrize("run", ODD_RUNS)
def test_an_odd_record_of_a_run_is_one_error_and_changes_nothing(
    run, trainer, both, open_folder, monkeypatch
):
    opened, said = open_folder
    folder, restored = opened(BestOrders(both)), Restored(3, trainer.init(), run)
    monkeypatch.setattr(folder.checkpoints, "restore", lambda state: restored)
    (folder.path / "metrics.jsonl").write_text('{"update": 5}\n')
    before = {p.name: p.read_bytes() for p in folder.path.iterdir() if p.is_file()}
    with pytest.raises(ValueError, match=r"^checkpoint .*3.checkpoint: "):
        folder.resume(trainer.init())
    assert {p.name: p.read_bytes() for p in folder.path.iterdir() if p.is_file()} == before
    assert said == []


def test_one_process_at_a_time(both, tmp_path):
    first = RunFolder(tmp_path, {}, BestOrders(both))
    with pytest.raises(BlockingIOError, match="is in use by another process"):
        RunFolder(tmp_path, {}, BestOrders(both))
    first.close()
    RunFolder(tmp_path, {}, BestOrders(both)).close()


def test_training_ends_where_no_gradient_is_finite(trainer, both, monkeypatch):
    """The parameters are those before."""
    monkeypatch.setattr("veenv.agents.training.loop.MAX_NOT_FINITE", 3)
    state, seen, learner = trainer.init(), [], Learner(trainer)
    network = eqx.tree_at(lambda n: n.critic.outer.bias, state.network, jnp.array([jnp.nan]))
    state = dataclasses.replace(state, network=network)
    with pytest.raises(DivergedError, match="no gradient of the last 3 train steps was finite"):
        seen.extend(train(learner, state=state))
    assert len(seen) == 3
    assert bits(seen[-1].state)[:-1] == bits(state)[:-1]  # but for the key
    for name, graph in zip(both.names, both.graphs, strict=True):
        assert graph.cost(learner.best[name].ids) == learner.best.cost(name)


def test_score_of_a_checkpoint(trainer, both):
    learner = Learner(trainer)
    measured = next(train(learner)).measured | {"mean_cost": {"wide": 30.0, "chain": 12.0}}
    wide, chain = (classical_cost(graph, "multiplications") for graph in both.graphs)
    np.testing.assert_allclose(learner.score(measured), (30.0 / wide + 12.0 / chain) / 2)
