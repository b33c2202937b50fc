"""What runs on accelerators compiles for them, without one: `-m devices`, extras `tpu-check` and
`gpu-check`."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
SMALL = "rollouts/RoeFlux_1d", "policy/RoeFlux_1d"
TPU = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu")
GPU = pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda12_plugin") is None or jax.version.__version_info__ < (0, 11),
    reason="needs jax-cuda12-plugin, and an XLA that tiles every product without a GPU (jax 0.11)",
)
TOPOLOGIES = [
    pytest.param("v5e:2x2", marks=TPU),
    pytest.param("v5e:4x4", marks=TPU),
    pytest.param("v6e:2x2", marks=TPU),
    pytest.param("h100", marks=GPU),
]
pytestmark = pytest.mark.devices
Rows = dict[str, list[str]]


def known(topology: str) -> Rows:
    path = RESULTS / f"compiled-{'gpu' if topology == 'h100' else 'tpu'}.json"
    return table(path)[topology]


def table(path: Path) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for topology, name, *cells in json.loads(path.read_text(encoding="utf-8"))["tables"][0]["rows"]:
        found.setdefault(topology, {})[name] = cells
    return found


def compiled(topology: str, names: tuple[str, ...], path: Path) -> Rows:
    """In a process of its own: what compilers read from the environment is read once."""
    command = [sys.executable, "scripts/benchmark.py", "devices", "--topologies", topology]
    command += ["--out", str(path), *(("--programs", *names) if names else ())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return table(path)[topology]


def number(text: str) -> float:
    return float(text.replace(",", "")) if text not in ("", "-") else 0.0


def check(found: Rows, before: Rows) -> None:
    """Code, temporaries and spilled bytes are at most a quarter above the page's."""
    assert found
    for name, (code, temporaries, _, _, spilled, exchanged) in found.items():
        if name not in before:  # compiled for the first topology of the page only
            continue
        was = before[name]
        assert number(code) <= 1.25 * number(was[0]) + 100, name
        assert number(temporaries) <= 1.25 * number(was[1]) + 100, name
        assert number(spilled) <= 1.25 * number(was[4]) + 100, name
        if name.startswith("ppo") and "all-reduce" in was[5]:
            assert "all-reduce" in exchanged


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_few_programs_compile(topology, tmp_path):
    found = compiled(topology, SMALL, tmp_path / "found.json")
    assert found.keys() == {*SMALL}
    check(found, known(topology))


@pytest.mark.slow
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_every_program_compiles(topology, tmp_path):
    found = compiled(topology, (), tmp_path / "found.json")
    assert found.keys() >= known(topology).keys()
    check(found, known(topology))
