"""Shaped and normalised rewards: what episodes return, against the host's counts."""

import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.env.games import new_game, small_graph, with_units
from tests.sampling import spared
from veenv.env import VertexEnv
from veenv.env.exact_range import check_total
from veenv.env.factory import make
from veenv.env.task_set import TaskDistribution
from veenv.testing import check_env

BOTH = {"shaping": "classical", "normalise": True}


def classical(graph, cost):
    return min(graph.cost(o, cost) for o in (graph.forward(), graph.reverse(), graph.markowitz()))


def constants(graph, cost, options):
    """The reference order's cost and the scale."""
    best = classical(graph, cost)
    by_shaping = {None: 0, "reverse": graph.cost(graph.reverse(), cost), "classical": best}
    return by_shaping[options.get("shaping")], max(1, best) if options.get("normalise") else 1


RETURNS = [
    ("PropaneCombustion", "executed", {"shaping": "reverse"}),
    ("PropaneCombustion", "multiplications", {"normalise": True}),
    ("PropaneCombustion", "multiplications", BOTH), ("LIF", "executed", BOTH),
]  # fmt: skip


@pytest.mark.parametrize(("name", "cost", "options"), spared(RETURNS, RETURNS[0]))
def test_every_episode_returns_the_unshaped_return_plus_a_constant(name, cost, options, task_graph):
    graph = task_graph(name)
    env = VertexEnv(graph, cost, **options)
    reference, scale = constants(graph, cost, options)
    step, rng = jax.jit(env.transition), np.random.default_rng(0)
    for illegal_at in (None, 0, 7, 9):
        game, state, total, true = new_game(graph, cost), env.init(), 0.0, 0
        for t, slot in enumerate(rng.permutation(env.max_steps)):
            illegal = t == illegal_at
            state, reward, info = step(state, -1 if illegal else slot, env.default_params)
            total += float(reward)
            if illegal:
                assert int(info["cost"]) == 0
                break
            price = game.eliminate(graph.node(graph.eliminable[slot]))
            true += price
            assert int(info["cost"]) == price
            assert int(info["total"]) == true
        assert state.terminated
        fine = 0.0 if illegal_at is None else float(env.default_params.worst_total)
        assert total == pytest.approx((reference - true - fine) / scale, rel=1e-5, abs=1e-5)
        again, reward, _ = step(state, 0, env.default_params)
        assert float(reward) == 0.0
        chex.assert_trees_all_equal(again, state)


@pytest.mark.parametrize("shaping", ["forward", "reverse", "markowitz"])
def test_the_reference_order_earns_nothing_at_any_step(shaping, task_graph):
    graph = task_graph("PropaneCombustion")
    env = VertexEnv(graph, shaping=shaping)
    state, step = env.init(), jax.jit(env.transition)
    order = getattr(graph, shaping)()
    for vertex in order:
        state, reward, info = step(state, graph.eliminable.index(vertex))
        assert float(reward) == 0.0
    assert int(info["total"]) == graph.cost(order)


def tight(x):
    """A chain, whose only order costs exactly the bound."""
    return jnp.exp(jnp.sin(x))


@pytest.mark.parametrize("options", [{}, BOTH], ids=str)
@pytest.mark.parametrize(
    ("fun", "cost"),
    [(tight, "multiplications"), (tight, "executed"), (with_units, "executed")],
)
def test_no_episode_with_an_illegal_move_returns_more_than_the_worst_legal_one(fun, cost, options):
    graph = small_graph(lambda x: fun(x) if fun is with_units else fun(x[0]) + x[1])
    env = VertexEnv(graph, cost, **options)
    step = jax.jit(env.transition)
    legal, illegal = [], []
    for order in itertools.islice(itertools.permutations(range(env.max_steps)), 0, 5040, 197):
        state, earned = env.init(), 0.0
        for slot in order:
            for wrong in (-1, env.num_actions, 2**31 - 1):
                illegal.append(earned + float(step(state, wrong)[1]))
            state, reward, _ = step(state, slot)
            earned += float(reward)
        legal.append(earned)
    assert max(illegal) < min(legal)
    assert check_total(graph) < float(env.default_params.worst_total)


def test_random_pools_carry_their_own_rewards():
    ranges = {"vertices": (6, 9), "inputs": (1, 3)}
    pool = TaskDistribution.random(0, 3, shaping="markowitz", normalise=True, **ranges).renewed(1)
    for index, graph in enumerate(pool.graphs):
        params = pool.task(index)
        assert float(params.scale) == max(1, classical(graph, "multiplications"))
        assert int(params.reference.sum()) == graph.cost(graph.markowitz())
    check_env(pool.env, params=pool.task(2), episodes=1)


def test_a_free_graph_is_not_divided_by_zero():
    env = make(lambda x: (x + 1.0) + 1.0, 0.5, cost="executed", shaping="reverse", normalise=True)
    assert classical(env.graph, "executed") == 0
    state, reward, _ = jax.jit(lambda: env.transition(env.init(), 0))()
    assert (bool(state.terminated), float(reward)) == (True, 0.0)
