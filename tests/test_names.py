"""The names that documentation and stubs write are there after `import veenv` alone."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from scripts.docs.architecture import modules
from tests.paths import ROOT

NOT_ATTRIBUTES = {"veenv.search_methods"}
"""Dotted names that are no Python names: a group of entry points."""


@pytest.mark.whole
def test_names_in_the_documentation_are_reachable():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    names = {*re.findall(r"\bveenv(?:\.[A-Za-z_]\w*)+", text)} - NOT_ATTRIBUTES
    names |= {
        "veenv.testing.check_env",
        "veenv.measure.validation.validate",
        "veenv.measure.timing",
    }
    assert len(names) > 20
    program = (
        "import functools, sys, veenv\n"
        "heavy = {'numba', 'matplotlib', 'optax', 'equinox'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
        f"for name in {sorted(names)}:\n"
        "    functools.reduce(getattr, name.split('.')[1:], veenv)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr.splitlines()[-1]


PACKAGES = sorted(name for name, path in modules().items() if path.name == "__init__.py")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_of_a_package_resolves(package):
    exec(f"from {package} import *", {})
