"""Counts that pass int32: the arithmetic against Python's, the environment against the graph."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.sampling import few, spared
from veenv.env import Spec, TaskDistribution, VertexEnv, WideCount, rules_array
from veenv.env.adapters import GymVectorEnv, GymVertexEnv
from veenv.env.bits import num_words
from veenv.env.counts import INT64_MAX, MOST_ADDENDS, largest_like, less, select
from veenv.env.exact_range import INT32_MAX, check_total
from veenv.env.random_play import random_episodes
from veenv.graph.graph import COST_MODELS
from veenv.graph.linearisation import make_graph
from veenv.measure.validation import episode_cost
from veenv.structure import diagonal, packed

EDGES = (0, 1, 2**16 - 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, INT64_MAX)


def numbers(size=200):
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, 2**62, size) >> rng.integers(0, 62, size)
    return np.concatenate([np.array(EDGES), drawn])


def wide(values):
    return WideCount.of_ints(np.asarray(values, np.int64))


def test_sums_differences_and_products_are_those_of_int64():
    a, b = numbers(), numbers()[::-1]
    factors = np.random.default_rng(1).integers(0, 2**31, len(a), dtype=np.int32)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(wide(a) + wide(b), a + b)
        np.testing.assert_array_equal(wide(a) - wide(b), a - b)
        np.testing.assert_array_equal(wide(a) * jnp.asarray(factors), a * factors)
        np.testing.assert_array_equal(jax.jit(lambda x: -x)(wide(a)), -a)
    np.testing.assert_array_equal(less(wide(a), wide(b)), a < b)
    np.testing.assert_array_equal(select(jnp.asarray(a < b), wide(a), wide(b)), np.minimum(a, b))
    np.testing.assert_array_equal(WideCount.of(jnp.asarray(-factors)), -factors)
    assert int(wide(a)[3:].reshape(1, -1)[0, 0]) == wide(a)[3].item() == a[3]


def test_floats_are_the_nearest():
    halfway = [(2**24 + 1) << shift for shift in range(38)]
    values = np.concatenate([numbers(), halfway, np.array(halfway) - 1, np.array(halfway) + 1])
    for signed in (values, -values):
        np.testing.assert_array_equal(wide(signed).astype(jnp.float32), signed.astype(np.float32))
    with pytest.raises(TypeError, match="float32, not int32"):
        wide([1]).astype(jnp.int32)


def test_the_least_is_found_with_equal_upper_words():
    values = [[2**40 + 5, 2**40 + 3, 2**41], [7, 2**33, 2**32], [INT64_MAX] * 3]
    assert wide(values).argmin(1).tolist() == [1, 0, 0]
    assert largest_like(wide(values)).tolist() == [[INT64_MAX] * 3] * 3
    assert largest_like(jnp.zeros(2, jnp.int32)).tolist() == [INT32_MAX] * 2


def test_as_many_amounts_as_are_allowed_are_added_at_one_place():
    amounts = wide(np.full(MOST_ADDENDS, 2**47 - 1))
    found = wide([3, 2**32]).added_at(jnp.ones(MOST_ADDENDS, jnp.int32), amounts)
    assert found.tolist() == [3, 2**32 + MOST_ADDENDS * (2**47 - 1)]
    assert int(amounts.sum()) == MOST_ADDENDS * (2**47 - 1)


@pytest.mark.parametrize("convert", [jnp.asarray, jnp.min, lambda x: jnp.ones(1, jnp.int32) + x])
def test_a_wide_count_is_never_cut_to_an_array_of_jax(convert):
    with pytest.raises(TypeError, match=r"np\.asarray\(count\)"):
        convert(wide([2**40]))


def layers(x, first, second):
    """Two layers on a batch, by the inputs and both matrices."""
    return jnp.tanh(jnp.tanh(x @ first) @ second)


@pytest.fixture(scope="module")
def large():
    """A graph of which single eliminations cost up to 8,220,835,840."""
    shapes = (4096, 784), (784, 128), (128, 10)
    return make_graph(layers, (0, 1, 2))(*(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes))


@pytest.mark.parametrize("cost", spared(COST_MODELS, "multiplications"))
def test_every_order_costs_in_the_environment_what_it_costs_in_the_graph(cost, large):
    env = VertexEnv(large, cost)
    step = jax.jit(env.step)
    for order in itertools.permutations(large.eliminable):
        obs, state = env.reset()
        costs, left = large.costs(order, cost), set(large.eliminable)
        assert max(costs) > INT32_MAX
        for vertex, expected in zip(order, costs, strict=True):
            shown = {v for v, legal in zip(large.eliminable, obs.action_mask, strict=True) if legal}
            assert shown == left
            price = float(np.expm1(np.float64(obs.features[large.eliminable.index(vertex), 2])))
            assert price == pytest.approx(expected, rel=1e-5)
            obs, state, reward, terminated, _, info = step(
                None, state, large.eliminable.index(vertex)
            )
            left -= {vertex}
            assert int(info["cost"]) == expected
            assert float(reward) == -np.float32(expected)
        assert bool(terminated)
        assert int(state.cost) == int(info["total"]) == sum(costs) == large.cost(order, cost)
        assert episode_cost(large, cost, order) == sum(costs)


def test_a_chunk_of_pairs_is_added_up_exactly(monkeypatch):
    """All pairs of one vertex at once; the lower halves of their costs have all bits set."""
    monkeypatch.setattr(rules_array, "PAIRS", 2 * MOST_ADDENDS)
    size, width = 2**16 - 1, 257
    graph = make_graph(lambda x: jnp.sin(jnp.cos(x)))(jax.ShapeDtypeStruct((size,), jnp.float32))
    spec = dataclasses.replace(Spec.of(graph, "multiplications"), wide=True)
    spec = spec.padded(num_inputs=width, num_actions=1, num_outputs=width)
    rules = rules_array.ArrayRules(spec)
    params = rules.encode(graph, "multiplications")
    codes = np.zeros((spec.rows, spec.columns), np.int32)
    codes[:width, 0] = codes[width, 1:] = packed.pack(diagonal((size,), valued=True))
    sources = np.packbits((codes != 0).T, axis=1, bitorder="little")
    words = np.zeros((spec.columns, 4 * num_words(spec.rows)), np.uint8)
    words[:, : sources.shape[1]] = sources
    core = rules_array.ArrayEdges(jnp.asarray(codes), jnp.asarray(words.view(np.uint32)))
    params = dataclasses.replace(params, axes=jnp.full_like(params.axes, size))
    _, cost = rules.eliminate(core, params, jnp.int32(0), jnp.array(True))
    assert int(cost) == width**2 * size
    assert width**2 > MOST_ADDENDS


def test_an_illegal_action_pays_more_than_any_order(large):
    env = VertexEnv(large, shaping="reverse")
    state, reward, info = env.transition(env.init(), env.num_actions)
    worst = max(map(large.cost, itertools.permutations(large.eliminable)))
    assert float(reward) < large.cost(large.reverse()) - worst
    assert bool(state.terminated)
    assert bool(info["illegal"])
    assert int(state.cost) == 0


@pytest.mark.parametrize(
    ("name", "cost"),
    spared(
        itertools.product(["Robertson", "LIF"], ["executed", "operations"]),
        ("Robertson", "executed"),
    ),
)
def test_a_wide_environment_plays_as_a_narrow_one(name, cost, task_graph):
    graph = task_graph(name)
    spec = dataclasses.replace(Spec.of(graph, cost), wide=True)
    options = {"shaping": "classical", "normalise": True}
    envs = VertexEnv(graph, cost, **options), VertexEnv(graph, cost, spec=spec, **options)
    steps = [jax.jit(env.step) for env in envs]
    (_, narrow), (_, wider) = (env.reset() for env in envs)
    order = np.random.default_rng(0).permutation(envs[0].max_steps)
    for slot in [*order[: few(5, of=len(order))], order[0]]:
        seen, narrow, *rest = steps[0](None, narrow, slot)
        wide_seen, wider, *wide_rest = steps[1](None, wider, slot)
        jax.tree.map(np.testing.assert_array_equal, seen, wide_seen)
        np.testing.assert_array_equal(rest[:3], wide_rest[:3])
        assert {k: v.item() for k, v in rest[3].items()} == {
            k: v.item() for k, v in wide_rest[3].items()
        }
    assert int(narrow.cost) == int(wider.cost)


def test_other_interfaces_give_whole_counts(large):
    order = [large.eliminable.index(v) for v in large.markowitz()]
    total = large.cost(large.markowitz())
    env = GymVertexEnv(large)
    obs, first = env.reset()
    assert env.observation_space.contains(obs)
    infos = [env.step(slot)[-1] for slot in order]
    assert (first["total"], infos[-1]["total"]) == (0, total)
    assert isinstance(infos[-1]["cost"], int)
    envs = GymVectorEnv(num_envs=2, task=large, autoreset_mode="SameStep")
    _, first = envs.reset()
    ends = [envs.step(np.full(2, slot))[-1] for slot in order]
    assert first["total"].dtype == ends[0]["total"].dtype == np.int64
    assert ends[-1]["final_info"]["total"].tolist() == [total] * 2
    assert ends[-1]["total"].tolist() == [0, 0]


def test_a_narrow_spec_refuses_what_may_pass_it(large):
    narrow = dataclasses.replace(Spec.of(large, "multiplications"), wide=False)
    with pytest.raises(ValueError, match=rf"passes int32 \({INT32_MAX}\).*wide=True"):
        VertexEnv(large, spec=narrow)
    small = make_graph(lambda x: jnp.tanh(jnp.tanh(x)))(jnp.ones((2, 3)))
    tasks = TaskDistribution.of([small, large])
    assert tasks.env.spec.wide
    assert not Spec.of(small, "multiplications").wide
    states = jax.vmap(lambda params: random_episodes(tasks.env, jax.random.key(1), 2, params))(
        tasks.params
    )
    for graph, costs, orders in zip(tasks.graphs, states.cost.tolist(), states.order, strict=True):
        slots = [[graph.eliminable[k] for k in order if k >= 0] for order in orders]
        assert costs == [graph.cost(order) for order in slots]


def test_a_graph_beyond_int64_is_refused():
    shape = jax.ShapeDtypeStruct((2000, 2000), jnp.float32)
    graph = make_graph(lambda x: jnp.sin(jnp.cos(x @ x) @ x))(shape)
    with pytest.raises(ValueError, match=str(INT64_MAX)):
        check_total(graph)
    wide_shape = jax.ShapeDtypeStruct((2**16, 2**15), jnp.float32)
    with pytest.raises(ValueError, match=f"{INT32_MAX} elements, but one has {2**31}"):
        veenv.make(lambda x: jnp.sin(jnp.cos(x)), wide_shape)
