"""Networks of the user's own: trained, saved, read again and evaluated like ours."""

from __future__ import annotations

import dataclasses
import io

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.agents.conftest import SHARED
from veenv import agents
from veenv.agents.cli.session import run_training
from veenv.agents.config.args import parse_training
from veenv.agents.nn.networks import GraphNetwork
from veenv.env import TaskDistribution

SMALL = dataclasses.replace(SHARED, steps=60)


class Wrapped(eqx.Module):
    """A module that is our network; beside arrays it has what is no array."""

    inner: GraphNetwork
    activation: object = jax.nn.relu

    def __call__(self, seen):
        return self.inner(seen)


def init(key, seen):
    size = seen.features.shape[-1]
    return {"scores": 0.1 * jax.random.normal(key, (size,)), "worth": jnp.zeros(size)}


def apply(weights, seen):
    return seen.features @ weights["scores"], seen.features.sum(0) @ weights["worth"]


@pytest.fixture(scope="module")
def run(both, tmp_path_factory):
    return agents.train(both, SMALL, network=(init, apply), folder=tmp_path_factory.mktemp("run"))


def costs_of(run):
    return [(row["mean_cost"], row["min_cost"]) for row in run.history]


def test_a_module_that_is_our_network_learns_what_ours_learns(both):
    network = GraphNetwork(8, key=jax.random.key(3))
    ours, own = (agents.train(both, SMALL, network=n) for n in (network, Wrapped(network)))
    assert costs_of(ours) == costs_of(own)
    pairs = zip(jax.tree.leaves(ours.network), jax.tree.leaves(own.network), strict=True)
    for left, right in pairs:
        np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-4)


def test_two_functions_are_a_network(run, both):
    before = init(jax.random.split(jax.random.key(SMALL.seed))[0], both.env.reset()[0])
    assert jax.tree.map(jnp.shape, run.network.weights) == jax.tree.map(jnp.shape, before)
    for name, order in run.orders.items():
        graph = both.graphs[both.names.index(name)]
        assert graph.cost(order.ids) == order.counts["multiplications"]
    found = veenv.evaluate(run.network, both, samples=3)
    assert [row.task for row in found.rows] == list(both.names)
    assert run.evaluate(samples=3).rows[0].costs == found.rows[0].costs
    assert not jnp.allclose(run.network.weights["worth"], 0)


def test_weights_come_back_in_anybodys_code(run):
    path = run.folder / "weights.eqx"
    with path.open("rb") as file:
        assert file.readline().startswith(b'{"format": "veenv-weights"')
        arrays = [np.load(file) for _ in jax.tree.leaves(run.network.weights)]
    for like in (run.network.weights, run.network):
        read = agents.load_weights(path, like=jax.tree.map(jnp.zeros_like, like))
        for leaves in zip(arrays, jax.tree.leaves(read), jax.tree.leaves(like), strict=True):
            np.testing.assert_array_equal(leaves[0], leaves[1])
            np.testing.assert_array_equal(leaves[1], leaves[2])
    with pytest.raises(ValueError, match=r"network of your own: load_weights\(path, like=network"):
        veenv.evaluate(str(run.folder), "Robertson")
    with pytest.raises(ValueError, match="is damaged, or of another network"):
        agents.load_weights(path, like={"scores": jnp.zeros(3), "worth": jnp.zeros(3)})


def test_a_run_goes_on_with_its_own_network(run, both):
    with pytest.raises(ValueError, match="another network"):
        agents.train(both, SMALL, folder=run.folder)
    longer = dataclasses.replace(SMALL, steps=run.steps + 1)
    more = agents.train(both, longer, network=(init, apply), folder=run.folder)
    assert more.history[0]["update"] == run.history[-1]["update"] + 1


def test_networks_read_what_the_environment_shows(chain_graph):
    def read(weights, seen):
        slots = seen.nodes[1:][: len(seen.action_mask)]
        return slots @ weights, slots.sum()

    tasks = TaskDistribution.of({"chain": chain_graph}, normalise=True).observing("graph")
    network = (lambda key, seen: jnp.zeros(8), read)
    run = agents.train(tasks, dataclasses.replace(SMALL, num_envs=2, steps=12), network=network)
    assert chain_graph.cost(run.order.ids) == run.best.cost("chain")
    assert veenv.evaluate(run.network, tasks, samples=2).rows[0].task == "chain"


@pytest.mark.parametrize(
    ("network", "error", "message"),
    [
        (lambda seen: (seen, seen), TypeError, "expected a pytree with arrays that is called"),
        ((init, apply, init), TypeError, "expected a pytree with arrays"),
        ((init, lambda w, seen: (w["worth"], 0.0)), ValueError, r"\(\(7,\), \(\)\); got \(\(8,\)"),
        ((init, lambda w, seen: w["worth"]), ValueError, r"one value, of shapes .* got \(8,\)"),
    ],
)
def test_what_is_no_network_is_refused(both, network, error, message):
    with pytest.raises(error, match=message):
        agents.train(both, SMALL, network=network)


OWN = (init, apply)
"""Two functions, as a command names them."""


@pytest.mark.slow
def test_the_command_names_a_network(tmp_path):
    args = "--task Robertson --num-envs 2 --steps 24 --timing 0".split()
    args += ["--network", f"{__name__}:OWN", "--folder", str(tmp_path / "run")]
    out = io.StringIO()
    assert run_training(parse_training(args), out) == 0, out.getvalue()
    weights = {"scores": jnp.zeros(8), "worth": jnp.zeros(8)}
    read = agents.load_weights(tmp_path / "run", like=weights)
    assert jax.tree.map(jnp.shape, read) == jax.tree.map(jnp.shape, weights)
