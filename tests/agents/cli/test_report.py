"""The proof of an order, the table, the picture and the folder."""

import io

import jax.numpy as jnp
import pytest

from tests.agents.conftest import lasting
from veenv import make_graph, tasks
from veenv.agents.cli.progress import ProgressDisplay
from veenv.agents.cli.report import result_table, verdict
from veenv.agents.files import new_folder
from veenv.agents.run.curve import plot_curve
from veenv.agents.run.folder import RunFolder
from veenv.agents.training.best import BestOrders
from veenv.agents.training.learner import Learner
from veenv.agents.training.loop import train
from veenv.env import TaskDistribution
from veenv.measure.proof import prove
from veenv.orders.documents import file_name, write_bytes


def test_the_proof_passes_for_any_order_and_takes_one_line():
    task = tasks.get("HumanHeartDipole")
    graph = make_graph(task.fun, task.argnums)(*task.example_args())
    proof = prove(task, graph.markowitz())
    assert proof.passed
    assert 0 < proof.error < 1e-10
    assert (proof.points, proof.entries) == (3, 64)
    [line] = verdict(proof)
    assert "against jax.jacrev and jax.jacfwd, float64, 3 points, 64 entries" in line
    assert line.endswith("(right)")


def test_table():
    lines = result_table({"forward": 1200, "reverse": 400}, 300).splitlines()
    assert [line.split()[-2:] for line in lines[1:]] == [
        ["1,200", "3.000"],
        ["400", "1.000"],
        ["300", "0.750"],
    ]
    assert len(result_table({"forward": 2, "reverse": 1}, None).splitlines()) == 3
    assert "-" in result_table({"forward": 0}, 0)
    worse = result_table({"forward": 9, "reverse": 5}, 7, polished=6).splitlines()
    assert worse[-1] == 'reverse takes fewer: use order="reverse", or search for longer'
    assert "takes fewer" not in result_table({"forward": 9, "reverse": 5}, 7, polished=5)


def test_curve_is_a_picture_even_of_nothing(tmp_path):
    row = {"steps": 5, "mean_cost": {"f": 9.0}, "min_cost": {"f": 7}, "best_cost": {"f": 7}}
    for name, rows in (("none", []), ("one", [row])):
        plot_curve(tmp_path / name, "f", rows, {"forward": 10, "reverse": 9000})
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["none", "one"]


def test_runs_of_one_second_have_folders_of_their_own(tmp_path, both):
    first, second = (new_folder(tmp_path / "runs") for _ in range(2))
    assert first != second
    assert first.parent == second.parent == tmp_path / "runs"
    assert RunFolder(first, {}, BestOrders(both)).order_path("wide").name == "order-wide.json"


def test_names_of_files_are_short_and_tell_tasks_apart(tmp_path):
    """Of all tasks in one run, of long names, and of names that look alike as files."""
    names = [*tasks.list(), "a/b", "a:b", "A.B", "ü" * 300, "ü" * 299, "", "..", "+" * 300]
    whole = file_name("+".join(names))
    (tmp_path / whole).mkdir()
    graph = make_graph(jnp.sin)(1.0)
    folder = RunFolder(
        tmp_path / whole, {}, BestOrders(TaskDistribution.of(dict.fromkeys(names, graph)))
    )
    paths = [folder.order_path(name) for name in names]
    for path in paths:
        write_bytes(path, b"")
    assert len({path.name.casefold() for path in paths}) == len(names)
    assert folder.order_path("mlp").name == "order-mlp.json"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()], ids=["file", "terminal"])
def test_progress_shows_the_best_count(stream, trainer):
    learner = Learner(lasting(trainer, 50))
    with ProgressDisplay(stream, learner, interval=0.0) as display:
        for progress in train(learner):
            display.show(progress)
    said, best = stream.getvalue(), learner.best
    assert f"best wide {best.cost('wide')}, chain {best.cost('chain')}" in said
    assert ("\r" in said) == stream.isatty()
