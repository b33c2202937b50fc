"""Learning curves of runs with several seeds, as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

COLUMNS = ("task", "seed", "steps", "mean cost", "best cost")
"""Of a table with a row for each run: numbers at points of its course, divided by blanks."""

_PANELS = 3
"""In a row."""


def draw(rows: Sequence[Sequence[str]], goals: Mapping[str, int], path: str | Path) -> None:
    """Draws mean costs of updates, thin, and best costs so far, a panel for each task.

    Args:
      rows: the cells of a table with `COLUMNS`.
      goals: the goal of each task, drawn as a line.
      path: the file, SVG.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, NullFormatter, StrMethodFormatter

    tasks = list(dict.fromkeys(row[0] for row in rows))
    height = -(-len(tasks) // _PANELS)
    figure = Figure(figsize=(4 * min(_PANELS, len(tasks)), 2.8 * height), layout="constrained")
    FigureCanvasSVG(figure)
    panels = figure.subplots(height, min(_PANELS, len(tasks)), squeeze=False).flat
    for panel, task in zip(panels, tasks, strict=False):
        for _, seed, *cells in (row for row in rows if row[0] == task):
            steps, mean, best = ([float(x) for x in cell.split()] for cell in cells)
            colour = f"C{int(seed)}"
            panel.plot(steps, mean, color=colour, lw=0.7, alpha=0.5)
            panel.plot(steps, best, color=colour, lw=1.5, label=f"seed {seed}")
        panel.axhline(goals[task], color="gray", ls="--", lw=0.8)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.yaxis.set_major_locator(MaxNLocator(6, prune="lower"))
        panel.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.set_title(task)
        panel.set_xlabel("environment steps")
        panel.set_ylabel("multiplications")
    for panel in list(panels):
        panel.set_axis_off()
    figure.axes[0].legend(fontsize="small")
    figure.savefig(path)
