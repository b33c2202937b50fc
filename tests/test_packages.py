"""The core works without the packages of any extra; commands say what is missing; one version."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata

import pytest

import veenv
from tests.paths import ROOT
from veenv.agents.cli import entry

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {"dm-haiku": "haiku", "e3nn-jax": "e3nn_jax"}
"""Packages that are imported under another name."""

BLOCK = """
import sys
from importlib.abc import MetaPathFinder

class Block(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Block())
"""

CORE = (ROOT / ".ci" / "core.py").read_text(encoding="utf-8")
"""What must work with the core alone."""


def blocked() -> set[str]:
    """What the extras of people who train, draw or develop bring, by the name it is imported by."""
    core = {_name(line) for line in PROJECT["dependencies"]}
    wanted = {_name(r) for extra in ("agents", "plots", "mctx", "dev", "clients")
              for r in PROJECT["optional-dependencies"][extra]}  # fmt: skip
    found = {EXTRAS.get(name, name.replace("-", "_")) for name in wanted - core - {"veenv"}}
    assert {"distrax", "optax", "tyro", "tqdm", "equinox", "matplotlib"} <= found
    return found


def _name(requirement: str) -> str:
    return re.match(r"[\w-]+", requirement)[0]


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = BLOCK.format(blocked=sorted(blocked())) + program
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.whole
def test_jacobian_environment_and_search_need_no_extra():
    done = run(CORE)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.whole
def test_a_command_names_the_extra_that_it_needs():
    done = run("from veenv.agents.cli.entry import search; search()", "--task", "mlp")
    assert done.returncode == 2
    assert re.fullmatch(r"error: search needs \w+: pip install 'veenv\[agents\]'\n", done.stderr)


@pytest.mark.whole
def test_a_name_of_training_names_the_extra_that_it_needs():
    done = run("from veenv import agents; agents.train")
    assert re.search(r"needs \w+: pip install 'veenv\[agents\]'\n$", done.stderr)


@pytest.mark.whole
def test_another_package_may_be_called_agents(tmp_path):
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "__init__.py").write_text("whose = 'theirs'")
    program = """
import sys, agents, veenv
from veenv.agents import PPOConfig
assert agents.whose == "theirs" and PPOConfig.__module__ == "veenv.agents.config.ppo"
assert veenv.agents is sys.modules["veenv.agents"] is not agents
assert not [name for name in sys.modules if name.startswith("agents.")]
"""
    path = f"{tmp_path}:{ROOT}"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, cwd=tmp_path
    )
    assert done.returncode == 0


@pytest.mark.whole
def test_a_checkout_that_is_not_installed_has_both_packages(tmp_path):
    for folder in ("veenv", "agents"):
        ignored = shutil.ignore_patterns("__pycache__", *["agents"] * (folder == "veenv"))
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    program = "from veenv.agents import PPOConfig; import sys; print(sys.modules['veenv'].__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout == f"{tmp_path}/veenv/__init__.py\n", done.stderr


def test_a_checkout_holds_no_link():
    done = subprocess.run(["git", "ls-files", "-s"], capture_output=True, text=True, cwd=ROOT)
    assert not [line for line in done.stdout.splitlines() if line.startswith("120000")]


@pytest.mark.whole
def test_what_few_need_is_loaded_by_those_who_ask_for_it():
    program = """
import sys, veenv
assert "jax" not in sys.modules
veenv.jacve, veenv.fuse, veenv.SparseTensor
late = {"scipy", "numba", "matplotlib", "equinox", "gymnasium", "jax.experimental.sparse"}
print(sorted(late & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.whole
def test_the_folder_is_no_package_of_its_own():
    done = subprocess.run([sys.executable, "-c", "import agents"], capture_output=True, cwd=ROOT)
    assert b"write `from veenv import agents`" in done.stderr


@pytest.mark.parametrize("command", ["train", "search", "validate", "evaluate", "report", "tune"])
def test_there_is_a_console_command_and_a_script(command):
    target = PROJECT["scripts"][f"veenv-{command}"]
    assert target == f"veenv.agents.cli.entry:{command}"
    assert callable(getattr(entry, command))
    assert callable(importlib.import_module(f"veenv.agents.cli.commands.{command}").main)
    assert f'run("{command}")' in (ROOT / "scripts" / f"{command}.py").read_text()


def test_the_version_has_one_place():
    assert "version" in PROJECT["dynamic"]
    newest = re.search(r"^## \[(.*?)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest[1] == veenv.__version__
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", newest[2])
    assert metadata.version("veenv") == veenv.__version__
