"""The Gymnasium adapters: values, ends, masks after a reset, rendering, registration."""

import functools
import pickle
import subprocess
import sys
import warnings

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import veenv
from tests.env.games import kept_outputs, new_game, small_graph
from tests.sampling import spared
from veenv.env import VertexEnv
from veenv.env.adapters import gymnasium_tasks, gymnasium_vector
from veenv.env.adapters.gymnasium import GymVertexEnv
from veenv.env.adapters.gymnasium_vector import GymVectorEnv
from veenv.env.observe import as_fields
from veenv.env.task_set import TaskDistribution
from veenv.tasks import list_tasks


@pytest.fixture(scope="module")
def keeper():
    """An environment that keeps the programs alive that all of this module's share."""
    return GymVertexEnv(TaskDistribution.of([small_graph(kept_outputs)]))


@pytest.fixture(scope="module")
def three(keeper):
    """Three environments side by side, whose programs are compiled once."""
    return GymVectorEnv(3, keeper.tasks, autoreset_mode="SameStep")


@pytest.fixture
def small(keeper):
    return keeper.tasks


@pytest.fixture
def graph(small):
    return small.graphs[0]


CHECKED = ("Robertson", "PropaneCombustion", "HumanHeartDipole", "mlp")


def legal(mask, rng):
    return int(rng.choice(np.flatnonzero(mask)))


@pytest.mark.parametrize(
    "env_id",
    spared([f"veenv/{name}-v0" for name in CHECKED], "veenv/Robertson-v0"),
)
def test_gymnasium_checker_has_nothing_to_say(env_id):
    for mode in ("ansi", "rgb_array"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with jax.numpy_dtype_promotion("standard"):
                env = gymnasium.make(env_id, render_mode=mode)
                check_env(env.unwrapped)


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"observation": "flat"}, marks=pytest.mark.slow),
        {"shaping": "reverse", "normalise": True, "cost": "executed"},
    ],
)
def test_an_environment_of_the_users_function(options):
    env = veenv.make(lambda x: jax.numpy.sin(x) * x.sum(), np.ones(3, np.float32), **options)
    with warnings.catch_warnings(), jax.numpy_dtype_promotion("standard"):
        warnings.simplefilter("error")
        game = GymVertexEnv(env, render_mode="rgb_array")
        check_env(game, skip_render_check=True)
        games = GymVectorEnv(2, env)
    assert game.env is games.env is env
    seen, info = game.reset(seed=0)
    jax.tree.map(
        np.testing.assert_array_equal, seen, jax.tree.map(lambda x: x[1], games.reset()[0])
    )
    while "order" not in info:
        _, _, terminated, _, info = game.step(info["action_mask"].argmax())
    assert terminated
    assert env.graph.cost(info["order"], env.cost) == info["total"]
    assert game.step(0)[1:4] == (0.0, True, False)
    with pytest.raises(ValueError, match=r"cost='[a-z]*' of its own, got 'operations'"):
        GymVertexEnv(env, cost="operations")


OWN = "; veenv.register_task('mine', lambda x: x * x * x, (2.0,))"
SPEC = "; print(gymnasium.spec('veenv/{}-v0').kwargs)"


