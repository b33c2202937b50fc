"""Graphs some vertices of which must wait: every game that ends is an order the rules allow."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.graph.test_reverse_only import clipped
from tests.sampling import spared
from veenv.env import Spec, TaskDistribution, VertexEnv
from veenv.env.random_play import random_episodes
from veenv.testing import check_env

POINT = np.array([0.3, 1.4, -0.7], np.float32)


def scalars(x):
    h = jnp.sin(x) * x
    return jnp.cos(clipped(h) * h) * 2.0, jnp.exp(h)


def two_rules(x):
    return jnp.sin(clipped(jnp.cos(clipped(x * x)) * x)), jnp.tanh(x)


GRAPHS = {
    "scalars": lambda: veenv.make_graph(scalars)(0.3),
    "arrays": lambda: veenv.make_graph(scalars)(POINT),
    "two rules": lambda: veenv.make_graph(two_rules)(0.3),
}


def allowed(graph, order):
    try:
        return bool(graph.check_order(order))
    except ValueError:
        return False


def legal_by_search(graph, eliminated):
    """The vertices that some order that the graph allows eliminates next."""
    rest = [v for v in graph.eliminable if v not in eliminated]
    orders = (eliminated + order for order in itertools.permutations(rest))
    return {order[len(eliminated)] for order in orders if allowed(graph, order) and rest}


@pytest.mark.parametrize("name", spared(GRAPHS, "arrays", "two rules"))
def test_every_state_allows_what_some_order_does_next_and_nothing_else(name):
    graph = GRAPHS[name]()
    assert graph.prerequisites
    env = VertexEnv(graph)
    step, start = jax.jit(env.transition), jax.jit(env.init)()
    states, seen, finished = [((), start)], set(), 0
    while states:
        order, state = states.pop()
        slots = np.flatnonzero(state.action_mask)
        assert {graph.eliminable[slot] for slot in slots} == legal_by_search(graph, order)
        assert bool(state.terminated) == (len(order) == env.max_steps)
        if state.terminated:
            finished += 1
            assert graph.cost(env.final_order(state)) == int(state.cost)
        elif frozenset(order) not in seen:
            seen.add(frozenset(order))
            for slot in range(env.num_actions):
                after, reward, info = step(state, slot)
                assert bool(info["illegal"]) == (slot not in slots)
                if slot in slots:
                    states.append(((*order, graph.eliminable[slot]), after))
                else:
                    assert float(reward) == -float(env.default_params.worst_total)
                    assert after.terminated
    assert finished


def test_random_play_and_the_check_of_environments():
    tasks = TaskDistribution.of([GRAPHS["two rules"](), "Robertson"], normalise=True)
    env = tasks.env
    assert env.spec.precedence
    for index, graph in enumerate(tasks.graphs):
        params = tasks.task(index)
        ends = jax.jit(lambda key, params: random_episodes(env, key, 12, params))(
            jax.random.key(0), params
        )
        found = [
            env.final_order(jax.tree.map(lambda x, k=k: x[k], ends), params) for k in range(12)
        ]
        assert [graph.cost(order) for order in found] == np.asarray(ends.cost).tolist()
        assert len(set(found)) > 1
    check_env(VertexEnv(GRAPHS["scalars"](), shaping="forward"), episodes=1)


def test_a_spec_says_whether_vertices_may_have_to_wait():
    graph, plain = GRAPHS["scalars"](), veenv.make_graph(lambda x: jnp.sin(x) * x)(0.3)
    assert veenv.make(plain).default_params.before is None
    spec = Spec.of(plain, "multiplications").padded(num_actions=9, num_outputs=3)
    with pytest.raises(ValueError, match=r"rule of clipped .*test_precedence.*precedence=True"):
        VertexEnv(graph, spec=spec)
