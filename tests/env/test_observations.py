"""The kinds of observations: the same graph in each, in every state, and cheap random actions."""

from __future__ import annotations

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from veenv.env import TaskDistribution, random_action
from veenv.env.encode import NodeLayout
from veenv.env.env import VertexEnv
from veenv.env.graph_view import decode_edges
from veenv.env.observe import mask_of
from veenv.env.random_play import random_order

TASKS = {"scalar": ("Robertson", "executed"), "array": ("LIF", "multiplications")}
KINDS = ("adjacency", "flat", "graph", "packed")


@pytest.fixture(scope="module", params=["scalar", pytest.param("array", marks=pytest.mark.slow)])
def states(request):
    """An environment, a batch of states half way, and the observations of each kind."""
    name, cost = TASKS[request.param]
    env = veenv.make(name, cost=cost)
    mask = env.init().action_mask
    orders = jax.vmap(random_order, (0, None))(jax.random.split(jax.random.key(1), 4), env.init())

    def play(order, num):
        def body(i, s):
            return jax.lax.cond(i < num, lambda: env.transition(s, order[i])[0], lambda: s)

        return jax.lax.fori_loop(0, len(mask), body, env.init())

    num = jnp.array([0, 3, env.max_steps - 2, env.max_steps])
    envs = {kind: VertexEnv(env.graph, cost, observation=kind) for kind in KINDS}

    @jax.jit
    def look():
        batch = jax.vmap(play)(orders, num)
        return batch, {kind: jax.vmap(other.observe)(batch) for kind, other in envs.items()}

    batch, found = jax.device_get(look())
    seen = {kind: (envs[kind], obs) for kind, obs in found.items()}
    return env, batch, seen


def test_each_kind_shows_the_same(states):
    env, batch, seen = states
    dense = seen["adjacency"][1]
    assert seen["flat"][1].shape == (4, 8 * env.num_actions)
    np.testing.assert_array_equal(seen["flat"][1].reshape(dense.features.shape), dense.features)
    packed_env, packed = seen["packed"]
    again = jax.vmap(packed_env.decode)(packed)
    np.testing.assert_array_equal(again.adjacency, dense.adjacency)
    np.testing.assert_array_equal(again.features, dense.features)
    for _, obs in seen.values():
        np.testing.assert_array_equal(mask_of(obs, env.num_actions), batch.action_mask)


def test_lists_have_the_edges_of_the_matrix(states):
    env, _, seen = states
    dense, graph = seen["adjacency"][1], seen["graph"][1]
    first, num_nodes = env.spec.num_inputs, graph.nodes.shape[1]
    for k in range(4):
        rows, columns = np.nonzero(dense.adjacency[k])
        expected = set(zip(rows.tolist(), (columns + first).tolist(), strict=True))
        num = int(graph.n_edge[k])
        found = list(zip(graph.senders[k, :num].tolist(), graph.receivers[k, :num], strict=True))
        assert len(found) == num == len(expected)
        assert {(a, int(b)) for a, b in found} == expected
        assert (graph.senders[k, num:] == num_nodes).all()
        assert (graph.edges[k, num:] == 0).all()
        codes = jnp.array([dense.adjacency[k][a, b - first] for a, b in found], jnp.int32)
        decoded = decode_edges(codes, env.spec.rank, env.spec.links)
        np.testing.assert_array_equal(graph.edges[k, :num], decoded)
        slots = graph.nodes[k, first : first + env.num_actions]
        np.testing.assert_allclose(slots[:, :2], dense.features[k, :, :2])
        np.testing.assert_array_equal(slots[:, 2:7], dense.features[k, :, 3:])


def test_lists_are_those_of_the_graph(states):
    """At the start, against the graph itself and not the matrix."""
    env, _, seen = states
    assert_is_of_graph(env, jax.tree.map(lambda x: x[0], seen["graph"][1]))


