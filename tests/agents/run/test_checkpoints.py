"""Checkpoints come back bit for bit, or are refused; writing one never harms another."""

import pickle
import resource

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
def said():
    """The warnings of the store."""
    return []


@pytest.fixture
def store(tmp_path, said):
    return Checkpoints(tmp_path / "checkpoints", IDENTITY, keep=2, warn=said.append)


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


def test_a_state_comes_back_bit_for_bit_and_nothing_is_unpickled(store, said, state, monkeypatch):
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, lambda *_: pytest.fail("it was unpickled"))
    assert store.restore(state) is None
    saved = other(state, 1)
    run = {"seconds": 1.5, "best": {"wide": {"ids": [2, 1], "cost": 7, "steps": 3}}}
    assert store.save(12, saved, run)
    restored = store.restore(state)
    assert (restored.number, restored.run) == (12, run)
    assert bits(restored.state) == bits(saved) != bits(state)
    assert jax.tree.structure(restored.state) == jax.tree.structure(state)
    assert said == []


def test_the_newest_and_the_best_are_kept(store, state):
    scores = {1: 5.0, 2: 1.0, 3: 4.0, 4: float("nan"), 5: 3.0}
    best = [store.save(n, state, {}, score) for n, score in scores.items()]
    assert best == [True, True, False, False, False]
    assert store.numbers() == [2, 4, 5]
    assert store.restore(state).number == 5
    assert not Checkpoints(store.folder, IDENTITY, keep=2).save(
        6, state, {}, 2.0
    )  # it reads scores
    assert store.numbers() == [2, 5, 6]
    assert store.save(7, state, {}, 1.0)  # of two equally good ones the newer
    assert store.numbers() == [6, 7]


def test_what_others_put_there_is_left_alone_and_what_is_half_written_goes(store, said, state):
    theirs = ["2024/notes.txt", "notes.txt", "007.checkpoint", "5", "٣.checkpoint"]
    half = ".2.checkpoint.0123.part"
    for name in (*theirs, half):
        (store.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (store.folder / name).write_text(name)
    for number in (1, 2, 3):
        store.save(number, state, {})
    assert store.numbers() == [2, 3] or store.numbers() == [1, 2, 3]
    store.set_aside_after(3)
    assert not (store.folder / half).exists()
    assert all((store.folder / name).read_text() == name for name in theirs)
    assert said == []


def header(change):
    """A change of the first line alone."""

    def apply(content):
        head, _, body = content.partition(b"\n")
        return change(head) + b"\n" + body

    return apply


DAMAGES = {
    "nothing": lambda c: b"",
    "a half": lambda c: c[: len(c) // 2],
    "garbage": lambda c: b"\x80\x04garbage" * 20,
    "one byte less": lambda c: c[:-1],
    "one byte more": lambda c: c + b"x",
    "another number in the record": header(
        lambda h: h.replace(b'"seconds": 2.0', b'"seconds": 3.0')
    ),
    "another number in the arrays": lambda c: c[:-4] + b"\x00\x00\x80\x3f",
    "no object": header(lambda h: b"[1]"),
    "another version": header(lambda h: h.replace(b'"version": 2', b'"version": 9')),
    "depth": header(lambda h: b"[" * 10**5),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_one_before_a_damaged_one_is_used(store, said, state, damage):
    first = other(state, 1)
    store.save(1, first, {"seconds": 2.0})
    store.save(2, other(state, 2), {"seconds": 2.0})
    for number in (2, 1):
        path = store.path(number)
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
        if number == 2:
            restored = store.restore(state)
            assert (restored.number, bits(restored.state)) == (1, bits(first))
            (line,) = said
            assert f"{path} is damaged" in line
            assert "\n" not in line
    with pytest.raises(ValueError, match=r"every checkpoint in .* is damaged"):
        store.restore(state)
    store.set_aside_after(0)
    assert store.numbers() == []
    assert len(list(store.folder.glob("*.damaged"))) == 2


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
    store.save(1, state, {})
    with pytest.raises(ValueError, match=message):
        Checkpoints(store.folder, identity).restore(state)


def test_writes_that_the_system_refuses_leave_earlier_ones(store, state):
    """Files may not grow beyond 300 bytes."""
    saved = other(state, 1)
    store.save(1, saved, {})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            store.save(2, other(state, 2), {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [p.name for p in store.folder.iterdir()] == ["1.checkpoint"]
    assert bits(store.restore(state).state) == bits(saved)


def test_schedules(monkeypatch):
    clock = iter([0.0, 5.0, 10.0, 12.0, 30.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    by_time = Schedule(10.0)
    assert [by_time.is_due(n) for n in range(4)] == [False, True, False, True]
    monkeypatch.undo()
    by_number = Schedule(1e9, 3)
    assert [n for n in range(1, 10) if by_number.is_due(n)] == [3, 6, 9]
