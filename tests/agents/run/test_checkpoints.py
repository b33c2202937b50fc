"""Checkpoints come back bit for bit, or are refused; writing one never harms another."""

import errno
import gc
import json
import pickle
import resource
import shutil
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from veenv.agents.nn.networks import GraphNetwork
from veenv.agents.ppo.updates import TrainState
from veenv.agents.run import checkpoints as module
from veenv.agents.run.checkpoints import Checkpoints, Schedule

IDENTITY = {"task": ["wide"], "network": {"hidden": 8, "num_hops": 1}}


@pytest.fixture(scope="module")
def state():
    network = GraphNetwork(8, 1, key=jax.random.key(0))
    moments = optax.scale_by_adam().init(eqx.filter(network, eqx.is_array))
    return TrainState(network, moments, jax.random.key(7), jnp.int32(3))


@pytest.fixture
def store(tmp_path):
    said = []
    store = Checkpoints(tmp_path / "checkpoints", IDENTITY, keep=2, warn=said.append)
    return store, said


def other(state, seed):
    """The same tree with other values of the same types, drawn here."""
    rng = np.random.default_rng(seed)

    def draw(leaf):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.key(seed)
        if leaf.dtype == jnp.int32:
            return jnp.asarray(rng.integers(0, 99, leaf.shape), jnp.int32)
        return jnp.asarray(rng.standard_normal(leaf.shape), leaf.dtype)

    return jax.tree.map(draw, state)


def bits(tree):
    """Type and bytes of every leaf."""
    leaves = jax.tree.leaves(tree)
    keys = [jnp.issubdtype(x.dtype, jax.dtypes.prng_key) for x in leaves]
    arrays = [jax.random.key_data(x) if k else x for x, k in zip(leaves, keys, strict=True)]
    return [(str(x.dtype), x.shape, np.asarray(x).tobytes()) for x in arrays]


def damage_all(folder, change):
    """Applies a change to the bytes of every file that is not empty."""
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_size:
            path.write_bytes(change(path.read_bytes()))


def test_a_state_comes_back_bit_for_bit(store, state):
    store, said = store
    saved = other(state, 1)
    run = {"seconds": 1.5, "best": {"wide": {"ids": [2, 1], "cost": 7, "steps": 3}}}
    assert store.save(12, saved, run)
    restored = store.restore(state)
    assert restored.number == 12
    assert restored.run == run
    assert bits(restored.state) == bits(saved)
    assert bits(saved) != bits(state)
    assert jax.tree.structure(restored.state) == jax.tree.structure(state)
    assert said == []


def test_there_may_be_none(store, state):
    store, _ = store
    assert store.restore(state) is None
    assert store.numbers() == []


def test_the_newest_and_the_best_are_kept(store, state):
    store, _ = store
    scores = {1: 5.0, 2: 1.0, 3: 4.0, 4: float("nan"), 5: 3.0}
    assert [store.save(n, state, {}, score) for n, score in scores.items()] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert store.numbers() == [2, 4, 5]
    assert store.restore(state).number == 5
    assert store.save(6, state, {}, 1.0)  # of two equally good ones the newer
    assert store.numbers() == [5, 6]


def test_what_is_half_written_does_not_count(store, state):
    store, said = store
    store.save(1, state, {})
    shutil.copytree(store.folder / "1", store.folder / "2.orbax-checkpoint-tmp")
    assert store.restore(state).number == 1
    store.set_aside_after(1)
    assert [p.name for p in store.folder.iterdir()] == ["1"]
    assert said == []


