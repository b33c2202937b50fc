"""Pages of the environment: code prints what its comments say, and sizes are the true ones."""

import jax
import pytest

from tests.docs.pages import blocks_of, run_block
from tests.paths import DOCS
from veenv.env import Spec, VertexEnv
from veenv.graph.graph import COST_MODELS
from veenv.tasks import list_tasks

PAGE = "docs/environment.md"
built_in = list_tasks()


@pytest.mark.whole
def test_the_code_prints_what_its_comments_say(capsys):
    names: dict = {}
    with jax.numpy_dtype_promotion("standard"):
        for block in blocks_of(PAGE):
            assert "print(" in block
            run_block(block, names, PAGE, capsys)


def state_bytes(spec):
    """The page's formula."""
    if spec.scalar:
        words = -(-spec.columns // 32) * spec.rows * (1 + spec.unit_edges)
    else:
        words = spec.columns * (spec.rows + -(-spec.rows // 32))
    return 4 * words + 5 * spec.num_actions + 9


def size_row(name, graph):
    specs = [Spec.of(graph, cost) for cost in COST_MODELS]
    assert state_bytes(specs[1]) == state_bytes(specs[2])  # executed and operations: one column
    sizes = " | ".join(f"{state_bytes(spec):,}" for spec in specs[:2])
    return f"| {name} | {specs[0].num_actions} | {specs[0].rows} x {specs[0].columns} | {sizes} |"


def test_the_sizes_are_the_true_ones(task_graph):
    text = (DOCS / "internals" / "learning.md").read_text(encoding="utf-8")
    table = text.partition("<!-- sizes: begin -->\n")[2].partition("<!-- sizes: end -->")[0]
    rows = {line.split("|")[1].strip(): line for line in table.splitlines()[2:]}
    assert set(rows) == set(built_in)
    for name in built_in:
        if not name.endswith("_Jacobian"):  # traced differently by different JAX versions
            assert rows[name] == size_row(name, task_graph(name))


@pytest.mark.parametrize("cost", COST_MODELS)
@pytest.mark.parametrize("name", ["PropaneCombustion", "LIF"])
def test_the_formula_gives_the_bytes_of_a_state(name, cost, task_graph):
    env = VertexEnv(task_graph(name), cost)
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(env.init())) == state_bytes(env.spec)
