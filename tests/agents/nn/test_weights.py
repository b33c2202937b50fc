"""Files of weights, and play with them."""

import contextlib

import equinox as eqx
import jax
import numpy as np
import pytest

from tests.sampling import few
from veenv.agents.config.ppo import PPOConfig
from veenv.agents.nn.networks import GraphNetwork
from veenv.agents.nn.weights import architecture, load_weights, save_weights
from veenv.agents.ppo.trainer import Trainer


@pytest.fixture
def network():
    return GraphNetwork(6, 1, key=jax.random.key(5))


def test_weights_come_back_and_the_folder_of_a_run_stands_for_them(network, tmp_path):
    with pytest.raises(OSError, match=r"weights\.eqx"):
        load_weights(tmp_path)
    save_weights(tmp_path / "weights.eqx", network)
    for path in (tmp_path / "weights.eqx", tmp_path):
        loaded = load_weights(path)
        assert architecture(loaded) == {"hidden": 6, "num_hops": 1, "bfloat16": False}
        assert eqx.tree_equal(loaded, network)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda c: c[: len(c) // 2], "is damaged"),
        (lambda c: c + b"more", "is damaged"),
        (lambda c: b"{}\n" + c, "is not a file of weights"),
        (lambda c: b"\xff\xfe" + c, "is not a file of weights"),
        (lambda c: c.replace(b'"version": 1', b'"version": 9'), "expected version 1, got 9"),
        (lambda c: c.replace(b'"hidden": 6', b'"hidden": 7'), "is damaged"),
        (lambda c: c.replace(b'"hidden": 6', b'"hidden": -6'), "hidden is -6"),
        (lambda c: b"", "is not a file of weights"),
        (lambda c: b"[" * 10**5 + b"\n" + c, "is not a file of weights"),
        (lambda c: b'{"a":' * 10**5 + b"\n" + c, "is not a file of weights"),
        (lambda c: c.replace(b'"version": 1', b'"version": {"a": [%s]}' % b"[]," * 99), "weights"),
        (lambda c: c.replace(b'"num_hops": 1', b'"num_hops": 3'), "is damaged"),
        (lambda c: c.replace(b"'descr'", b"[[[[[[]"), "is damaged"),
        (lambda c: c.replace(b"False, 'sh", b"not " * 5 + b"'sh"), "is damaged"),
    ],
)
def test_damaged_files_are_refused(network, tmp_path, damage, message):
    path = tmp_path / "w"
    save_weights(path, network)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=message) as error:
        load_weights(path)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500


def test_any_change_of_a_byte_is_refused_or_read(network, tmp_path):
    """A ValueError of one line whatever a file holds; never another exception."""
    save_weights(tmp_path / "w", network)
    content, rng = (tmp_path / "w").read_bytes(), np.random.default_rng(0)
    for _ in range(few(50, of=200)):
        changed = bytearray(content)
        for at in rng.integers(0, len(content) // 3, rng.integers(1, 4)):
            changed[at] = rng.choice([0, 10, 39, 40, 45, 91, 123, 255])
        (tmp_path / "w").write_bytes(bytes(changed))
        with contextlib.suppress(ValueError):
            load_weights(tmp_path / "w")


def test_numbers_that_are_not_finite_are_refused(network, tmp_path):
    broken = eqx.tree_at(lambda n: n.embed.bias, network, network.embed.bias + np.nan)
    save_weights(tmp_path / "w", broken)
    with pytest.raises(ValueError, match="is damaged"):
        load_weights(tmp_path / "w")


def test_training_starts_from_given_weights(network, both):
    trainer = Trainer(PPOConfig(num_envs=2, steps=1), both, network=network)
    assert eqx.tree_equal(trainer.init().network, network)
