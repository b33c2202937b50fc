"""Every command that the documentation names starts in a fresh checkout, from its root."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from scripts.benchmark import BENCHMARKS
from tests.paths import ROOT

FOLDERS = "docs", "veenv", "agents", "scripts", ".github"
ENDINGS = {".md", ".py", ".json", ".yml", ".ipynb"}
START = re.compile(r"(?<![\w/-])(python3? (?:-m scripts\.|scripts/)[\w./-]+|veenv-[a-z]+(?= ))(.*)")

PROGRAM = """
import importlib, io, json, os, runpy, sys
from contextlib import redirect_stderr, redirect_stdout
sys.path.insert(0, "")
import veenv, veenv.agents
installed = [path for path in sys.path if path and os.path.abspath(path) != os.getcwd()]
own = ("scripts", "docs", "benchmarks", "data")
failed = {}
for line in sys.stdin:
    first, *words = json.loads(line)
    for name in [name for name in sys.modules if name.partition(".")[0] in own]:
        del sys.modules[name]  # as if nothing had been imported
    sys.argv, said = [first, *words, "--help"], io.StringIO()
    code = "it does not say what there is"
    with redirect_stdout(said), redirect_stderr(said):
        try:
            if first.startswith("veenv-"):
                entry = importlib.import_module("veenv.agents.cli.entry")
                getattr(entry, first.removeprefix("veenv-"))()
            elif first.endswith(".py"):
                sys.path[:] = [os.path.dirname(os.path.abspath(first)), *installed]
                runpy.run_path(first, run_name="__main__")
            else:
                sys.path[:] = [os.getcwd(), *installed]
                runpy.run_module(first, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            code = end.code or ""
        except BaseException as error:
            code = repr(error)
    if code or "--help" not in said.getvalue():
        failed[" ".join([first, *words])] = f"{code}: {said.getvalue()[-300:]}"
print(json.dumps(failed))
"""
"""Runs commands in one process, each with the path that Python gives it."""


def commands() -> dict[tuple[str, ...], str]:
    """Program and subcommand of what is written, and where."""
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    files += [f for folder in FOLDERS for f in (ROOT / folder).rglob("*") if f.suffix in ENDINGS]
    found: dict[tuple[str, ...], str] = {}
    for file in files:
        for start, rest in START.findall(file.read_text(encoding="utf-8")):
            program = re.sub(r"^python3? (-m )?", "", start).rstrip(".")
            word = re.match(r" ([a-z][a-z-]*)", rest) if program == "scripts/benchmark.py" else None
            words = [word[1]] if word else []
            found.setdefault((program, *words), str(file.relative_to(ROOT)))
    return found


@pytest.mark.whole
def test_every_command_shows_its_help():
    found = commands()
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "scripts").glob("*.py")}
    assert there <= {first for first, *_ in found}, "a command that no page names"
    assert len(there) <= 10
    assert {words[0] for _, *words in found if words} <= BENCHMARKS.keys()
    for name in BENCHMARKS:
        found.setdefault(("scripts/benchmark.py", name), "scripts/benchmark.py")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input="\n".join(map(json.dumps, found)),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    failed = json.loads(done.stdout)
    assert not failed, [(name, found[tuple(name.split())], why) for name, why in failed.items()]
