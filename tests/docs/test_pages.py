"""The code of these pages runs and prints what it says; the site is built without a warning."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import blocks_of, run_block
from tests.paths import ROOT

PAGES = [
    "CONTRIBUTING.md", "README.md", "docs/accelerators.md", "docs/choose.md", "docs/comparison.md",
    "docs/errors.md", "docs/gymnasium.md", "docs/index.md", "docs/internals/edge_cases.md",
    "docs/internals/engine.md", "docs/internals/kernel.md", "docs/internals/learning.md",
    "docs/internals/proofs.md", "docs/jacobians.md", "docs/leaderboard.md", "docs/libraries.md",
    "docs/networks.md", "docs/orders.md", "docs/tasks.md", "docs/training.md", "docs/tune.md",
]  # fmt: skip


@pytest.mark.whole
@pytest.mark.parametrize("page", PAGES)
def test_code_prints_what_its_comments_say(page, capsys, tmp_path, monkeypatch):
    names = {}
    if page == "docs/networks.md":  # it writes a run folder
        monkeypatch.chdir(tmp_path)
    for block in blocks_of(page):
        if page == "README.md":  # each block stands alone
            names = {}
        run_block(block, names, page, capsys)


def test_every_page_is_in_the_site():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r"^ +- [^:]+: (\S+\.md)$", text, re.MULTILINE))
    docs = ROOT / "docs"
    assert listed == {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}


def build(site: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Builds the site as .ci/run does."""
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("needs pip install 'veenv[docs]'")
    (line,) = re.findall(r'step "docs" (.*)', (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    line = line.replace('"$py"', shlex.quote(sys.executable)).replace('"$work/site"', str(site))
    command = [*shlex.split(line), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.fixture
def small_site(tmp_path: Path) -> Path:
    """Settings of the site with one page, of one function."""
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.md").write_text("# A function\n\n::: veenv.value_and_jacve\n")
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("nav:")[0]
    text = text.replace("docs_dir: docs", f"docs_dir: {pages}").replace("[.]", f"[{ROOT}]")
    text = text.replace("[scripts/docs/", f"[{ROOT}/scripts/docs/")
    settings = tmp_path / "mkdocs.yml"
    settings.write_text(text, encoding="utf-8")
    return settings


@pytest.mark.whole
def test_examples_of_docstrings_are_blocks_of_code_with_prompts(small_site, tmp_path):
    done = build(tmp_path / "site", "-f", str(small_site))
    assert done.returncode == 0, done.stderr[-2000:]
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert re.search(r'class="highlight"><pre>.*<span class="gp">&gt;&gt;&gt; </span>', page)
    assert "<blockquote>" not in page


@pytest.mark.whole
def test_a_warning_fails_the_build(small_site, tmp_path):
    with (tmp_path / "pages" / "index.md").open("a") as page:
        page.write("\n[away](away.md) and [there][nowhere.at_all]\n")
    done = build(tmp_path / "site", "-f", str(small_site))
    assert done.returncode != 0
    assert re.search("WARNING.*away.md", done.stderr)
    assert re.search("WARNING.*nowhere.at_all", done.stderr)


@pytest.mark.slow
def test_the_site_is_built_and_loads_nothing_from_elsewhere(tmp_path):
    done = build(tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "<blockquote>" not in (tmp_path / "reference.html").read_text(encoding="utf-8")
    for page in tmp_path.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]* src="(https?:[^"]*)"', text)
        loaded += re.findall(r'<link[^>]*rel="stylesheet"[^>]*href="(https?:[^"]*)"', text)
        assert loaded == [], page
    assert "defelemental" in (tmp_path / "search" / "search_index.json").read_text(encoding="utf-8")
