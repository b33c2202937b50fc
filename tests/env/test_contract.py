"""What the environment promises beyond the rules: ends, illegal actions, dtypes, compilations."""

from math import prod

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.env.games import kept_outputs, small_graph
from tests.oracles.structures import random_structure
from tests.sampling import few, spared
from veenv.env import VertexEnv
from veenv.env.adapters.gymnax import GymnaxEnv
from veenv.env.exact_range import check_total
from veenv.env.factory import make
from veenv.env.observe import as_fields
from veenv.env.task_set import TaskDistribution
from veenv.graph.linearisation import make_graph
from veenv.structure.product import multiply
from veenv.structure.structure import add


@pytest.fixture(scope="module")
def env(task_graph):
    return VertexEnv(task_graph("HumanHeartDipole"))


@pytest.fixture(scope="module")
def transition(env):
    return jax.jit(env.transition)


def after(env, transition, slots):
    state = env.init()
    for slot in slots:
        state, _, _ = transition(state, slot)
    return state


@pytest.mark.parametrize("action", [3, -1, 78, 2**31 - 1, -(2**31)])
def test_illegal_action_ends_the_episode_and_never_pays(env, transition, action):
    state = after(env, transition, [3, 5])
    end, reward, info = transition(state, action)
    assert end.terminated
    assert info["illegal"]
    assert int(info["cost"]) == 0
    chex.assert_trees_all_equal(end.core, state.core)
    chex.assert_trees_all_equal(end.order, state.order)
    assert int(end.cost) == int(state.cost)
    assert float(reward) - float(state.cost) <= -check_total(env.graph)
    assert env.final_order(end) is None


def test_padded_slot_is_illegal(env):
    padded = VertexEnv(env.graph, spec=env.spec.padded(num_actions=env.num_actions + 1))
    state, reward, info = jax.jit(padded.transition)(padded.init(), env.num_actions)
    assert info["illegal"]
    assert state.terminated
    assert float(reward) <= -check_total(env.graph)


@pytest.mark.parametrize("action", [0, 7, -5, 10**6])
def test_step_after_the_end_changes_nothing(env, transition, action):
    finished = after(env, transition, range(env.num_actions))
    illegal = after(env, transition, [0, 0])
    for end in (finished, illegal):
        assert end.terminated
        again, reward, info = transition(end, action)
        chex.assert_trees_all_equal(again, end)
        assert float(reward) == 0.0
        assert int(info["cost"]) == 0
        assert not info["illegal"]
    assert env.final_order(finished) == env.graph.forward()


FAR = [2**31, 2**32, 2**32 + 3, 2**40, 2**63 - 1, 2**63, 2**64 - 1, -1, -(2**32), -(2**63), 10**30]
TYPES = [int, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


def far_actions():
    """Integers of every type that are no slot, but would be one modulo a power of two."""
    yield from FAR
    for kind in TYPES[1:]:
        bounds = np.iinfo(kind)
        ends = {*few(FAR[2:3], of=FAR), int(bounds.min), int(bounds.max)} - {0}
        yield from (kind(x) for x in sorted(ends) if bounds.min <= x <= bounds.max)
    yield from (np.array(2**40), np.array(2**63, np.uint64), np.array([2**40])[0])


@pytest.mark.parametrize("x64", [False, True])
def test_every_integer_out_of_range_is_illegal(env, x64):
    with jax.enable_x64(x64):
        state = env.init()
        gymnax = GymnaxEnv(env)
        for action in far_actions():
            if 0 <= int(action) < env.num_actions:
                continue
            end, _, info = env.transition(state, action)
            assert info["illegal"] and end.terminated, repr(action)  # noqa: PT018
        for action in (2**40, np.int64(2**40), np.uint64(2**63), np.int64(-(2**40))):
            assert gymnax.step(None, state, action)[-1]["illegal"]


def test_wide_arrays_of_jax_are_not_cut(env):
    state = env.init()
    with jax.enable_x64(True):
        actions = [jnp.asarray(x) for x in (2**40, -(2**33), 2**32 + 3, 7)]
        actions.append(jnp.asarray(2**63, jnp.uint64))
        step = jax.jit(lambda state, action: env.transition(state, action)[2]["illegal"])
        assert [bool(step(state, action)) for action in actions] == [True, True, True, False, True]
    found = [bool(env.transition(state, action)[2]["illegal"]) for action in actions]
    assert found == [True, True, True, False, True]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint32, np.int32])
def test_integer_actions_of_every_dtype(env, dtype):
    state, _, _ = env.transition(env.init(), dtype(7))
    assert env.order(state) == (env.graph.eliminable[7],)


def test_dtypes_do_not_depend_on_the_precision(precision, env):
    fresh = VertexEnv(env.graph)
    obs, state = jax.jit(fresh.reset)()
    outputs = jax.jit(fresh.step)(None, state, 0)
    found = {str(x.dtype) for x in jax.tree.leaves((obs, state, outputs))}
    assert found == {"int32", "uint32", "float32", "bool"}
    before, later = jax.tree.map(lambda x: x.dtype, (state, outputs[1]))
    assert before == later


