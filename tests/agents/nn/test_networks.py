"""The network: equivariant, blind to padding, one set of parameters for any graph."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.nn.encoding import GraphInputs
from agents.nn.networks import GraphNetwork, Linear
from veenv.env import Spec, VertexEnv

KINDS = [(0, 0), (1, 0), (1, 2), (0, 1)]


def network_of(kind, **options):
    hops, rounds = kind
    return GraphNetwork(16, hops, rounds, key=jax.random.key(0), **options)


def inputs_of(network, graph, spec=None):
    env = VertexEnv(graph, spec=spec)
    obs, state = env.reset()
    obs, *_ = env.step(None, state, jnp.int32(2))
    return network.encode(obs)


@pytest.mark.parametrize("kind", KINDS)
def test_permutation_equivariance(kind, wide_graph):
    network = network_of(kind)
    inputs = inputs_of(network, wide_graph)
    p = np.random.default_rng(0).permutation(inputs.mask.shape[0])
    edges = inputs.edges[p][:, p] if inputs.edges.size else inputs.edges
    shuffled = GraphInputs(inputs.nodes[p], edges, inputs.mask[p])
    logits, value = network(inputs)
    other, same = network(shuffled)
    np.testing.assert_allclose(other, logits[p], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(same, value, rtol=1e-5)
    assert np.ptp(np.asarray(logits)) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_padding_invariance(kind, wide_graph):
    network = network_of(kind)
    own = Spec.of(wide_graph, "multiplications")
    wider = own.padded(num_inputs=7, num_actions=own.num_actions + 6, num_outputs=6)
    logits, value = network(inputs_of(network, wide_graph))
    padded, same = network(inputs_of(network, wide_graph, wider))
    np.testing.assert_allclose(padded[: own.num_actions], logits, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(same, value, rtol=1e-5)


@pytest.mark.parametrize("kind", [(0, 1), (1, 2)])
def test_messages_reach_the_logits(kind, wide_graph):
    network = network_of(kind)
    inputs = inputs_of(network, wide_graph)
    without = dataclasses.replace(inputs, edges=jnp.zeros_like(inputs.edges))
    assert np.abs(np.asarray(network(inputs)[0] - network(without)[0])).max() > 0


def test_first_policy_is_nearly_uniform(wide_graph):
    network = network_of((1, 0))
    logits, _ = network(inputs_of(network, wide_graph))
    assert np.abs(np.asarray(logits)).max() < 0.1


def test_bfloat16_computes_low_and_answers_float32(wide_graph):
    exact, rough = network_of((1, 1)), network_of((1, 1), bfloat16=True)
    inputs = inputs_of(exact, wide_graph)
    (logits, value), (other, same) = exact(inputs), rough(inputs)
    assert other.dtype == same.dtype == jnp.float32
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(eqx.filter(rough, eqx.is_array)))
    np.testing.assert_allclose(other, logits, atol=2e-3)
    np.testing.assert_allclose(same, value, rtol=0.1, atol=0.05)
    assert not np.array_equal(other, logits)


def test_linear_is_orthogonal():
    weight = np.asarray(Linear(5, 8, scale=2.0, key=jax.random.key(0)).weight)
    np.testing.assert_allclose(weight @ weight.T, 4.0 * np.eye(5), atol=1e-5)
