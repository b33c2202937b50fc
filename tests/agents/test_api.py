"""`veenv.agents.train`: three lines from a function to a proved order."""

from __future__ import annotations

import dataclasses

import jax
import pytest

import veenv
from tests.agents.conftest import chain, tangle, wide
from veenv import agents
from veenv.agents.config.args import parse_training
from veenv.agents.nn.networks import GraphNetwork
from veenv.agents.training.inputs import Played
from veenv.env import Spec, TaskDistribution, VertexEnv
from veenv.env.rewards import classical_orders
from veenv.measure.report import read_subjects
from veenv.orders.order import Order

ENV = veenv.make(chain, 1.0)
SMALL = agents.PPOConfig(num_envs=2, steps=20, hidden=4)


@pytest.mark.slow
def test_a_function_is_trained_on_proved_and_gone_on_with(tmp_path):
    seen = []
    folder = tmp_path / "run"
    given = {"args": (1.0, 2.0), "folder": folder}
    run = agents.train(wide, SMALL, callback=seen.append, **given)
    assert run.order.name == "wide"
    graph = run.played.tasks.graphs[0]
    assert graph.cost(run.order.ids) == run.order.counts["multiplications"]
    assert run.prove(points=1)["wide"].passed
    assert [row["update"] for row in run.history] == list(range(1, len(seen) + 1))
    assert (folder / "order.json").exists()
    [played] = run.evaluate(2).rows
    assert min(played.costs) <= played.mean

    more = agents.train(wide, agents.PPOConfig(num_envs=2, steps=40, hidden=4), **given)
    assert more.history[0]["update"] == len(seen) + 1
    assert more.steps >= 40
    with pytest.raises(ValueError, match="of another task"):
        agents.train(chain, SMALL, args=(1.0,), folder=folder)


def test_what_can_be_played(wide_graph, both):
    env = VertexEnv(wide_graph, "executed", shaping="reverse")
    for what, names, functions in [
        (env, ("graph",), ()),
        ([wide_graph, "Robertson"], ("graph 0", "Robertson"), ("Robertson",)),
        (both, ("wide", "chain"), ()),
        (veenv.tasks.get("Robertson"), ("Robertson",), ("Robertson",)),
    ]:
        played = Played.of(what)
        assert played.tasks.names == names
        assert tuple(played.functions) == functions
        assert played.tasks.env.normalise
        assert played.tasks.env.cost == ("executed" if what is env else "multiplications")


def test_an_environment_is_played_with_all_its_options(wide_graph):
    """But for rewards, which are normalised, and for other observations, which are refused."""

    class Doubled(VertexEnv):
        def transition(self, state, action, params=None):
            state, reward, info = super().transition(state, action, params)
            return state, 2 * reward, info

    spec = Spec.of(wide_graph, "executed").padded(num_actions=9)
    env = Doubled(wide_graph, "executed", spec=spec, shaping="reverse")
    tasks = Played.of(env).tasks
    scale = min(
        wide_graph.cost(order, "executed") for order in classical_orders(wide_graph).values()
    )
    for slot in range(3):
        _, expected, _ = env.transition(env.init(), slot)
        _, reward, _ = tasks.env.transition(tasks.env.init(), slot, tasks.task(0))
        assert float(reward) == pytest.approx(float(expected) / scale)
    assert tasks.env.spec == spec
    assert not env.normalise
    for kind in ("flat", "graph", "packed"):
        with pytest.raises(ValueError, match=rf"got '{kind}': pass .*observing\('adjacency'\)"):
            agents.train(env.observing(kind), SMALL)
        network = GraphNetwork(hidden=4, key=jax.random.key(0))
        with pytest.raises(ValueError, match=rf"got '{kind}'"):
            veenv.evaluate(network, TaskDistribution.of(["Robertson"]).observing(kind))


def test_a_stopped_run_knows_its_options_and_where_a_classical_order_costs_less(tmp_path):
    def stop(progress):
        raise KeyboardInterrupt

    network = GraphNetwork(hidden=6, num_hops=0, key=jax.random.key(0))
    options = {"network": network, "folder": tmp_path, "callback": stop}
    where = {"args": (1.0, 2.0, 0.5, 0.3), "argnums": range(4)}
    run = agents.train(tangle, SMALL, time_limit="3m", **where, **options)
    read = parse_training(["--config", str(tmp_path / "config.toml")])
    assert (read.ppo.hidden, read.ppo.num_hops, read.seconds) == (6, 0, 180.0)
    graph = run.played.tasks.graphs[0]
    costs = [graph.cost(order) for order in classical_orders(graph).values()]
    assert run.best.cost("tangle") > min(costs)  # after one update
    assert graph.cost(run.classical["tangle"].ids) == min(costs)
    assert f"takes fewer: {min(costs):,} (see classical)" in repr(run)
    assert Order.load(tmp_path / "order-classical.json").ids == run.classical["tangle"].ids
    [subject] = read_subjects(tmp_path, task=run.played.functions["tangle"])
    assert subject.order.ids == run.order.ids
    (tmp_path / "order.json").write_text("{}")
    with pytest.warns(UserWarning, match=r"order\.json.* it is kept in order\.json\.damaged"):
        agents.train(run.played.tasks, SMALL, **options)


def test_ctrl_c_returns_what_was_found(both, trainer):
    def interrupt(progress):
        raise KeyboardInterrupt

    run = agents.train(both, dataclasses.replace(trainer.config, steps=900), callback=interrupt)
    assert list(run.orders) == list(both.names)
    for graph, order in zip(both.graphs, run.orders.values(), strict=True):
        assert graph.cost(order.ids) == order.counts["multiplications"]
    with pytest.raises(ValueError, match="several tasks were played; orders has wide, chain"):
        _ = run.order
    assert len(run.history) == 1
    with pytest.raises(ValueError, match="has no function to prove"):
        run.prove()


@pytest.mark.parametrize(
    ("what", "options", "error", "message"),
    [
        (wide, {}, TypeError, "the function wide needs args"),
        (wide, {"args": 1.0}, ValueError, "args must be a tuple"),
        (wide, {"args": (1.0,)}, ValueError, "wide cannot be traced"),
        (ENV, {"cost": "executed"}, ValueError, "a cost model of its own, multiplications; got"),
        (ENV, {"args": (1.0,)}, ValueError, "an environment has arguments of its own"),
        ([ENV, ENV], {}, TypeError, "a list of them, an environment or a task set, got VertexEnv"),
        (ENV.graph, {"args": (1.0,)}, ValueError, "a graph has arguments of its own"),
        (ENV, {"search": agents.SearchConfig(8)}, ValueError, "PPO does not search"),
        (7, {}, TypeError, "expected a function, a task or its name, .* got int: 7"),
        ("nosuch", {}, ValueError, "unknown task"),
        ("Robertson", {"args": (1.0,)}, ValueError, "a task has arguments of its own"),
        (["Robertson", "robertson"], {}, ValueError, "names Robertson twice"),
        ("Robertson", {"agent": "dqn"}, ValueError, "agent must be one of ppo, alphazero"),
        ("Robertson", {"time_limit": -1}, ValueError, "time_limit must be a positive"),
        (TaskDistribution.of(["Robertson"]), {}, ValueError, "normalise=True"),
    ],
)
def test_wrong_input(what, options, error, message):
    with pytest.raises(error, match=message):
        agents.train(what, SMALL, **options)
