"""The game on the host, from sets and dictionaries: the oracle of the environment's tests."""

from functools import cache, lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from tests.oracles.scalar_graph import Elimination
from veenv.graph.linearisation import make_graph
from veenv.structure import packed
from veenv.structure import structure as algebra
from veenv.structure.product import multiply

multiply, add, pack = cache(multiply), cache(algebra.add), cache(packed.pack)


class ScalarGame(Elimination):
    """Vertex elimination on a scalar graph."""

    def __init__(self, graph, cost):
        structures, left = graph.structures(cost), [graph.node(v) for v in graph.eliminable]
        units = {edge for edge, s in structures.items() if s.unit}
        super().__init__(structures, left, graph.outputs, units, cost == "operations")
        self.graph = graph

    def code(self, edge):
        return 3 if self.after[edge[0]][edge[1]] else 1


class ArrayGame:
    """Vertex elimination with the host's structure algebra."""

    def __init__(self, graph, cost):
        self.graph = graph
        self.structures = graph.structures(cost)
        self.left = {graph.node(v) for v in graph.eliminable}
        self.additions = cost == "operations"

    @property
    def edges(self):
        return set(self.structures)

    def products(self, node):
        ins = [(u, s) for (u, v), s in self.structures.items() if v == node]
        outs = [(w, s) for (v, w), s in self.structures.items() if v == node]
        for u, pre in ins:
            for w, post in outs:
                yield (u, w), multiply(post, pre)

    def price(self, node):
        price = 0
        for edge, product in self.products(node):
            price += product.multiplications
            if self.additions:
                price += product.additions
                old = self.structures.get(edge)
                price += 0 if old is None else add(old, product.structure).num_values
        return price

    def eliminate(self, node):
        price = self.price(node)
        for edge, product in list(self.products(node)):
            old = self.structures.get(edge)
            new = product.structure
            self.structures[edge] = new if old is None else add(old, new)
        for u, w in list(self.structures):
            if u == node or (w == node and node not in self.graph.outputs):
                del self.structures[u, w]
        self.left.remove(node)
        return price

    def code(self, edge):
        return pack(self.structures[edge])


def new_game(graph, cost):
    return (ScalarGame if graph.is_scalar else ArrayGame)(graph, cost)


def expected_adjacency(game, spec):
    """The adjacency an observation must show."""
    graph = game.graph
    slots = {graph.node(v): a for a, v in enumerate(graph.eliminable)}
    ends = {n for n in graph.outputs if n is not None and n >= graph.num_inputs and n not in slots}
    columns = slots | {n: spec.num_actions + k for k, n in enumerate(sorted(ends))}
    rows = {n: n for n in range(graph.num_inputs)}
    rows |= {n: spec.num_inputs + a for n, a in slots.items()}
    codes = np.zeros((spec.rows, spec.columns), np.int32)
    edges = list(game.edges)
    found = [game.code(edge) for edge in edges]
    codes[[rows[u] for u, _ in edges], [columns[w] for _, w in edges]] = found
    return codes


def expected_features(game, spec):
    """The features an observation must show."""
    graph = game.graph
    num = len(graph.eliminable)
    depth = {}
    for u, w in graph.edges:
        depth[w] = max(depth.get(w, 0), depth.get(u, 0) + 1)
    deepest = max([1, *depth.values()])
    features = np.zeros((spec.num_actions, 8), np.float64)
    for slot, vertex in enumerate(graph.eliminable):
        node = graph.node(vertex)
        legal = node in game.left
        features[slot] = [
            np.log1p(len({u for u, v in game.edges if v == node})),
            np.log1p(len({w for v, w in game.edges if v == node})), np.log1p(game.price(node)),
            np.log1p(np.prod(graph.shapes[node])), depth[node] / deepest, slot / num,
            node in graph.outputs, legal,
        ]  # fmt: skip
    return features


@lru_cache(maxsize=4)
def compiled_reset(env):
    """An environment's `reset`, compiled once however often it is played."""
    return jax.jit(env.reset)


def play(env, graph, params, rng, *, step=None, observe_every=1):
    """One random episode, compared with the oracle after every step; returns its length."""
    game = new_game(graph, env.cost)
    step = step or jax.jit(env.step)
    obs, state = compiled_reset(env)(None, params)
    total, eliminated = 0, []
    for t, slot in enumerate([*rng.permutation(len(graph.eliminable)), None]):
        mask = np.zeros(env.num_actions, bool)
        mask[: len(graph.eliminable)] = [graph.node(v) in game.left for v in graph.eliminable]
        np.testing.assert_array_equal(obs.action_mask, mask)
        np.testing.assert_array_equal(env.action_mask(state), mask)
        if t % observe_every == 0:
            np.testing.assert_array_equal(obs.adjacency, expected_adjacency(game, env.spec))
            expected = expected_features(game, env.spec)
            np.testing.assert_allclose(obs.features, expected, rtol=1e-6)
        assert env.order(state, params) == tuple(eliminated)
        assert int(state.cost) == total
        assert bool(state.terminated) == (not game.left)
        if slot is None:
            return t
        vertex = graph.eliminable[slot]
        price = game.eliminate(graph.node(vertex))
        obs, state, reward, terminated, truncated, info = step(None, state, slot, params)
        total += price
        eliminated.append(vertex)
        assert float(reward) == -price
        assert bool(terminated) == (not game.left)
        assert not truncated
        assert (int(info["cost"]), int(info["total"])) == (price, total)
        assert not info["illegal"]
    raise AssertionError("unreachable")


def kept_outputs(x):
    """Outputs that are used further on, repeated, constant, or inputs."""
    y = jnp.sin(x[0]) * x[1]
    z = jnp.exp(y) + y
    return y, z, z * y, y, x[0], 3.0, jnp.tanh(z)


def with_units(x):
    """Additions, negations, reshapes and broadcasts of size one: unit edges."""
    a = x[0] + x[1]
    b = -a + jnp.reshape(jnp.sin(x[0]), (1,))[0]
    c = (a - b) * jnp.broadcast_to(b, (1, 1))[0, 0]
    return c + a, b + a, c


POINT = (np.float32(0.3), np.float32(0.7))


def small_graph(fun):
    return make_graph(lambda *x: fun(x), (0, 1))(*POINT)
