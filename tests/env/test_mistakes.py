"""Mistakes that researchers make: each ends in an error that says what to do, or as documented."""

from __future__ import annotations

import functools
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import veenv
from veenv import agents
from veenv.env import Spec, TaskDistribution, VertexEnv, random_params
from veenv.env.adapters import GymnaxEnv, GymVectorEnv, GymVertexEnv
from veenv.tasks import RandomFunctions

PAGE = Path(__file__).parents[2] / "docs" / "environment.md"
make = functools.cache(veenv.make)


def env(**options):
    return make("Robertson", **options)


def graph():
    return env().graph


def own(fun=lambda x: jnp.sin(jnp.exp(x)) * x, *args, **options):
    """An environment of a function of one's own."""
    return veenv.make(fun, *(args or (1.0,)), **options)


def tasks(*names, **options):
    return TaskDistribution.of(list(names or ("Robertson", "PropaneCombustion")), **options)


def single(action, **options):
    """A step of the Gymnasium environment after its reset."""
    game = GymVertexEnv("Robertson", **options)
    game.reset()
    return game.step(action)


def several(actions):
    games = GymVectorEnv(2, "Robertson")
    games.reset()
    return games.step(actions)


def random_functions(**ranges):
    return lambda: TaskDistribution.random(0, 2, **ranges)


def without_reference(options, form, play):
    """Random graphs have no scale and no reference."""
    shaped = env(**options)
    state, params = shaped.init(), random_params(jax.random.key(0), shaped.spec)
    return lambda: form(functools.partial(play, shaped, state))(params)