def test_step_compiles_once(env):
    other = VertexEnv(small_graph(kept_outputs), spec=env.spec)
    traced = chex.assert_max_traces(n=1)(env.step)
    step = jax.jit(traced)
    for params in (env.default_params, other.default_params):
        state = env.init(params)
        for slot in (0, 1, 1, -3, 500):
            _, state, *_ = step(None, state, slot, params)


@pytest.mark.parametrize("sizes", [(2, 3, 3, 5), (0, 1, 2)], ids=["full", "empty"])
def test_no_product_takes_more_operations_than_its_bound(sizes):
    """With the additions of the sum it enters: twice the sizes of its three variables."""
    rng = np.random.default_rng(0)
    for _ in range(few(1000, of=3000)):
        shapes = [tuple(rng.choice(sizes, rng.integers(0, 4))) for _ in range(3)]
        out, mid, inn = (tuple(int(n) for n in shape if n != 1) for shape in shapes)
        product = multiply(random_structure(rng, out, mid), random_structure(rng, mid, inn))
        total = add(product.structure, random_structure(rng, out, inn))
        operations = product.operations + total.num_values
        assert operations <= 2 * prod(n or 2 for n in (*out, *mid, *inn))


def test_bound_of_operations_is_twice_that_of_multiplications(env):
    total = check_total(env.graph)
    assert check_total(env.graph, "executed") == total
    assert check_total(env.graph, "operations") == 2 * total


@pytest.mark.parametrize(
    ("fun", "args", "why"),
    [
        (lambda x: jax.lax.scan(lambda c, _: (c * x, None), x, None, 5)[0], 1.0, "scan .a loop is"),
        (lambda x: jax.lax.fori_loop(0, x.astype(int), lambda _, c: c * 2, x), 1.0, "while"),
        (lambda n: jnp.sin(n * 2.0), 3, "depends differentiably .* integers have no derivative"),
        (lambda x: 2.0 * x, 1.0, "in one equation, mul"),
        (lambda x: x, 1.0, "depends"),
    ],
)
def test_a_function_without_moves_is_refused_with_the_reason(fun, args, why):
    with jax.numpy_dtype_promotion("standard"):
        with pytest.raises(ValueError, match=f"no vertex to eliminate, and so no action: .*{why}"):
            make(fun, jnp.asarray(args))
        assert VertexEnv(make_graph(fun)(jnp.asarray(args))).max_steps == 0


@pytest.mark.parametrize("kind", spared(["adjacency", "flat", "graph", "packed"], "adjacency"))
@pytest.mark.parametrize("dtype", spared(["float32", "float64"], "float64"))
def test_observations_lie_in_their_space_whatever_the_precision(kind, dtype):
    for fun in (kept_outputs, lambda x: jnp.sin(jnp.outer(x, x)) @ jnp.cos(x)):
        with jax.enable_x64(dtype == "float64"):
            env = make(fun, jnp.array([0.3, 0.7], dtype), observation=kind)
            obs, state = jax.jit(env.reset)()
            after = jax.jit(env.step)(None, state, 1)[0]
        for seen in (obs, after):
            fields = seen if kind == "flat" else as_fields(seen)
            space = env.observation_space
            for name, value in {"": fields}.items() if kind == "flat" else fields.items():
                box = space if kind == "flat" else space[name]
                value = np.asarray(value)
                assert box.contains(value.astype(np.int8) if value.dtype == bool else value), name


def interfaces(env):
    """Ways to play: what a reset and a step return, after a state to donate."""
    key = jax.random.key(3)
    gymnax, tasks = GymnaxEnv(env), TaskDistribution.of([env.graph] * 2)
    drawn, params = GymnaxEnv(tasks), env.default_params
    keys = jax.random.split(key)

    yield lambda: env.reset(key, params), lambda s: env.step(key, s, 0, params)
    yield lambda: gymnax.reset(key, params), lambda s: gymnax.step(key, s, 0, params)
    yield lambda: drawn.reset(key, tasks.params), lambda s: drawn.step(key, s, 0, tasks.params)
    yield (
        lambda: jax.vmap(lambda k: env.reset(k, params))(keys),
        lambda s: jax.vmap(lambda x: env.step(None, x, 0, params))(s),
    )
    yield (
        lambda: jax.vmap(drawn.reset)(keys),
        lambda s: jax.vmap(lambda k, x: drawn.step(k, x, 0))(keys, s),
    )


@pytest.mark.parametrize("observation", spared(["graph", "packed"], "packed"))
def test_states_can_be_donated(observation):
    """Nothing else is lost: params, keys, observations, infos and earlier states stay."""
    graph = small_graph(kept_outputs)
    env = VertexEnv(graph, "executed", shaping="reverse", normalise=True, observation=observation)
    # Outside of jit, where a result can be an argument.
    donated = jax.jit(lambda state: jax.tree.map(lambda x: x, state), donate_argnums=0)
    for reset, step in interfaces(env):
        obs, first = reset()
        obs_after, second, *rest = step(first)
        kept = obs, obs_after, rest, env.default_params
        expected = jax.tree.map(np.asarray, kept)
        donated(second)
        donated(first)
        chex.assert_trees_all_equal(jax.tree.map(np.asarray, kept), expected)
        again, _ = reset()
        chex.assert_trees_all_equal(again, obs)
