"""Pictures hold the edges and the colours that they should; texts and networkx the whole graph."""

from __future__ import annotations

import sys

import jax.numpy as jnp
import pytest
from PIL import Image

import veenv
from veenv.env.factory import task_graph
from veenv.graph.playback import play


@pytest.fixture(scope="module")
def graph() -> veenv.Graph:
    return task_graph("Robertson")


def lines(figure) -> list[int]:
    """Number of curves of each kind: edges as they were, filled in, removed."""
    return [len(c.get_segments()) for c in figure.axes[0].collections]


def test_a_graph_and_an_order_show_every_edge_and_no_window(graph):
    for figure in (veenv.draw(graph), veenv.draw(veenv.best_order("Robertson")),
                   veenv.draw("robertson"), veenv.draw(graph.reverse(), graph),
                   veenv.draw("reverse", graph)):  # fmt: skip
        assert lines(figure) == [len(graph.edges), 0, 0]
    assert "matplotlib.pyplot" not in sys.modules


def test_a_state_shows_what_is_left(graph):
    env = veenv.make("Robertson")
    _, state = env.reset()
    assert lines(veenv.draw(state, env)) == [len(graph.edges), 0, 0]
    for slot in (3, 1):
        _, state, *_ = env.step(None, state, jnp.int32(slot))
    order = env.order(state)
    steps = play(graph, (*order, *(v for v in graph.forward() if v not in order)))[:2]
    left = set(graph.edges)
    for step in steps:
        left = (left - set(step.removed)) | set(step.added)
    new, gone = len(steps[1].added), len(steps[1].removed)
    figure = veenv.draw(state, env)
    assert lines(figure) == [len(left) - new, new, gone]
    assert f"price {int(state.cost)}" in figure.get_suptitle()


def test_an_animation_has_a_picture_for_every_elimination(graph, tmp_path):
    count = veenv.animate(tmp_path / "a.gif", graph.markowitz(), graph, seconds=1.0)
    assert count == len(graph.eliminable) + 1
    with Image.open(tmp_path / "a.gif") as picture:
        assert picture.n_frames == count
    with pytest.raises(ValueError, match="seconds must be positive, got 0"):
        veenv.animate(tmp_path / "b.gif", graph.markowitz(), graph, seconds=0)


@pytest.mark.parametrize("name", ["Robertson", "LSTM"])
def test_networkx_has_the_whole_graph(name):
    some = task_graph(name)
    networkx = pytest.importorskip("networkx", reason="needs pip install networkx")
    found = some.to_networkx()
    assert networkx.is_directed_acyclic_graph(found)
    assert set(found.edges) == set(some.edges)
    moves = {d["vertex"] for _, d in found.nodes(data=True) if d["kind"] == "vertex"}
    assert moves == set(some.eliminable)
    assert {n for n, d in found.nodes(data=True) if d["is_output"]} == some.output_nodes
    assert repr(some).startswith(f"Graph({some.num_inputs} inputs")


def test_what_is_not_drawn(graph, tmp_path):
    ids, path = graph.reverse(), tmp_path / "x.gif"
    for arguments in ((graph, ids, str(path)), (ids, str(path)), (veenv.best_order("mlp"), path)):
        with pytest.raises(TypeError, match="expected the file first, got"):
            veenv.animate(*arguments)
    _, state = veenv.make("Robertson").reset()
    with pytest.raises(TypeError, match="needs its environment"):
        veenv.draw(state)
    with pytest.raises(ValueError, match="another graph"):
        veenv.draw(veenv.best_order("BlackScholes"), graph)
    for what in (3, None, {1: 2}):
        with pytest.raises(TypeError, match="expected a graph, a task's name, an order or a state"):
            veenv.draw(what, graph)
    with pytest.raises(TypeError, match="vertex ids need their graph"):
        veenv.animate(path, ids)
    with pytest.raises(ValueError, match="unknown task 'Robertsn'; did you mean Robertson"):
        veenv.draw("Robertsn")
    assert not path.exists()
    assert veenv.animate(path, "Robertson", dpi=20) == 1 + len(ids)