NO_TASK = "expected a task's name or a graph, got"
FUNCTION = NO_TASK + r" the function .*veenv.make_graph\(\w+\)\(\*args"
OWN_SPEC = "params are of another Spec: "
WRONG = {
    ValueError: [
        (lambda: env().reset(None, make("PropaneCombustion").default_params),
         OWN_SPEC + ".* encode the graph with env.encode"),
        (lambda: env().step(None, env().init(), 0, make("RobotArm_6DOF").default_params),
         OWN_SPEC + r".*vertex_ids .*\(108,\).*\(6,\)"),
        (lambda: jax.jit(env().reset)(None, own(lambda x: x * jnp.sin(x), jnp.ones(3))
                                      .default_params), OWN_SPEC + ".*vertex_ids"),
        (lambda: env().reset(None, own(lambda x, y: jnp.sin(x) * y, 1.0, 1.0, argnums=(0, 1))
                             .default_params), OWN_SPEC),
        (lambda: env().reset(None, tasks("Robertson", "Robertson").params), "pick_params"),
        (lambda: tasks().env.reset(None, tasks().params), "pick one task's from stacked params"),
        (lambda: env().step(None, env().init(), jnp.array([3])), r"one slot .* got \(1,\)"),
        (lambda: jax.eval_shape(lambda a: env().step(None, env().init(), a), jnp.zeros(3, int)),
         r"use jax\.vmap for several"),
        (lambda: agents.train(tasks("Robertson")), "expected tasks with normalise=True"),
        (lambda: agents.train(tasks("Robertson", normalise=True).observing("packed")),
         r"got 'packed': pass env.observing\('adjacency'\)"),
        (lambda: make("PropaneCombustion", spec=env().spec.padded(num_inputs=99, num_outputs=99)),
         "num_actions of at least 51, got 6"),
        (lambda: several(np.zeros(3, int)), r"expected actions of shape \(2,\), got \(3,\)"),
        (lambda: several([0]), r"shape \(2,\)"),
        *((lambda n=n: GymVectorEnv(n, "Robertson"), "num_envs must be an integer of at least 1")
          for n in ("4", 2.5, None, 0)),
        *((lambda a=a: single(a), "an action is one slot, got an array of shape")
          for a in (np.array([0]), np.array([0, 1]), [0], jnp.zeros((1, 1), jnp.int32))),
        (lambda: veenv.make(jnp.sin), "0 positional arguments: give the arguments at which"),
        (lambda: veenv.optimize(jnp.sin), "0 positional arguments: give the arguments at which"),
        (random_functions(vertices=20), r"vertices must be a range \(low, high\) .*, got 20"),
        (random_functions(windows=(1, 2, 3)), r"windows must be a range .*, got \(1, 2, 3\)"),
        (random_functions(fan_out="ab"), "fan_out must be a range .*, got 'ab'"),
        (lambda: RandomFunctions(vertices=(9, 8)), "vertices must be a range"),
        (lambda: RandomFunctions(fan_out=(0.5, 1.0)), "fan_out must be a range"),
        (lambda: RandomFunctions(arrays=1.5), "share from 0 to 1"),
        (lambda: RandomFunctions(vertices=(5, 9), inputs=(1, 10)), "need at least 9 vertices"),
        (lambda: TaskDistribution.random(0, 0), "at least one function"),
        (lambda: TaskDistribution.random(0, 1, spec=Spec(8, 2, 4)), "num_actions of at least"),
        (lambda: tasks("Robertson").renewed(0), "only a pool"),
        (lambda: TaskDistribution.of([]), "at least one graph"),
        (lambda: Spec.common([]), "at least one graph"),
        (lambda: veenv.evaluate("cost", []), "expected at least one graph or task, got none"),
        (lambda: make("KerrMetric", shaping=veenv.best_order("Robertson")),
         "order 'Robertson' is for another graph"),
        (lambda: make("PropaneCombustion", shaping="backward"), "must be one of forward, reverse"),
        (lambda: VertexEnv(graph(), shaping=graph().eliminable[1:]), "order misses"),
        (lambda: own(shaping="reverse").transition(own().init(), 0, own().default_params),
         "these params have no reference"),
        *((without_reference(options, form, play), f"have no {lacks}, .* without {name}")
          for name, lacks, options in (("normalise", "scale", {"normalise": True}),
                                       ("shaping", "reference", {"shaping": "reverse"}))
          for form in (lambda f: f, jax.jit)
          for play in (lambda e, s, p: e.reset(None, p), lambda e, s, p: e.transition(s, 0, p)[1],
                       lambda e, s, p: e.step(None, s, 0, p)[2])),
        (lambda: random_params(jax.random.key(0), make("LIF").spec), "random graphs need a scalar"),
        (lambda: env(observation="pixels"), "one of adjacency, flat, graph, packed, got 'pixels'"),
        (lambda: env(observation="graph", max_edges=0), "max_edges must be at least 1, got 0"),
        (lambda: env(max_edges=9), "belongs to observation='graph', not to 'adjacency'"),
        (lambda: GymnaxEnv(env(observation="graph"), flat=True),
         "flat=True does not go with observation='graph'"),
        (lambda: GymnaxEnv(tasks()).reset(), "needs a key"),
        *((lambda m=m: GymVectorEnv(2, "Robertson", autoreset_mode=m),
           "must be one of SameStep, NextStep") for m in ("Disabled", AutoresetMode.DISABLED)),
        (lambda: GymVectorEnv(2, "Robertson", max_episode_steps=0), "must be at least 1, got 0"),
        (lambda: GymVertexEnv("Robertson", render_mode="human"),
         "render_mode must be one of ansi, rgb_array"),
        (lambda: GymVertexEnv("Robertson").reset(options={"tusk": "mlp"}), "the only option"),
        (lambda: GymVertexEnv("Robertson").reset(options={"task": "mlp"}), "not among those"),
        (lambda: make("RoeFlx"), "did you mean"),
        (lambda: make("RoeFlux", 1.0), "neither arguments"),
        (lambda: make("RoeFlux", cost="flops"), "cost must be one of"),
        (lambda: VertexEnv(graph(), "executed", spec=Spec.of(graph(), "operations")),
         "'executed' does not count additions"),
        (lambda: VertexEnv(graph(), "operations", spec=Spec.of(graph(), "executed")),
         "'operations' counts additions"),
        (lambda: Spec.common([Spec.of(graph(), "operations"), env().spec]), "one cost model"),
        (lambda: VertexEnv(graph(), spec=env().spec.padded(num_actions=1)),
         "num_actions of at least 6, got 1"),
        (lambda: VertexEnv(graph(), "executed", spec=env().spec), "unit edges"),
        *((lambda read=read: getattr(env(), read)(jax.vmap(lambda _: env().init())(jnp.arange(3))),
           r"got those of \(3,\); .* pick episode k") for read in ("order", "final_order")),
    ],
    TypeError: [
        (lambda: veenv.make("Robertson", spec=3), "spec must be a Spec, or None .*, got 3"),
        (lambda: veenv.make("Robertson", normalise=0.5), "normalise must be True or False"),
        *((lambda a=a: jax.eval_shape(lambda: env().step(None, env().init(), a)), "integer slot")
          for a in (1.0, float("nan"), True, np.float32(1), jnp.ones(()))),
        *((lambda a=a: single(a), "integer slot")
          for a in (0.0, float("nan"), True, None, np.float32(1))),
        (lambda: several(np.zeros(2)), "actions are integer slots, got dtype float64"),
        *((lambda f=f: tasks("RoeFlux_1d", f), FUNCTION) for f in (jnp.sin, np.sin, lambda x: x)),
        (lambda: gymnasium.make("veenv/RoeFlux_1d-v0", task=np.sin), FUNCTION),
        (lambda: gymnasium.make_vec("veenv/RoeFlux_1d-v0", num_envs=2, task=np.sin), FUNCTION),
        (lambda: tasks(3), f"{NO_TASK} int: 3"),
        (lambda: gymnasium.make("veenv/RoeFlux_1d-v0", task=7), f"{NO_TASK} int: 7"),
        (lambda: veenv.make(3), "expected .*, got 3"),
        (lambda: GymnaxEnv(3), "expected .*, got 3"),
        (random_functions(vertex=(3, 3)), r"have vertices, inputs, .* got \['vertex'\]"),
    ],
    gymnasium.error.ResetNeeded: [
        *((lambda call=call: call(GymVertexEnv("Robertson", render_mode="ansi")), "reset")
          for call in (lambda e: e.step(0), lambda e: e.render(), lambda e: e.action_masks())),
        *((lambda call=call: call(GymVectorEnv(2, "Robertson")), "reset")
          for call in (lambda e: e.step([0, 0]), lambda e: e.render(), lambda e: e.action_masks())),
    ],
}  # fmt: skip
ROWS = [(error, *row) for error, rows in WRONG.items() for row in rows]


