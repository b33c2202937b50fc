"""The examples run, and what they find is an order's cost between the least and the dearest."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import jax
import jax.numpy as jnp
import pytest

import veenv
from tests.docs.pages import example
from veenv.env.factory import task_graph

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
LEAST, MOST = 17, 40  # Robertson: proven least, and more than any order

SMALL = {
    "noisy_markowitz": ((), {"seconds": 0.1}, []),
    "ppo_one_file": ((), {"updates": 2, "num_envs": 4}, [pytest.mark.slow]),
    "maskable_ppo": (("sb3_contrib",), {"episodes": 8}, [pytest.mark.clients]),
    "rejax_ppo": (("rejax",), {"episodes": 8}, [pytest.mark.clients]),
    "torchrl_random": (("torchrl",), {"episodes": 2}, [pytest.mark.clients]),
    "mctx_search": (("mctx",), {"num_simulations": 4}, [pytest.mark.clients]),
    "jumanji_loop": (("jumanji",), {"num_envs": 4}, [pytest.mark.clients]),
    "sweep_seeds": (
        (),
        {"seeds": 2, "steps": 24, "num_envs": 2, "hidden": 4},
        [pytest.mark.slow],
    ),
}


GRAPH = ("jumanji_loop", "maskable_ppo", "mctx_search", "ppo_one_file", "torchrl_random")
"""Those whose client takes observations of any kind: networks of rejax read one array."""


def test_every_example_is_run():
    # tests/search/test_protocol.py, tests/clients/test_own_networks.py
    elsewhere = {"own_policy", "flax_ppo"}
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SMALL) | elsewhere


def test_the_page_shows_lines_of_the_examples():
    """Blocks marked `py` need a library; these lines are run with the examples."""
    sources = [path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py")]
    page = (EXAMPLES.parent / "gymnasium.md").read_text(encoding="utf-8")
    page = page.partition("## Other RL libraries")[2]
    blocks = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    assert len(blocks) > 2
    for block in blocks:
        lines = {line.strip() for line in block.splitlines()}
        assert any(lines <= {x.strip() for x in s.splitlines()} | {""} for s in sources), block


@pytest.mark.parametrize(
    ("name", "more"),
    [pytest.param(name, {}, marks=marks) for name, (_, _, marks) in SMALL.items()]
    + [pytest.param(name, {"observation": "graph"}, marks=SMALL[name][2]) for name in GRAPH],
)
# The examples' libraries warn of what they like.
@pytest.mark.filterwarnings("default")
def test_example(name, more, tmp_path, monkeypatch, capsys):
    needs, settings, _ = SMALL[name]
    for library in needs:
        pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    module = example(name)
    with jax.numpy_dtype_promotion("standard"):
        found = module.main("Robertson", **settings, **more)
    for cost in found if isinstance(found, list) else [found]:
        assert LEAST <= cost <= MOST
    assert capsys.readouterr().out.startswith("Robertson: ")
    assert (tmp_path / "sweep.png").exists() == (name == "sweep_seeds")


@pytest.fixture(scope="module")
def noisy():
    return example("noisy_markowitz")


def test_noisy_markowitz_without_noise_is_markowitz_rule(noisy):
    for task in ("RoeFlux_1d", "DoublePendulum_RK4", "KalmanSmoother"):
        graph = task_graph(task)
        assert noisy.play(graph, Random(0), 0.0) == graph.markowitz()


def test_noise_makes_cheaper_orders(noisy):
    graph, random = task_graph("HumanHeartDipole"), Random(0)
    orders = [noisy.play(graph, random, 0.2) for _ in range(60)]
    assert len(set(orders)) > 50
    assert min(map(graph.cost, orders)) < graph.cost(graph.reverse()) == 172


@pytest.mark.parametrize("task", ["Encoder", "HumanHeartDipole"])
def test_noisy_markowitz_reports_what_it_finds(noisy, task):
    graph, rows = task_graph(task), []
    best = noisy.search(graph, 1, 1.0, lambda *row: rows.append(row))
    assert best == graph.check_order(best) == rows[-1][2]
    eliminations, costs, orders = zip(*rows, strict=True)
    assert [*eliminations] == sorted(eliminations)
    assert [*costs] == sorted(costs, reverse=True) == [graph.cost(order) for order in orders]
    assert len({*costs[:-1]}) == len(costs) - 1
    assert costs[-1] < min(graph.cost(graph.reverse()), graph.cost(graph.markowitz()))
    assert eliminations[-1] > 3 * len(best)


def test_noisy_markowitz_heeds_rules_that_ask_for_an_order(noisy):
    @jax.custom_vjp
    def clipped(x):
        return jnp.sin(x) * x

    clipped.defvjp(lambda x: (clipped(x), x), lambda x, g: (jnp.clip(g, -1.0, 1.0) * x,))
    fun = lambda x, y: jnp.exp(clipped(jnp.cos(x * y) + y)) * x  # noqa: E731
    graph = veenv.make_graph(fun, (0, 1))(0.3, 0.4)
    assert graph.reverse_only
    for seed in range(5):
        order = noisy.play(graph, Random(seed), 1.0)
        assert graph.check_order(order) == order
