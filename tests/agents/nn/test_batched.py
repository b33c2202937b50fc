"""The network on many steps at once: what `jax.vmap` of it gives, and its gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from veenv.agents.nn.batched import read_steps
from veenv.agents.nn.encoding import GraphInputs, num_features
from veenv.agents.nn.networks import GraphNetwork


def random_inputs(steps, slots, features, seed=0):
    """Steps of which some slots are gone; of the last one all are."""
    rng = np.random.default_rng(seed)
    mask = rng.random((steps, slots)) < 0.7
    mask[-1] = False
    nodes = rng.normal(size=(steps, slots, features)).astype(np.float32) * mask[..., None]
    edges = np.zeros((steps, slots, 0), bool)
    return GraphInputs(jnp.asarray(nodes), jnp.asarray(edges), jnp.asarray(mask))


def random_network(hops, rounds, bfloat16=False):
    """A network none of whose parameters is zero."""
    network = GraphNetwork(8, hops, rounds, bfloat16=bfloat16, key=jax.random.key(0))
    rng = np.random.default_rng(1)
    noise = lambda x: 0.3 * rng.standard_normal(x.shape).astype(np.float32)  # noqa: E731
    return jax.tree.map(lambda x: jnp.asarray(np.asarray(x) + noise(x)), network)


@pytest.mark.parametrize(("hops", "rounds", "bfloat16"), [(1, 0, False), (0, 0, True)])
def test_steps_are_read_as_one_by_one(hops, rounds, bfloat16):
    network = random_network(hops, rounds, bfloat16)
    inputs = random_inputs(5, 7, num_features(hops))
    logit_weights = jnp.asarray(np.random.default_rng(1).normal(size=(5, 7)), jnp.float32)

    def loss(network, read):
        logits, value = read(network, inputs)
        return (jnp.where(inputs.mask, logits * logit_weights, 0) ** 2).sum() + jnp.sin(value).sum()

    readers = read_steps, lambda n, x: jax.vmap(n)(x)
    both = jax.jit(lambda n: [jax.value_and_grad(loss)(n, read) for read in readers])(network)
    tolerance = 5e-2 if bfloat16 else 1e-4
    for a, b in zip(*(jax.tree.leaves(one) for one in both), strict=True):
        scale = float(np.abs(b).max())
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale)
        assert a.dtype == b.dtype == jnp.float32


def test_networks_with_messages_are_read_as_well():
    network = GraphNetwork(4, 1, 1, key=jax.random.key(0))
    inputs = random_inputs(2, 3, num_features(1))
    edges = jnp.ones((2, 3, 3), bool) & inputs.mask[:, None] & inputs.mask[:, :, None]
    inputs = GraphInputs(inputs.nodes, edges, inputs.mask)
    read = jax.jit(lambda n, x: (read_steps(n, x), jax.vmap(n)(x)))
    for a, b in zip(*read(network, inputs), strict=True):
        np.testing.assert_array_equal(a, b)