@pytest.mark.parametrize(("error", "call", "message"), ROWS)
def test_what_is_wrong_is_said(error, call, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(("task", "observation"), [("Robertson", "flat"), ("LIF", "packed")])
def test_what_is_no_state_of_this_environment(task, observation):
    env = veenv.make(task, observation=observation)
    obs, state = env.reset()
    several = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), state)
    others = [veenv.make(name).init() for name in ("KerrMetric", "mlp")]
    calls = (env.transition, lambda s, a: env.step(None, s, a), lambda s, a: env.observe(s))
    for call in calls:
        with pytest.raises(TypeError, match="expected the State that reset and step return"):
            call(obs, 1)
        with pytest.raises(ValueError, match=r"one episode, got those of \(2,\); use jax.vmap"):
            call(several, 1)
        for other in others:
            with pytest.raises(ValueError, match=r"of another environment: it has \d+ actions"):
                call(other, 1)
    assert jax.vmap(env.transition, (0, None))(several, 1)[1].shape == (2,)


def test_params_with_other_rewards_are_welcome():
    plain, shaped = own(), own(shaping="reverse", normalise=True)
    _, reward, _ = plain.transition(plain.init(), 0, shaped.default_params)
    assert float(reward) == float(shaped.transition(shaped.init(), 0)[1])
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[plain.default_params] * 3)
    assert jax.vmap(plain.init)(stacked).cost.shape == (3,)
    spec = Spec.of(plain.graph, "multiplications").padded(num_actions=5)
    padded = VertexEnv(plain.graph, spec=spec)
    assert padded.init(padded.encode(plain.graph)).action_mask.shape == (5,)
    params = random_params(jax.random.key(0), env(shaping="reverse").spec)
    assert env().reset(None, params)[1].action_mask.any()
    assert make("roeflux").num_actions == 98
    assert make(graph(), cost="executed").cost == "executed"


def test_an_order_measures_rewards():
    order = veenv.best_order("Robertson")
    shaped, by_ids = (env(shaping=s) for s in (order, order.ids))
    np.testing.assert_array_equal(shaped.default_params.reference, by_ids.default_params.reference)


def test_the_page_lists_them():
    section = PAGE.read_text(encoding="utf-8").split("## Common mistakes")[1]
    rows = [line for line in section.split("##")[0].splitlines() if line.startswith("| ")]
    assert len(rows) >= 12  # with the heading
