"""Random graphs inside of jit, against the oracle that plays edges."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.edge_graph import EdgeGraph
from tests.sampling import spared
from veenv.env import random_params
from veenv.env.random_play import random_episode
from veenv.graph.graph import COST_MODELS

SIZES = {"num_inputs": 3, "num_actions": 20, "num_outputs": 4}


def edges_of(adjacency) -> EdgeGraph:
    """The graph that an observation shows; columns are slots, then outputs."""
    inputs = SIZES["num_inputs"]
    edges = {(int(r), inputs + int(c)) for r, c in zip(*np.nonzero(adjacency), strict=True)}
    nodes = adjacency.shape[1]
    ends = range(inputs + SIZES["num_actions"], inputs + nodes)
    return EdgeGraph(inputs, frozenset(edges), tuple(ends))


@pytest.mark.parametrize("cost", spared(COST_MODELS, "operations"))
def test_they_are_played_as_the_oracle_plays_them(cost):
    spec = veenv.make("Robertson", cost=cost).spec.padded(**SIZES)
    small = veenv.make(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0, cost=cost, spec=spec)

    @jax.jit
    def play(key):
        params = random_params(key, spec)
        obs, _ = small.reset(None, params)
        return obs, params, random_episode(small, key, params)

    seen, params, states = jax.vmap(play)(jax.random.split(jax.random.key(0), 6))
    assert len({np.asarray(a).tobytes() for a in seen.adjacency}) == 6
    for k in range(6):
        graph = edges_of(np.asarray(seen.adjacency[k]))
        assert graph.eliminable == tuple(range(1, 21))  # all are on paths
        assert {u for u, _ in graph.edges} == set(range(23))  # all are used
        order = [int(slot) + 1 for slot in states.order[k]]
        total = graph.cost(order, cost)
        assert int(states.cost[k]) == total < float(params.worst_total[k])
        feature = np.asarray(seen.features[k])
        expected = veenv.make(graph.graph(), cost=cost, spec=spec).reset()[0]
        np.testing.assert_allclose(feature, expected.features, rtol=1e-5)


def test_the_mean_number_of_uses_follows():
    spec = veenv.make("RoeFlux_1d").spec
    keys = jax.random.split(jax.random.key(1), 20)
    for fan_out in (1.0, 1.6):
        params = jax.vmap(lambda key, f=fan_out: random_params(key, spec, fan_out=f))(keys)
        words = np.asarray(params.initial.present)
        uses = np.bitwise_count(words).sum() / (len(keys) * spec.rows)
        assert fan_out - 0.1 < uses < fan_out + 0.5


@pytest.mark.parametrize("cost", spared(COST_MODELS, "operations"))
@pytest.mark.parametrize("wide", spared((False, True), False))
def test_their_rewards_are_measured_as_the_environment_does(cost, wide):
    """Against graphs of the same edges that are encoded on the host."""
    spec = replace(veenv.make("Robertson", cost=cost).spec.padded(**SIZES), wide=wide)
    ids = (7, *range(1, 7), *range(20, 7, -1))
    for k, shaping in enumerate([None, "forward", "reverse", "markowitz", "classical", ids]):
        options = {"cost": cost, "spec": spec, "normalise": k % 2 == 0}
        small = veenv.make(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0, **options)
        small.shaping = shaping  # ids are of the random graphs, not of this one
        params = random_params(jax.random.key(k), small)
        adjacency = np.asarray(small.reset(None, params)[0].adjacency)
        game = veenv.make(edges_of(adjacency).graph(), **options, shaping=shaping)
        expected = game.default_params
        np.testing.assert_array_equal(params.reference, expected.reference)
        np.testing.assert_array_equal(params.scale, expected.scale)
        returned = small.transition(small.init(params), 3, params)[1]
        assert float(returned) == float(game.transition(game.init(), 3)[1])


def test_shaping_by_the_order_of_one_graph_is_refused():
    order = veenv.best_order("Robertson")
    with pytest.raises(ValueError, match="an Order is of one graph"):
        random_params(jax.random.key(0), veenv.make("Robertson", shaping=order))
    shaped = veenv.make("Robertson", shaping="reverse")
    shaped.shaping = (1, 2)
    with pytest.raises(ValueError, match="misses"):
        random_params(jax.random.key(0), shaped)