def test_what_others_put_there_is_left_alone(store, state):
    """Folders of any name, and files: whatever is saved, restored or set aside around them."""
    store, said = store
    theirs = ["2024/notes.txt", "notes/a.txt", "my.orbax-checkpoint-tmp/a", "007/a", "5", "٣/a"]
    for name in theirs:
        (store.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (store.folder / name).write_text(name)
    for number in (1, 2, 3, 4, 9):
        store.save(number, state, {})
    with pytest.raises(FileExistsError, match=r"2024 is no checkpoint"):
        store.save(2024, state, {})
    DAMAGES["halves"](store.folder / "9")
    assert store.numbers() == [3, 4, 9] or store.numbers() == [4, 9]
    assert store.restore(state).number == 4
    store.set_aside_after(4)
    assert store.numbers()[-1] == 4
    assert (store.folder / "9.damaged" / "record").is_dir()
    assert store.save(9, state, {}) is not None
    assert all((store.folder / name).read_text() == name for name in theirs)
    assert len(said) == 1


DAMAGES = {
    "empty files": lambda folder: damage_all(folder, lambda c: b""),
    "halves": lambda folder: damage_all(folder, lambda c: c[: len(c) // 2]),
    "garbage": lambda folder: damage_all(folder, lambda c: b"\x80\x04garbage" * 20),
    "arrays halved": lambda folder: damage_all(folder / "arrays", lambda c: c[: len(c) // 2]),
    "arrays gone": lambda folder: shutil.rmtree(folder / "arrays"),
    "record gone": lambda folder: shutil.rmtree(folder / "record"),
    "record of another kind": lambda folder: (folder / "record" / "metadata").write_text("[1]"),
    "empty folder": lambda folder: [shutil.rmtree(folder), folder.mkdir()],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_one_before_a_damaged_one_is_used(store, state, damage):
    store, said = store
    first = other(state, 1)
    store.save(1, first, {"seconds": 1.0})
    store.save(2, other(state, 2), {"seconds": 2.0})
    DAMAGES[damage](store.folder / "2")
    restored = store.restore(state)
    assert restored.number == 1
    assert bits(restored.state) == bits(first)
    (line,) = said
    assert f"{store.folder / '2'} is damaged" in line
    assert "\n" not in line
    DAMAGES[damage](store.folder / "1")
    with pytest.raises(ValueError, match=r"every checkpoint in .* is damaged"):
        store.restore(state)


def test_a_changed_number_is_noticed(store, state):
    """Even where every file can be read."""
    store, said = store
    store.save(1, state, {"seconds": 1.0})
    path = store.folder / "1" / "record" / "metadata"
    path.write_text(path.read_text().replace('"seconds": 1.0', '"seconds": 2.0'))
    with pytest.raises(ValueError, match="damaged"):
        store.restore(state)
    assert "digest" in said[0]


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        (IDENTITY | {"task": ["mlp", "LSTM"]}, "another task: it is wide, this run's is mlp, LSTM"),
        (
            IDENTITY | {"network": {"hidden": 16, "num_hops": 1}},
            "another network: it is hidden 8, this run's is hidden 16",
        ),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(store, state, identity, message):
    store, _ = store
    store.save(1, state, {})
    with pytest.raises(ValueError, match=message):
        Checkpoints(store.folder, identity).restore(state)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Orbax's threads
def test_writes_that_the_system_refuses_leave_earlier_ones(store, state):
    """Files may not grow beyond 300 bytes."""
    store, _ = store
    saved = other(state, 1)
    store.save(1, saved, {})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, hard))
    try:
        with pytest.raises(OSError, match="2"):
            store.save(2, other(state, 2), {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    gc.collect()
    assert store.numbers() == [1]
    assert bits(store.restore(state).state) == bits(saved)
    assert store.save(3, saved, {})
    assert sorted(p.name for p in store.folder.iterdir()) == ["1", "3"]


def test_a_full_disk_is_noticed_beforehand(store, state, monkeypatch):
    store, _ = store
    store.save(1, state, {})
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2**20))
    with pytest.raises(OSError, match="No space left on device"):
        store.save(2, state, {})
    assert [p.name for p in store.folder.iterdir()] == ["1"]


def test_a_write_that_breaks_off_leaves_earlier_ones(store, state, monkeypatch):
    store, _ = store
    store.save(1, state, {})

    def full(path, state, record):
        path.with_name(f"{path.name}.orbax-checkpoint-tmp").mkdir()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "write_checkpoint", full)
    with pytest.raises(OSError, match="No space left"):
        store.save(2, state, {})
    assert [p.name for p in store.folder.iterdir()] == ["1"]


def test_nothing_in_a_checkpoint_is_unpickled(store, state, monkeypatch):
    store, _ = store
    store.save(1, state, {})

    def refuse(*args, **kwargs):
        raise AssertionError("a checkpoint was unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    assert bits(store.restore(state).state) == bits(state)
    json.loads((store.folder / "1" / "record" / "metadata").read_text())


def test_schedules(monkeypatch):
    clock = iter([0.0, 5.0, 10.0, 12.0, 30.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    by_time = Schedule(10.0)
    assert [by_time.is_due(n) for n in range(4)] == [False, True, False, True]
    monkeypatch.undo()
    by_number = Schedule(1e9, 3)
    assert [n for n in range(1, 10) if by_number.is_due(n)] == [3, 6, 9]
