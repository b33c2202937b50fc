"""Methods that other packages offer to the searches, and orders to start from."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

from veenv.search import plugins, register_method, search


@pytest.fixture
def registered(monkeypatch):
    """A registry that forgets after the test."""
    monkeypatch.setattr(plugins, "_registered", {})


def shuffles(graph, cost, seed):
    """Reverse mode, then random orders without end."""
    yield graph.reverse()
    rng = np.random.default_rng(seed)
    while True:
        yield tuple(int(v) for v in rng.permutation(graph.eliminable))


def test_a_method_of_ones_own(task_graph, registered):
    register_method("shuffles", shuffles)
    graph = task_graph("PropaneCombustion")
    found = search(graph, "shuffles", budget=300, seed=3)
    orders = shuffles(graph, "multiplications", 3)
    costs = [graph.cost(order) for order, _ in zip(orders, range(301), strict=False)]
    assert found.cost == min(costs)
    assert (found.evaluations, found.method, found.seed) == (300, "shuffles", 3)
    assert found.trace[0][2] == graph.cost(graph.reverse())
    assert search(graph, "shuffles-40", seed=3).cost == min(costs[:41])
    assert search(graph, "shuffles-40", seed=3).evaluations == 40


def test_wrong_methods(task_graph, registered):
    graph = task_graph("PropaneCombustion")
    register_method("lost", lambda graph, cost, seed: iter([graph.forward()[1:]]))
    register_method("mute", lambda graph, cost, seed: iter([]))
    with pytest.raises(ValueError, match="misses"):
        search(graph, "lost")
    with pytest.raises(ValueError, match="proposes no order"):
        search(graph, "mute")
    for name in ("nosuch", "lost-", "lost-0", "lost-x", "anneal-3"):
        with pytest.raises(ValueError, match=re.escape(f"got {name!r}")):
            search(graph, name)
    with pytest.raises(ValueError, match="identifier, got 'a-b'"):
        register_method("a-b", shuffles)


@pytest.mark.whole
def test_the_policy_without_agents():
    """Nothing of veenv imports agents; where it is missing, the method says so."""
    program = """
import sys
sys.modules["veenv.agents"] = None
sys.modules["veenv.agents.policy"] = None
from veenv import make_graph
from veenv.search import search
try:
    search(make_graph(lambda x: x * x * x)(1.0), "policy")
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.match("method 'policy' (cannot be loaded|is not to be had): ", done.stdout)


def test_a_search_starts_where_it_is_told(task_graph):
    graph = task_graph("RobotArm_6DOF")
    start = graph.forward()
    found = search(graph, "anneal", budget=2000, start=start)
    assert (
        found.trace[0][2]
        == graph.cost(start)
        > min(graph.cost(graph.reverse()), graph.cost(graph.markowitz()))
    )
    assert found.cost < graph.cost(start)
    with pytest.raises(ValueError, match="misses"):
        search(graph, "anneal", start=start[1:])
    with pytest.raises(ValueError, match="not reverse"):
        search(graph, "reverse", start=start)
