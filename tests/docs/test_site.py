"""The site in a browser: no page scrolls sideways, on a screen or on a phone."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

WIDTHS = 1280, 390, 360
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.browser
@pytest.mark.slow
def test_no_page_scrolls_sideways(tmp_path: Path) -> None:
    for module in ("mkdocs", "playwright"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}")
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    wide = []
    with importlib.import_module("playwright.sync_api").sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        pages = sorted(tmp_path.rglob("*.html"))
        assert len(pages) > 20
        for width in WIDTHS:
            tab = browser.new_page(viewport={"width": width, "height": 800})
            for page in pages:
                tab.goto(page.as_uri())
                tab.evaluate("document.querySelectorAll('details').forEach(x => x.open = true)")
                taken = tab.evaluate("document.documentElement.scrollWidth")
                if taken > width:
                    wide.append((page.relative_to(tmp_path).as_posix(), width, taken))
        browser.close()
    assert wide == []
