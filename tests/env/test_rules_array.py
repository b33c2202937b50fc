"""Every step on graphs of arrays agrees with the host's structure algebra."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.env.games import expected_features, new_game, play
from tests.sampling import few, spared
from veenv.env import Spec, VertexEnv
from veenv.env.factory import make
from veenv.env.rules_array import CHUNK, OBSERVED_CHUNK
from veenv.graph.graph import COST_MODELS
from veenv.graph.linearisation import make_graph


def four_axes(x, y):
    """Variables of up to four axes, contracted, transposed, sliced, summed and summed up."""
    z = jnp.einsum("ijkl,jlm->mikj", jnp.sin(x), y)
    z = jnp.cumsum(z * jnp.transpose(z, (0, 2, 1, 3)), axis=1)
    w = z[:, 1:, :, :] + y.sum()
    return jnp.tanh(w.reshape(-1, 2)) * w.mean(), z.max(axis=(1, 2)), z


def fan(x):
    """A last vertex with many neighbours on both sides, more than one chunk of pairs."""
    middle = sum(jnp.sin(k * x[k]) for k in range(len(x)))
    return tuple(middle ** (k + 2) for k in range(24))


FUNCTIONS = {
    "four_axes": (four_axes, (jnp.ones((2, 2, 2, 3)), jnp.ones((2, 3, 2)))),
    "fan": (lambda *x: fan(x), tuple(jnp.ones(2) for _ in range(12))),
}


def graph_of_function(name):
    fun, point = FUNCTIONS[name]
    with jax.numpy_dtype_promotion("standard"):
        return make_graph(fun, tuple(range(len(point))))(*point)


@pytest.mark.parametrize(
    ("name", "cost"),
    spared(itertools.product(FUNCTIONS, COST_MODELS), ("four_axes", "operations")),
)
def test_random_episodes_of_functions(name, cost):
    env = VertexEnv(graph_of_function(name), cost)
    step, rng = jax.jit(env.step), np.random.default_rng(1)
    for _ in range(few(1, of=2)):
        play(env, env.graph, env.default_params, rng, step=step, observe_every=3)


def test_a_vertex_with_more_pairs_than_a_chunk():
    graph = graph_of_function("fan")
    env = VertexEnv(graph)
    obs, state = env.reset()
    step, pairs, game = jax.jit(env.step), [], new_game(graph, env.cost)
    slots = jnp.arange(env.num_actions)
    rewards = jax.jit(jax.vmap(lambda slot: env.step(None, state, slot)[2]))(slots)
    np.testing.assert_array_equal(-rewards, [game.price(graph.node(v)) for v in graph.eliminable])
    order = graph.markowitz()
    for vertex, cost in zip(order, graph.costs(order), strict=True):
        slot = graph.eliminable.index(vertex)
        expected = expected_features(game, env.spec)
        np.testing.assert_allclose(obs.features, expected, rtol=1e-6)
        pairs.append(np.expm1(expected[:, :2]).round().prod(1))
        game.eliminate(graph.node(vertex))
        obs, state, reward, *_ = step(None, state, slot)
        assert float(reward) == -cost
    assert max(p.max() for p in pairs) > 2 * CHUNK
    assert max(p.sum() for p in pairs) > OBSERVED_CHUNK


def test_graphs_of_all_kinds_share_a_program(task_graph):
    graphs = [task_graph(name) for name in ("LIF", "PropaneCombustion")]
    spec = Spec.common([Spec.of(g, "multiplications") for g in graphs])
    env = VertexEnv(graphs[0], spec=spec)
    step, rng = jax.jit(env.step), np.random.default_rng(3)
    for graph in graphs:
        play(env, graph, env.encode(graph), rng, step=step, observe_every=40)


@pytest.mark.slow
def test_batches_of_graphs_and_of_moves_nest_in_any_way():
    graphs = [
        make_graph(lambda x: (jnp.sin(x) * x).sum() * jnp.cos(x))(jnp.ones(3)),
        make_graph(lambda x: jnp.tanh(jnp.exp(jnp.cumsum(x))))(jnp.ones(4)),
    ]
    env = VertexEnv(graphs[0], spec=Spec.common([Spec.of(g, "multiplications") for g in graphs]))
    params = [env.encode(graph) for graph in graphs]
    slots = jnp.arange(2, dtype=jnp.int32)

    @jax.jit
    def move(params, slot):
        return env.transition(env.init(params), slot, params)[0]

    stacked = jax.tree.map(lambda *x: jnp.stack(x), *params)
    square = jax.tree.map(lambda x: jnp.stack([x, x], 1), stacked)
    moves = jnp.stack([slots, slots])
    by_graph = jax.jit(jax.vmap(jax.vmap(move, (None, 0)), (0, None)))(stacked, slots)
    by_move = jax.jit(jax.vmap(jax.vmap(move, (0, None)), (None, 0)))(stacked, slots)
    by_both = jax.jit(jax.vmap(jax.vmap(move)))(square, moves)
    for k, of_graph in enumerate(params):
        for slot in range(2):
            one = move(of_graph, slot)
            ids = [*graphs[k].eliminable]
            assert int(one.cost) == graphs[k].costs([ids.pop(slot), *ids])[0]
            flags = np.unpackbits(np.asarray(one.core.sources).view(np.uint8), bitorder="little")
            flags = flags.reshape(env.spec.columns, -1)[:, : env.spec.rows]
            np.testing.assert_array_equal(flags, np.asarray(one.core.codes).T != 0)
            for batch, at in ((by_graph, (k, slot)), (by_move, (slot, k)), (by_both, (k, slot))):
                found = jax.tree.map(lambda x, at=at: x[at], batch)
                jax.tree.map(np.testing.assert_array_equal, found, one)


def test_more_than_four_axes_are_refused():
    with pytest.raises(ValueError, match=r"at most 4 axes.*vertex \d has shape \(2, 2, 2, 2, 2\)"):
        make(lambda x: jnp.sin(jnp.cos(jnp.stack([x, x]))), jnp.ones((2, 2, 2, 2)))
    assert make(lambda x: jnp.sin(jnp.cos(x)), jnp.ones((2, 1, 2, 1, 2, 2))).spec.rank == 4


@pytest.mark.parametrize("unused", [(2, 3, 4), (2, 2, 2, 2, 2)])
def test_an_argument_without_edges_may_have_more_axes_than_all_others(unused):
    fun = lambda x, _: jnp.sin(x) * x  # noqa: E731
    env = make(fun, jnp.ones(2), jnp.ones(unused), argnums=(0, 1))
    play(env, env.graph, env.default_params, np.random.default_rng(0))


def test_spec_of_other_kinds_of_graphs(task_graph):
    scalar, array, linked = (
        Spec.of(task_graph(name), "multiplications")
        for name in ("RoeFlux_1d", "Encoder", "RoeFlux_3d")
    )
    assert not Spec.common([scalar, array]).scalar
    assert Spec.common([array, linked]).links
    large = array.padded(num_inputs=200, num_actions=200, num_outputs=10)
    with pytest.raises(ValueError, match="linked edges"):
        VertexEnv(task_graph("RoeFlux_3d"), spec=large)
    with pytest.raises(ValueError, match="array variables"):
        VertexEnv(task_graph("mlp"), spec=scalar)
    with pytest.raises(ValueError, match="rank of at least 2, got 1"):
        VertexEnv(task_graph("mlp"), spec=linked.padded(num_inputs=20))