@pytest.mark.whole
@pytest.mark.parametrize(
    "program",
    [
        "import gymnasium; gymnasium.make('veenv:veenv/Robertson-v0')",
        "import gymnasium, veenv" + SPEC.format("RoeFlux"),
        "import veenv, gymnasium.spaces" + SPEC.format("RoeFlux"),
        "import gymnasium, veenv" + OWN + SPEC.format("mine"),
        "import veenv, gymnasium" + OWN + "; gymnasium.make('veenv/mine-v0').reset()",
        "import veenv; veenv.register_task('my own, λ', lambda x: x * x, (2.0,)); import gymnasium"
        + SPEC.format("mlp"),
        "import sys, veenv; assert not {'gymnasium', 'jax'} & sys.modules.keys()",
    ],
)
def test_tasks_are_registered_whichever_is_imported_first(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_task_is_registered():
    for name in list_tasks():
        assert gymnasium.spec(f"veenv/{name}-v0").kwargs == {"task": name}
    env = gymnasium.make("veenv:veenv/PropaneCombustion-v0", cost="executed").unwrapped
    assert env.env.cost == "executed"
    assert env.env.num_actions == 51


@pytest.mark.parametrize("action", [-1, 10**20, np.int64(2**32)])
def test_illegal_action(small, action):
    env = GymVertexEnv(small)
    obs, _ = env.reset()
    after, reward, terminated, truncated, info = env.step(action)
    assert terminated
    assert not truncated
    assert info["illegal"]
    assert "order" not in info
    assert reward <= -float(env.env.default_params.worst_total)
    for name in ("adjacency", "action_mask"):
        np.testing.assert_array_equal(obs[name], after[name])


def test_several_tasks_in_one_environment():
    tasks = ("PropaneCombustion", "HumanHeartDipole")
    env = GymVertexEnv(tasks)
    lengths = {}
    for name in tasks:
        _, info = env.reset(options={"task": name.upper()})
        assert info["task"] == name
        lengths[name] = info["action_mask"].sum()
    assert lengths == {"PropaneCombustion": 51, "HumanHeartDipole": 78}
    drawn = [env.reset(seed=seed)[1]["task"] for seed in range(12)]
    assert set(drawn) == set(tasks)
    assert drawn == [env.reset(seed=seed)[1]["task"] for seed in range(12)]
    vector = GymVectorEnv(3, tasks)
    _, info = vector.reset()
    assert set(info["action_mask"].sum(-1)) == {51, 78}
    _, info = vector.reset(options={"task": "HumanHeartDipole"})
    assert info["action_mask"].sum(-1).tolist() == [78, 78, 78]


@pytest.mark.parametrize("kind", [GymVertexEnv, GymVectorEnv])
def test_a_task_set_has_options_of_its_own(kind):
    tasks = TaskDistribution.of(["Robertson"], "executed", shaping="reverse", normalise=True)
    same = kind(task=tasks, cost="executed", shaping="reverse", normalise=True)
    assert same.tasks is kind(task=tasks).tasks is tasks
    for option in ({"cost": "multiplications"}, {"shaping": "forward"}):
        [(name, value)] = option.items()
        with pytest.raises(ValueError, match=f"{name}='.*' of its own, got '{value}'"):
            kind(task=tasks, **option)
    with pytest.raises(ValueError, match="normalise=False of its own, got True"):
        kind(task=TaskDistribution.of(["Robertson"]), normalise=True)
    assert kind(task="Robertson").env.cost == "multiplications"


def test_vector_draws_the_task_of_each_later_episode():
    pool = TaskDistribution.random(0, 5, vertices=(4, 8), inputs=(1, 3), shaping="reverse")
    vector = GymVectorEnv(3, pool, autoreset_mode="SameStep")

    def run(seed, options=None):
        """Plays forward orders, checked against the host; the tasks played, in order."""
        _, info = vector.reset(seed=seed, options=options)
        played = list(info["task"])
        games = [new_game(pool.graphs[pool.index(name)], "multiplications") for name in played]
        for _ in range(25):
            names = info["task"]
            slots = info["action_mask"].argmax(-1)
            _, _, terminated, _, info = vector.step(slots)
            for i, game in enumerate(games):
                price = game.eliminate(game.graph.node(game.graph.eliminable[slots[i]]))
                ended = info["final_info"] if terminated[i] else info
                assert (ended["task"][i], ended["cost"][i]) == (names[i], price)
                assert terminated[i] == (not game.left)
                if terminated[i]:
                    assert ended["order"][i].tolist() == list(game.graph.eliminable)
                    played.append(info["task"][i])
                    games[i] = new_game(pool.graphs[pool.index(played[-1])], "multiplications")
        return played

    firsts = {tuple(vector.reset(seed=seed)[1]["task"]) for seed in range(8)}
    assert len(firsts) > 1
    assert all(len(set(first)) == 3 for first in firsts)
    assert set().union(*firsts) == set(run(0)) == set(pool.names)
    assert run(0) == run(np.int64(0)) == run([None, 0, None]) != run(1)
    assert run([1, 2, 3]) == run([1, 2, 3]) != run([1, 2, 4])
    assert set(run(0, {"task": pool.names[4]})) == {pool.names[4]}


def test_vector_steps_equal_those_of_gymnasiums_own_vector_of_environments(three, small, graph):
    num, rng, ours = 3, np.random.default_rng(4), three
    single = functools.partial(GymVertexEnv, small)
    theirs = SyncVectorEnv([single] * num, autoreset_mode=AutoresetMode.SAME_STEP)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    (obs, info), (expected_obs, expected_info) = ours.reset(seed=0), theirs.reset(seed=0)
    ends = 0
    for _ in range(2 * len(graph.eliminable)):
        for name in obs:
            np.testing.assert_array_equal(obs[name], expected_obs[name])
        for name in ("action_mask", "cost", "total", "illegal"):
            np.testing.assert_array_equal(info[name], expected_info[name])
        masks = np.stack([env.action_masks() for env in theirs.envs])
        np.testing.assert_array_equal(masks, info["action_mask"].astype(bool))
        np.testing.assert_array_equal(ours.action_masks(), masks)
        slots = np.array([legal(mask, rng) for mask in info["action_mask"]])
        slots[0] = slots[0] if rng.random() < 0.8 else -1
        obs, *results, info = ours.step(slots)
        expected_obs, *expected, expected_info = theirs.step(slots)
        for result, wanted in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, wanted)
        assert ("final_obs" in info) == ("final_obs" in expected_info)
        if "final_obs" in info:
            check_final_like_gymnasiums(info, expected_info)
            ends += 1
    assert ends > 3


