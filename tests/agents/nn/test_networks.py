"""The network: equivariant, blind to padding, one set of parameters for any graph."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.oracles.by_numpy import evaluated
from veenv.agents.nn.networks import GraphNetwork, Linear
from veenv.env import Observation, Spec, VertexEnv


def network_of(hops, **options):
    return GraphNetwork(16, hops, key=jax.random.key(0), **options)


def inputs_of(network, obs):
    return evaluated(lambda obs: network.encode(obs))(obs)


def read(network, inputs):
    return evaluated(lambda inputs: network(inputs))(inputs)


@pytest.fixture(scope="module")
def observed(wide_graph):
    """What environments of the graph's own sizes and of larger ones show after a step."""
    own = Spec.of(wide_graph, "multiplications")
    wider = own.padded(num_inputs=7, num_actions=own.num_actions + 6, num_outputs=6)
    envs = [VertexEnv(wide_graph, spec=spec) for spec in (own, wider)]
    return [jax.jit(lambda e=e: e.step(None, e.init(), jnp.int32(2))[0])() for e in envs]


@pytest.mark.parametrize("hops", [0, 1])
def test_permutation_equivariance(hops, observed):
    network, seen = network_of(hops), observed[0]
    slots = len(seen.action_mask)
    p = np.random.default_rng(0).permutation(slots)
    first, ends = (n - slots for n in seen.adjacency.shape)
    rows, columns = np.r_[:first, first + p], np.r_[p, slots : slots + ends]
    shuffled = Observation(seen.adjacency[rows][:, columns], seen.features[p], seen.action_mask[p])
    logits, value = read(network, inputs_of(network, seen))
    other, same = read(network, inputs_of(network, shuffled))
    np.testing.assert_allclose(other, logits[p], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(same, value, rtol=1e-5)
    assert np.ptp(np.asarray(logits)) > 0


@pytest.mark.parametrize("hops", [0, 1])
def test_padding_invariance(hops, observed):
    network = network_of(hops)
    (logits, value), (padded, same) = (read(network, inputs_of(network, x)) for x in observed)
    assert len(padded) == len(logits) + 6
    np.testing.assert_allclose(padded[: len(logits)], logits, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(same, value, rtol=1e-5)


def test_first_policy_is_nearly_uniform(observed):
    network = network_of(1)
    logits, _ = read(network, inputs_of(network, observed[0]))
    assert np.abs(np.asarray(logits)).max() < 0.1


def test_bfloat16_computes_low_and_answers_float32(observed):
    exact, rough = network_of(1), network_of(1, bfloat16=True)
    inputs = inputs_of(exact, observed[0])
    (logits, value), (other, same) = read(exact, inputs), jax.jit(lambda x: rough(x))(inputs)
    assert other.dtype == same.dtype == jnp.float32
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(eqx.filter(rough, eqx.is_array)))
    np.testing.assert_allclose(other, logits, atol=2e-3)
    np.testing.assert_allclose(same, value, rtol=0.1, atol=0.05)
    assert not np.array_equal(other, logits)


def test_linear_is_orthogonal():
    weight = np.asarray(Linear(5, 8, scale=2.0, key=jax.random.key(0)).weight)
    np.testing.assert_allclose(weight @ weight.T, 4.0 * np.eye(5), atol=1e-5)
