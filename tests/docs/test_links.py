"""Links of the pages lead somewhere, and names in them are names of the packages."""

from __future__ import annotations

import importlib
import re

from tests.paths import ROOT
from veenv.search.plugins import GROUP

FOLDERS = "(?:veenv|agents|scripts|tests|docs)"
NAMED = rf"\b{FOLDERS}/[a-z_\d/]+\.[a-z]+\b|(?<=`){FOLDERS}/[\w/.-]*(?=`)"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
OF_TODAY = [page for page in PAGES if page.name != "CHANGELOG.md"]  # which names what was


def anchors(page):
    """The anchors of a page's headings, as its site makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings]
    return {re.sub(r"[-\s]+", "-", heading) for heading in plain}


def named(pattern, pages=PAGES):
    """The pages, and what in them a pattern finds outside of code."""
    for page in pages:
        text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
        yield from ((page, found) for found in sorted(set(re.findall(pattern, text))))


def test_links_lead_to_files_and_headings():
    for page, link in named(r"\]\(([^)\s]+)\)"):
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page.name}: {link}"


def resolves(name):
    """Whether a dotted name is a module, or an attribute of one."""
    words = name.split(".")
    for length in range(len(words), 0, -1):
        try:
            found = importlib.import_module(".".join(words[:length]))
        except ModuleNotFoundError:
            continue
        for index, word in enumerate(words[length:], length + 1):
            fields = getattr(found, "__dataclass_fields__", {})
            annotated = getattr(found, "__annotations__", {})
            if word in fields or word in annotated:
                return index == len(words)
            if not hasattr(found, word):
                return False
            found = getattr(found, word)
        return True
    return False


def test_names_resolve():
    assert resolves("veenv.env.VertexEnv.observe")
    assert resolves("veenv.agents.PPOConfig.seed")
    assert not resolves("veenv.env.VertexEnv.look")
    assert not resolves("veenv.jacvee")


def test_names_of_the_packages_exist():
    for page, name in named(r"`(veenv(?:\.[A-Za-z_]\w*)+)(?:\([^`]*\))?`", OF_TODAY):
        assert name == GROUP or resolves(name), f"{page.name}: `{name}`"


def test_files_and_folders_that_are_named_exist():
    for page in OF_TODAY:
        for file in set(re.findall(NAMED, page.read_text(encoding="utf-8"))):
            assert (ROOT / file).exists(), f"{page.name}: {file}"
