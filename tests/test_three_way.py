"""−(return of the environment) = cost of the graph = count of the engine, for every order.

For ``"operations"`` the emitted program is the one that forms every sum at once; without
selections it is the program that `jacve` runs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import veenv
from tests.oracles import by_numpy
from tests.oracles.multiplications import count_additions, count_multiplications
from tests.sampling import on_seeds, spared
from tests.test_invariant import TASKS, orders_of, prepared
from veenv.engine import elimination
from veenv.env import Spec, VertexEnv
from veenv.env.factory import task_graph
from veenv.graph.graph import COST_MODELS


@dataclass(frozen=True)
class Program:
    """What the compiled play depends on: cost models and graphs of one spec share it."""

    spec: Spec
    env: VertexEnv = field(compare=False)


@partial(jax.jit, static_argnums=0)
def play(program, params, actions):
    """Return, cost and end of every order, played side by side."""
    env = program.env

    def episode(actions):
        _, state = env.reset(jax.random.key(0), params)

        def step(state, action):
            state, reward, *_ = env.transition(state, action, params)
            return state, reward

        state, rewards = jax.lax.scan(step, state, actions)
        return rewards.sum(), state.cost, state.terminated

    return jax.vmap(episode)(actions)


def returns_of(env: VertexEnv, graph, orders) -> np.ndarray:
    """The environment's return for each order, all played side by side."""
    slot = {vertex: n for n, vertex in enumerate(graph.eliminable)}
    actions = jnp.array([[slot[v] for v in order] for order in orders], jnp.int32)
    total, cost, terminated = play(Program(env.spec, env), env.default_params, actions)
    assert bool(terminated.all())
    np.testing.assert_array_equal(-total, cost)
    return np.asarray(total)


PLAYED = ("PropaneCombustion", "executed"), ("mlp", "operations")


@pytest.mark.parametrize(("name", "cost"), spared(product(TASKS, COST_MODELS), *PLAYED))
def test_tasks(name, cost):
    graph = task_graph(name)
    orders = orders_of(graph, 50)
    returns = returns_of(VertexEnv(graph, cost), graph, orders)
    assert [-int(r) for r in returns] == [graph.cost(order, cost) for order in orders]


def emitted_cost(lin, edges, order, cost):
    """What the emitted program executes, counted by code that knows nothing of structures."""
    if cost != "operations":
        return count_multiplications(elimination.elimination_jaxpr(lin, edges[cost], order))
    jaxpr = elimination.elimination_jaxpr(lin, edges["executed"], order, keep_sums=False)
    return count_multiplications(jaxpr) + count_additions(jaxpr)


@pytest.mark.parametrize(
    ("arrays", "costs", "examples"),
    [
        pytest.param(False, COST_MODELS, 1, id="scalar"),
        pytest.param(True, ("operations",), 1, id="array"),  # counts the others' products as well
        pytest.param(False, COST_MODELS, 40, id="many-scalar", marks=pytest.mark.slow),
        pytest.param(True, COST_MODELS, 40, id="many-array", marks=pytest.mark.slow),
    ],
)
def test_random_functions(arrays, costs, examples):
    some = settings(max_examples=examples)(given(st.integers(0, 10_000))(check_three_ways))
    some(arrays, costs)


def check_three_ways(arrays, costs, seed):
    fun, args = veenv.tasks.random_function(seed, 3, 12, 2, arrays=arrays)
    argnums = tuple(range(len(args)))
    lin, edges = prepared(fun, args, argnums)
    graph = lin.graph
    if not graph.eliminable:
        return
    orders = orders_of(graph, 3, seed)
    for cost in costs:
        returns = returns_of(VertexEnv(graph, cost), graph, orders)
        emitted = [emitted_cost(lin, edges, order, cost) for order in orders]
        assert [-int(r) for r in returns] == emitted
        assert emitted == [graph.cost(order, cost) for order in orders]


@on_seeds(8, 100)
def test_random_functions_have_the_right_jacobian(seed):
    with jax.enable_x64(True):
        fun, args = veenv.tasks.random_function(seed, 3, 14, 2, arrays=bool(seed % 4))
        args = [np.asarray(a, np.float64) for a in args]
        argnums = tuple(range(len(args)))
        graph = veenv.make_graph(fun, argnums)(*args)
        shuffled = tuple(random.Random(seed).sample(graph.eliminable, len(graph.eliminable)))
        jacobians = [
            jax.jacrev(fun, argnums),
            *(veenv.jacve(fun, order, argnums, kernel="xla") for order in ("forward", shuffled)),
        ]
        expected, *found = by_numpy.run(lambda *a: [make(*a) for make in jacobians], *args)
        scale = max(1.0, *(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(expected)))
        for jacobian in found:
            assert veenv.tree_allclose(jacobian, expected, rtol=1e-9, atol=1e-11 * scale)
