"""The plot of `benchmark.py realistic`: ratios by batch, and predicted against measured times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]


def draw(rows: list[Row], forms: Sequence[str], path: Path) -> None:
    """Ratios of all forms, a panel for each batch; predicted against measured time in the last.

    Args:
        rows: as `benchmark.py realistic` writes them.
        forms: the forms to show.
        path: the file, SVG.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    sizes = sorted({row["batch"] for row in rows})
    names = list(dict.fromkeys(row["function"] for row in rows))
    figure = Figure(figsize=(4 * len(sizes) + 6, 0.3 * len(names) + 2), layout="constrained")
    FigureCanvasSVG(figure)
    *panels, last = figure.subplots(1, len(sizes) + 1, squeeze=False)[0]
    for panel, size in zip(panels, sizes, strict=True):
        for form, marker in zip(forms, "os^", strict=True):
            some = [r for r in rows if r["batch"] == size and form in r["ratio"]]
            places = [names.index(r["function"]) for r in some]
            panel.plot([r["ratio"][form] for r in some], places, marker, label=form, alpha=0.7)
        panel.axvline(1, color="gray", lw=0.8)
        panel.set_xscale("log")
        panel.set_title(f"batch {size:,}")
        panel.set_xlabel("time / faster of jacfwd and jacrev")
        panel.set_yticks(range(len(names)), names if panel is panels[0] else [])
        panel.set_ylim(len(names) - 0.5, -0.5)
    panels[0].legend()
    _predicted(last, rows)
    figure.savefig(path)


def _predicted(panel: Any, rows: list[Row]) -> None:
    """Every program's predicted against its measured time."""
    for form, marker in zip(("jacfwd", "jacrev", "auto", "reverse"), "x+s^", strict=True):
        some = [row for row in rows if form in row["predicted"]]
        found = [row["measured"][form] * 1e6 for row in some]
        panel.loglog(found, [row["predicted"][form] * 1e6 for row in some], marker, label=form,
                     alpha=0.7)  # fmt: skip
    low, high = panel.get_xlim()
    panel.plot([low, high], [low, high], color="gray", lw=0.8)
    panel.set_xlabel("measured, µs")
    panel.set_ylabel("predicted, µs")
    panel.set_title(f"Spearman {rank_correlation(rows):.2f}")
    panel.legend()


def rank_correlation(rows: list[Row]) -> float:
    """Spearman's rank correlation of predicted and measured times, of all programs of all rows."""
    pairs = [(row["predicted"][m], row["measured"][m]) for row in rows for m in row["predicted"]]
    return spearman(*zip(*pairs, strict=True)) if len(pairs) > 2 else 1.0


def spearman(a: Any, b: Any) -> float:
    """Spearman's rank correlation; ties rank in order of appearance."""
    first, second = (np.argsort(np.argsort(np.asarray(x))) for x in (a, b))
    return float(np.corrcoef(first, second)[0, 1])
