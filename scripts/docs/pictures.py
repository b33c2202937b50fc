"""Draws the pictures of the documentation: ``python scripts/docs/pictures.py [RUN]``.

Those of results and shipped orders always; with a run's folder those of its report, too.
"""

from __future__ import annotations

import importlib
import io
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # a checkout is not installed

import tyro
from PIL import Image

import veenv
from scripts.docs.pictures_of_results import PICTURES
from veenv.measure.report import read_subjects, write_report

DOCS = Path(__file__).parents[2] / "docs" / "pictures"
SIZES = {"desktop": (1180, 860, "light"), "dark": (1180, 860, "dark"), "phone": (390, 844, "light")}
"""Width, height and colour scheme of each screenshot."""
STEP = 40
"""Eliminations that have been played in them."""


def main(run: Annotated[str | None, tyro.conf.Positional] = None) -> None:
    """Draws results, structures, an order and an episode; and the report of a run.

    Args:
      run: its folder.
    """
    DOCS.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        draw(DOCS / f"{name}.svg")
    order = veenv.best_order("RoeFlux_1d")
    veenv.draw(order).savefig(DOCS / "order.png", dpi=100)
    _save(Image.open(DOCS / "order.png"), DOCS / "order.png")
    veenv.animate(DOCS / "episode.gif", veenv.best_order("Robertson"), dpi=64, seconds=5.0)
    if run is None:
        return
    [subject] = read_subjects(run)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        write_report(page, subject)
        screenshots(page)


def screenshots(page: Path) -> None:
    """Takes pictures of the page in Chromium (needs playwright, and Chromium)."""
    api: Any = importlib.import_module("playwright.sync_api")  # of the extra `browser`
    with api.sync_playwright() as driver:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, (width, height, scheme) in SIZES.items():
            tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            tab.goto(page.as_uri())
            tab.evaluate(f"show({STEP})")
            full = name == "phone"
            shot = Image.open(io.BytesIO(tab.screenshot(full_page=full)))
            _save(_in_columns(shot, 4) if full else shot, DOCS / f"report-{name}.png")
        browser.close()


def _in_columns(shot: Image.Image, count: int) -> Image.Image:
    """A long picture, cut and laid side by side."""
    height, gap = -(-shot.height // count), 16
    sheet = Image.new("RGB", ((shot.width + gap) * count - gap, height), "white")
    for k in range(count):
        piece = shot.crop((0, k * height, shot.width, min(shot.height, (k + 1) * height)))
        sheet.paste(piece, (k * (shot.width + gap), 0))
    return sheet


def _save(picture: Image.Image, path: Path) -> None:
    """Saves a picture in few colours, which takes a third of the space."""
    picture.convert("RGB").quantize(128).save(path, optimize=True)


if __name__ == "__main__":
    tyro.cli(main)