def check_final_like_gymnasiums(info, expected):
    where = expected["_final_obs"]
    np.testing.assert_array_equal(info["_final_obs"], where)
    np.testing.assert_array_equal(info["_final_info"], expected["_final_info"])
    for ours, theirs in zip(info["final_obs"][where], expected["final_obs"][where], strict=True):
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name])
    for name in ("cost", "total", "illegal", "action_mask"):
        ours, theirs = info["final_info"][name], expected["final_info"][name]
        np.testing.assert_array_equal(ours[where], theirs[where])
    played = info["final_info"]["_order"]
    np.testing.assert_array_equal(
        played & where, expected["final_info"].get("_order", False) & where
    )
    for i in np.flatnonzero(played & where):
        np.testing.assert_array_equal(*(x["final_info"]["order"][i] for x in (info, expected)))


def test_make_vec():
    envs = gymnasium.make_vec("veenv:veenv/PropaneCombustion-v0", num_envs=3, cost="executed")
    theirs = SyncVectorEnv([lambda: GymVertexEnv("Robertson")])
    assert envs.metadata["autoreset_mode"] is theirs.metadata["autoreset_mode"]
    assert envs.spec.max_episode_steps == 52
    obs, _ = envs.reset(seed=0)
    assert obs["features"].shape == (3, 51, 8)
    assert isinstance(envs.unwrapped, GymVectorEnv)
    _, rewards, *_ = envs.step(np.array([0, 1, 2]))
    env = VertexEnv(envs.unwrapped.tasks.graphs[0], "executed")
    expected = [float(env.transition(env.init(), slot)[1]) for slot in range(3)]
    np.testing.assert_array_equal(rewards, expected)


def test_frames_show_what_a_step_changed(small, graph, monkeypatch):
    frames = []
    monkeypatch.setattr(gymnasium_tasks, "ansi", frames.append)
    env, game = GymVertexEnv(small, render_mode="ansi"), new_game(graph, "multiplications")
    _, info = env.reset()
    rng = np.random.default_rng(2)
    while info["action_mask"].any():
        slot = legal(info["action_mask"], rng)
        before = game.edges.copy()
        game.eliminate(graph.node(graph.eliminable[slot]))
        *_, info = env.step(slot)
        env.render()
        found = [set(edges) for edges in frames[-1].changes]
        after = game.edges
        assert found == [before & after, after - before, before - after]
        assert (frames[-1].order[-1], frames[-1].total) == (graph.eliminable[slot], info["total"])


def test_render(small, graph):
    env = GymVertexEnv(small, render_mode="rgb_array")
    assert GymVertexEnv(small).render_mode is None
    env.reset()
    first = env.render()
    env.step(3)
    second = env.render()
    assert first.dtype == np.uint8
    assert first.shape == second.shape == (600, 960, 3)
    assert (first != second).any()
    text = GymVertexEnv(small, render_mode="ansi")
    text.reset()
    text.step(3)
    vertex = graph.eliminable[3]
    assert f"last: vertex {vertex}," in text.render()
    assert text.render().startswith(f"graph 0: 1 of {len(graph.eliminable)} vertices eliminated")
    vector = GymVectorEnv(2, small, render_mode="ansi")
    vector.reset()
    vector.step([3, 4])
    assert vector.render()[0] == text.render()


