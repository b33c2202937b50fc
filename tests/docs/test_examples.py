"""The examples run, and what they find is an order's cost between the least and the dearest."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
LEAST, MOST = 17, 40  # Robertson: proven least, and more than any order

SMALL = {
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
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    import jax

    with jax.numpy_dtype_promotion("standard"):
        found = module.main("Robertson", **settings, **more)
    for cost in found if isinstance(found, list) else [found]:
        assert LEAST <= cost <= MOST
    assert capsys.readouterr().out.startswith("Robertson: ")
    assert (tmp_path / "sweep.png").exists() == (name == "sweep_seeds")