def assert_is_of_graph(env, obs):
    """The lists of an observation are those of the environment's graph."""
    graph = env.graph
    layout = NodeLayout.of(graph, env.spec)
    where = {n: env.spec.num_inputs + c for n, c in layout.column.items()} | layout.row
    expected = {(where[a], where[b]) for a, b in graph.edges}
    num = int(obs.n_edge)
    assert len(expected) == num
    assert (
        set(zip(obs.senders.tolist()[:num], obs.receivers.tolist()[:num], strict=True)) == expected
    )
    for node, place in where.items():
        degrees = sum(b == node for _, b in graph.edges), sum(a == node for a, _ in graph.edges)
        np.testing.assert_allclose(obs.nodes[place, :2], np.log1p(degrees), rtol=1e-6)


@pytest.mark.usefixtures("optimised")
def test_no_step_is_played_again_for_each_edge():
    """XLA would put the whole step inside of each lookup: 19 µs a step instead of 8."""
    env = veenv.make("Robertson", observation="graph")
    step = jax.jit(jax.vmap(lambda state: (env.observe(state), env.step(None, state, 0)[0])))
    states = jax.tree.map(lambda x: jnp.broadcast_to(x, (4, *x.shape)), env.init())
    compiled = step.lower(states).compile()
    assert_is_of_graph(env, jax.tree.map(lambda x: x[3], compiled(states)[0]))
    bodies = [
        body
        for body in compiled.as_text().split("\n}")
        if " gather(" in body and "fused_computation" in body
    ]
    assert bodies
    for body in bodies:
        assert "jit(eliminate)" not in body, body.strip().splitlines()[0]


def test_without_room_for_all_edges_every_feature_is_nan(states):
    env, batch, seen = states
    most = int(seen["graph"][1].n_edge[:2].min())
    small = VertexEnv(env.graph, env.cost, observation="graph", max_edges=most - 1)
    obs = jax.jit(small.observe)(jax.tree.map(lambda x: x[0], batch))
    assert int(obs.n_edge) >= most
    assert bool(jnp.isnan(obs.nodes).all())


def test_random_actions_are_uniform_over_the_legal_ones():
    mask = np.zeros((2, 70), bool)
    legal = [0, 31, 32, 40, 63, 64, 69]
    mask[0, legal] = True
    keys = jax.random.split(jax.random.key(0), 20_000)
    actions = np.asarray(jax.jit(jax.vmap(random_action, (0, None)))(keys, jnp.asarray(mask)))
    counts = np.bincount(actions[:, 0], minlength=70)
    assert counts[legal].sum() == len(keys)
    expected = len(keys) / len(legal)
    assert ((counts[legal] - expected) ** 2 / expected).sum() < 22.5  # chi², 6 degrees: 0.1 %
    assert (actions[:, 1] == 0).all()


def most_seen(graph, draw, of):
    """Most edges at a time of an order that takes each time the one of some that makes most."""
    edges, left, most = set(graph.edges), list(graph.eliminable), len(graph.edges)
    while left:
        tried = {}
        for vertex in draw.sample(left, min(of, len(left))):
            node = vertex + graph.num_inputs - 1
            before = [u for u, w in edges if w == node]
            after = [w for u, w in edges if u == node]
            made = edges | {(u, w) for u in before for w in after}
            kept = node in graph.output_nodes  # with its in-edges
            tried[vertex] = {(u, w) for u, w in made if u != node and (kept or w != node)}
        vertex = max(tried, key=lambda v: len(tried[v]))
        edges = tried[vertex]
        left.remove(vertex)
        most = max(most, len(edges))
    return most


def steps_shown(y, *xs):
    """Every step is an output, too, and keeps its in-edges."""
    return [y := jnp.sin(y) * x for x in xs]


@pytest.mark.parametrize("name", ["RoeFlux_1d", "Robertson", "LIF", "mlp", steps_shown])
def test_by_default_graphs_have_room_for_what_orders_make_and_not_for_all_paths(name):
    from veenv.env.graph_view import num_paths

    task = name if isinstance(name, str) else veenv.make_graph(name, range(16))(*[0.5] * 16)
    env = veenv.make(task, observation="graph")
    room = env.observation_space["edges"].shape[0]
    draw = random.Random(7)
    most = max(most_seen(env.graph, draw, of) for of in (1, 4, 16))
    assert most <= room <= num_paths(env.graph, env.spec)
    assert room <= 3 * most
    tasks = TaskDistribution.of([task]).observing("graph")
    assert tasks.env.observation_space["edges"].shape[0] == room