@pytest.mark.parametrize(
    "actions",
    [
        [2**40, 2**63, 10**30],
        (-(2**33), 2**64 - 1, -1),
        np.array([2**32, 2**40, -(2**40)]),
        np.array([2**32, 2**63, 2**64 - 1], np.uint64),
        np.array([10**30, -(10**30), 2**32], object),
    ],
)
def test_vector_actions_out_of_range_are_illegal(three, actions):
    three.reset()
    *_, infos = three.step(actions)
    assert infos["final_info"]["illegal"].tolist() == [True] * 3


@pytest.mark.parametrize("kind", spared(["flat", "graph", "packed"], "graph"))
def test_every_kind_of_observation_is_shown(kind, graph):
    """Single and side by side, as the environment itself shows them."""
    plain = VertexEnv(graph, observation=kind)
    expected, state = plain.reset()
    env = GymVertexEnv(graph, observation=kind, render_mode="ansi")
    vector = GymVectorEnv(2, graph, observation=kind, render_mode="ansi")
    for slot in (None, 0):
        if slot is None:
            (one, _), (several, _) = env.reset(), vector.reset()
        else:
            expected, state, *_ = plain.step(None, state, slot)
            one, several = env.step(slot)[0], vector.step(np.full(2, slot))[0]
        assert one in env.observation_space
        assert several in vector.observation_space
        seen = {"obs": expected} if kind == "flat" else as_fields(expected)
        ours, theirs = ({"obs": x} if kind == "flat" else x for x in (one, several))
        for name, value in seen.items():
            np.testing.assert_array_equal(ours[name], value)
            np.testing.assert_array_equal(theirs[name], np.stack([value, value]))
    assert vector.render()[1] == env.render() != ""


@pytest.mark.parametrize("ours", [GymVertexEnv, functools.partial(GymVectorEnv, 2)])
def test_environments_that_were_used_can_be_pickled(ours, small):
    env = ours(task=small)
    env.reset(seed=1)
    slots = np.zeros(2, int) if isinstance(env, GymVectorEnv) else 0
    env.step(slots)
    assert small.classical  # the graph has been priced
    other = pickle.loads(pickle.dumps(env))
    (seen, *rest), (expected, *others) = (e.step(slots + 1) for e in (other, env))
    for name, value in expected.items():
        np.testing.assert_array_equal(seen[name], value)
    np.testing.assert_array_equal(rest[0], others[0])
    np.testing.assert_array_equal(other.action_masks(), env.action_masks())


def test_specs_tell_the_length_of_episodes_and_truncate_nothing():
    env = gymnasium.make("veenv/RoeFlux-v0")
    assert env.spec.max_episode_steps == env.unwrapped.env.max_steps + 1 == 99
    assert env.unwrapped.tasks.names == ("RoeFlux",)
    again = gymnasium.make(gymnasium.make("veenv/Robertson-v0").spec)
    _, info = again.reset()
    done = False
    while not done:
        _, _, done, truncated, info = again.step(int(info["action_mask"].argmax()))
        assert not truncated
    assert "order" in info


def test_observations_that_are_kept_stay_as_they_are(graph, monkeypatch):
    """Arrays are used again, and made in blocks; yet nobody sees what is not theirs."""
    small = VertexEnv(graph)
    most = max(x.nbytes for x in as_fields(small.reset()[0]).values())
    monkeypatch.setattr(gymnasium_vector, "_WHOLE", 2 * most)
    monkeypatch.setattr(gymnasium_vector, "_BLOCK", 2 * most)  # so blocks of two of three overlap
    vector = GymVectorEnv(3, graph)
    first, _ = vector.reset()
    kept, copies = [first], [{name: x.copy() for name, x in first.items()}]
    rows, state = first["features"][1:], small.init()
    for slot in range(small.max_steps):
        seen, *_ = vector.step(np.full(3, slot))
        state, *_ = small.transition(state, slot)
        expected = as_fields(small.observe(state))
        for name, value in expected.items():
            np.testing.assert_array_equal(seen[name], np.stack([value] * 3))
        if slot % 2:
            kept.append(seen)
            copies.append({name: x.copy() for name, x in seen.items()})
    for held, copy in zip(kept, copies, strict=True):
        for name, value in copy.items():
            np.testing.assert_array_equal(held[name], value)
    np.testing.assert_array_equal(rows, copies[0]["features"][1:])
    vector.step(np.zeros(3, int))
    last = vector.step(np.zeros(3, int))[0]["features"]
    view = last[:1]
    del last
    before = view.copy()
    for _ in range(3):
        vector.step(np.zeros(3, int))
    np.testing.assert_array_equal(view, before)
