"""The picture of a run: costs over environment steps, with the classical orders as lines."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from typing import Any

from veenv._support import extra
from veenv.measure.rows import rows_of
from veenv.orders.documents import write_bytes


def plot_curve(
    path: str | os.PathLike[str],
    name: str,
    rows: Sequence[Mapping[str, Any]],
    classical: Mapping[str, int],
) -> None:
    """Draws mean and best costs of one graph and writes them as a PNG; `rows` are of the metrics.

    Raises:
      OSError: the file cannot be written.
    """
    with extra("plots"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    rows = rows_of(rows, name)
    steps = [row["steps"] for row in rows]
    for key, label, style in (
        ("mean_cost", "mean of an update's episodes", {"color": "tab:blue", "alpha": 0.6}),
        ("min_cost", "best of an update's episodes", {"color": "tab:cyan", "alpha": 0.8}),
        ("best_cost", "best so far", {"color": "black", "linewidth": 2}),
    ):
        axes.plot(steps, [row[key][name] for row in rows], label=label, **style)
    low, high = _limits(rows, name, classical)
    styles = zip(classical.items(), ("tab:red", "tab:green", "tab:orange"), strict=False)
    for (order, cost), color in styles:
        beyond = " (off the scale)" if cost > high else ""
        axes.axhline(cost, color=color, linestyle="--", label=f"{order}: {cost:,}{beyond}")
    axes.set(
        xlabel="environment steps",
        ylabel="cost of the whole order",
        title=f"{name}: training",
        ylim=(low, high),
    )
    if rows:
        axes.set_title(f"{name}: the best order found takes {rows[-1]['best_cost'][name]:,}")
    axes.grid(alpha=0.3)
    axes.legend()
    FigureCanvasAgg(figure)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    write_bytes(path, picture.getvalue())


def _limits(
    rows: Sequence[Mapping[str, Any]], name: str, classical: Mapping[str, int]
) -> tuple[float, float]:
    """Limits that show the curves and the best baseline, and others unless they are far away."""
    curve = [row[key][name] for row in rows for key in ("mean_cost", "best_cost")]
    best = min(classical.values())
    near = [cost for cost in classical.values() if cost <= 2 * max([best, *curve])]
    low, high = min([best, *curve]), max([best, *near, *curve])
    margin = 0.05 * max(high - low, 1)
    return low - margin, high + margin
