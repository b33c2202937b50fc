"""What runs on accelerators compiles for a TPU: `pip install -e '.[tpu-check]'`, `-m devices`."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KNOWN = ROOT / "docs" / "results" / "compiled-tpu.json"
SMALL = ("rollouts/RoeFlux_1d", "pallas/KerrMetric_Jacobian", "pallas/LSTM", "pallas/mlp")
pytestmark = [
    pytest.mark.devices,
    pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu"),
]


def table(path: Path) -> dict[str, list[str]]:
    rows = json.loads(path.read_text(encoding="utf-8"))["tables"][0]["rows"]
    return {name: cells for name, *cells in rows}


def compiled(topology: str, names: tuple[str, ...], path: Path) -> dict[str, list[str]]:
    """In a process of its own: what libtpu reads from the environment is set once."""
    command = [sys.executable, "-m", "scripts.compile_for", "--topology", topology]
    command += ["--out", str(path), *(("--programs", *names) if names else ())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return table(path)


def number(text: str) -> float:
    return float(text.replace(",", ""))


def check(found: dict[str, list[str]]) -> None:
    """Code and temporaries are at most a quarter above those of the page."""
    known = table(KNOWN)
    for name, (code, temporaries, _, exchanged) in found.items():
        assert number(code) <= 1.25 * number(known[name][0]) + 100, name
        assert number(temporaries) <= 1.25 * number(known[name][1]) + 100, name
        if name.startswith("ppo"):
            assert "all-reduce" in exchanged


def test_a_few_programs_compile(tmp_path):
    found = compiled("v5e:2x2", SMALL, tmp_path / "found.json")
    assert found.keys() == {*SMALL}
    check(found)


@pytest.mark.slow
def test_every_program_compiles(tmp_path):
    found = compiled("v5e:2x2", (), tmp_path / "found.json")
    assert found.keys() == table(KNOWN).keys()
    check(found)


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["v5e:4x4", "v6e:2x2"])
def test_other_topologies(topology, tmp_path):
    compiled(topology, ("rollouts/RoeFlux_1d", "ppo/RoeFlux_1d", *SMALL), tmp_path / "found.json")
