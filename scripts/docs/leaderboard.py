"""Turns the runs of docs/leaderboard/runs.json into the tables and pictures of the leaderboard.

Every table is a function from a `Document` to Markdown, every picture one from a `Document` and a
path; `write` makes all of them.  Ratios are interquartile means with intervals of a stratified
bootstrap (Agarwal et al., NeurIPS 2021), as `veenv.evaluate` has them; profiles are those of Dolan
and Moré (2002).
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # a checkout is not installed

import numpy as np

import veenv
from scripts.benchmarks.document import Document, Entrant
from scripts.benchmarks.methods import METHODS
from scripts.benchmarks.runs import CORE, REAL, Run
from scripts.docs.pictures import INK, OTHER, OURS, THIRD, axes_of, canvas, save
from veenv.orders.documents import write_section
from veenv.orders.shipped import shipped_orders
from veenv.search.evaluation import Summary
from veenv.tasks.evaluation_sets import PUBLISHED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOCS = Path(__file__).parents[2] / "docs"
PAGE, FOLDER = "leaderboard.md", "pictures"
RUN_TIMES = DOCS / "results" / "orders-runtime.json"
"""Written by ``python scripts/benchmark.py jacobians --parts runtimes --out`` this file."""
RESAMPLES = 2000
NEAR = 1.01
"""A run is near the best from the first order on that costs at most this many times as much."""
TIMED = tuple(name for name, method in METHODS.items() if method.timed)
QUICK = tuple(name for name, method in METHODS.items() if not method.timed)
PALETTE = OURS, THIRD, "#2a9a5f", "#a763d8", "#dd4a7d", "#a18a00", OTHER
"""Colours that are read on white and on black."""
COLOURS = {name: PALETTE[k] for names in (TIMED, QUICK) for k, name in enumerate(names)}
"""Colour of each method's line."""
OTHER_COUNT = "BlackScholes_Jacobian", "RoeFlux_3d", "mlp", "Encoder"
"""Functions whose printed counts are of other graphs or of arrays, and cannot be compared."""


def protocol_line(document: Document) -> str:
    """Returns budget, machine, versions and failures of the runs of this machine as sentences."""
    one = document.protocol
    runs = [run for run in document.runs if run.origin == "rerun" and not run.alone]
    failures = sum(bool(run.failure) for run in runs)
    return (
        f"{len(runs):,} runs, of at most {one.seconds:g} seconds, with "
        f"{_number(one.seeds, 'seed')}, took {one.hours:.1f} hours. They were made on "
        f"{escaped(one.date)}, on {escaped(one.machine)}, with veenv {escaped(one.veenv)}, "
        f"jax {escaped(one.jax)}, Python {escaped(one.python)}. {_number(failures, 'run')} failed."
    )


def _number(number: int, noun: str) -> str:
    """Returns "No runs", "1 run", "2 runs"."""
    return f"{number or 'No'} {noun}{'s' * (number != 1)}"


def neighbour(document: Document) -> str:
    """Returns a sentence about the runs that had the machine to themselves; empty without them.

    The eliminations of the other run are interpolated between its improvements.
    """
    reruns = [run for run in document.runs if run.origin == "rerun" and not run.failure]
    others = {run.job: run for run in reruns if not run.alone}
    ratios = []
    for run in reruns:
        other = others.get(dataclasses.replace(run.job, alone=False))
        whole = run.seconds > 0.99 * run.budget(document.protocol.seconds)  # no proof before
        if not (run.alone and whole and other):
            continue
        points = [(0.0, 0.0), *(point[:2] for point in other.trace)]
        seconds, eliminated = zip(*points, (other.seconds, other.eliminations), strict=True)
        ratios.append(run.eliminations / max(np.interp(run.seconds, seconds, eliminated), 1))
    if not ratios:
        return ""
    mean = math.exp(np.mean(np.log(ratios)))
    return (
        f"Alone on the machine, a run made {mean:.2f} times as many eliminations by the same "
        f"second (geometric mean of {len(ratios)}, {min(ratios):.2f} to {max(ratios):.2f})."
    )


def equal_effort(document: Document) -> dict[str, float]:
    """Returns by function of `core` the least eliminations of any timed method.

    Each method counts with the mean over its seeds; failed runs do not count.
    """
    least: dict[str, float] = {}
    for name in TIMED:
        for function, runs in document.of_method(CORE, (name, "rerun")).items():
            counts = [run.eliminations for run in runs if not run.failure]
            if counts:
                least[function] = min(least.get(function, math.inf), float(np.mean(counts)))
    return least


def main_table(document: Document) -> str:
    """Returns a row for each method on `core`, the cheapest first, as Markdown."""
    rows = [
        "| method | to the best classical order | geometric mean | to the reference "
        "| seconds to 1 % of the best | eliminations a second | at equal eliminations | start |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    effort, best = equal_effort(document), document.best(CORE)

    def further(entrant: Entrant, runs: Sequence[Run]) -> Iterator[str]:
        yield _seconds_to(runs, best)
        seconds = max(sum(run.seconds for run in runs), 1e-9)
        yield f"{sum(run.eliminations for run in runs) / seconds:,.0f}"
        at = document.costs(CORE, entrant, effort=effort)
        timed = any(run.timed and run.trace for run in runs)
        yield f"{_summaries(document, CORE, entrant, at)[0].middle:.3f}" if timed else ""

    return "\n".join([*rows, *_rows(document, CORE, further)])


def _rows(
    document: Document,
    chosen: str,
    further: Callable[[Entrant, Sequence[Run]], Iterable[str]],
) -> list[str]:
    """Returns a row for each method on a set, the cheapest first; `further` yields middle cells."""
    lines = []
    for entrant in document.entrants(chosen):
        costs = document.costs(chosen, entrant)
        classical, known = _summaries(document, chosen, entrant, costs)
        runs = [run for of in document.of_method(chosen, entrant).values() for run in of]
        cells = (
            _label(entrant, runs),
            _interval(classical, costs.shape[1]),
            f"{classical.mean:.3f}",
            "" if known is None else f"{known.middle:.3f}",
            *further(entrant, runs),
            METHODS[entrant[0]].start if entrant[1] == "rerun" else "-",
        )
        lines.append((classical.middle, _row(cells)))
    return [row for _, row in sorted(lines, key=lambda line: line[0])]


def by_function(document: Document, chosen: str = CORE) -> str:
    """Returns the mean costs over seeds, a row for each function, as Markdown.

    The least cost of a row is bold; printed counts that cannot be compared are in parentheses.
    """
    entrants = document.entrants(chosen)
    names = [_label(entrant, ()) for entrant in entrants]
    printed = any(one.function in PUBLISHED for one in document.of_set(chosen))
    head = ["function", "vertices", "best classical", "reference"]
    head += ["published: AlphaZero / PPO"] * printed
    rows = [_row([*head, *names]), "| --- |" + " ---: |" * (len(head) - 1 + len(names))]
    means = np.array([document.costs(chosen, entrant).mean(1) for entrant in entrants]).T
    for one, line in zip(document.of_set(chosen), means, strict=True):
        known = "" if one.reference is None else f"{one.reference:,}"
        cells = [escaped(one.function), f"{one.vertices:,}"]
        cells += [f"{one.classical:,} ({escaped(one.rule)})", known]
        if printed:
            counts = " / ".join(f"{x:,}" for x in PUBLISHED.get(one.function, ()))
            cells.append(f"({counts})" if one.function in OTHER_COUNT else counts)
        for mean in line:
            text = f"{mean:,.0f}" if float(mean).is_integer() else f"{mean:,.1f}"
            cells.append(f"**{text}**" if mean == line.min() else text)
        rows.append(_row(cells))
    return "\n".join(rows)


def held_out(document: Document) -> str:
    """Returns the quick methods on `real`: summaries, then the costs by function, as Markdown.

    Empty in a trial that has no function of `real`.
    """
    if not document.of_set(REAL):
        return ""
    rows = [
        "| method | to the best classical order | geometric mean | to the reference "
        "| seconds a function | start |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]

    def further(_: Entrant, runs: Sequence[Run]) -> Iterator[str]:
        yield _seconds(float(np.median([run.seconds for run in runs])))

    return "\n".join([*rows, *_rows(document, REAL, further), "", by_function(document, REAL)])


@dataclasses.dataclass(frozen=True)
class Paired:
    """Costs of one method over those of another, paired by function and seed.

    Attributes:
      ratio: geometric mean.
      low: lower end of its 95 % interval, by a bootstrap that resamples the pairs of a function.
      high: its upper end.
      cheaper: functions on which the mean over seeds is less.
      costlier: functions on which it is more.
      equal: functions on which it is the same.
    """

    ratio: float
    low: float
    high: float
    cheaper: int
    costlier: int
    equal: int

    @classmethod
    def of(cls, ours: np.ndarray, theirs: np.ndarray) -> Paired:
        """Compares costs [functions, seeds]."""
        logs = np.log(np.maximum(ours, 1) / np.maximum(theirs, 1))
        drawn = np.random.default_rng(0).integers(logs.shape[1], size=(RESAMPLES, *logs.shape))
        means = np.take_along_axis(logs[None], drawn, axis=-1).mean((1, 2))
        low, high = np.exp(np.quantile(means, (0.025, 0.975)))
        signs = np.sign(ours.mean(1) - theirs.mean(1))
        counts = (int((signs == sign).sum()) for sign in (-1, 1, 0))
        return cls(float(np.exp(logs.mean())), float(low), float(high), *counts)


def compared_at(document: Document, seconds: float) -> Paired:
    """Compares `optimize` with `anneal` on `core` after so many seconds."""
    limit = math.inf if seconds >= document.protocol.seconds else seconds
    ours, theirs = (
        document.costs(CORE, (name, "rerun"), seconds=limit) for name in ("optimize", "anneal")
    )
    return Paired.of(ours, theirs)


def what_learning_adds(document: Document) -> str:
    """Returns `optimize` against `anneal` after 1, 10 and 60 seconds, with a sentence of each."""
    end = document.protocol.seconds
    rows = [
        "| after | cost of `optimize` / `anneal` | cheaper on | more expensive on | equal on |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    sentences = []
    for seconds in sorted({min(x, end) for x in (1.0, 10.0, end)}):
        one, after = compared_at(document, seconds), f"{seconds:g} s"
        interval = f"{one.ratio:.4f} ({one.low:.4f} to {one.high:.4f})"
        rows.append(_row((after, interval, f"{one.cheaper}", f"{one.costlier}", f"{one.equal}")))
        if one.low <= 1 <= one.high:
            said = "the policy adds nothing to annealing that these seeds can show."
        else:
            change = "more expensive" if one.ratio > 1 else "cheaper"
            said = f"orders are {100 * abs(1 - one.ratio):.2f} % {change} with the policy."
        sentences.append(f"After {after} {said}")
    return "\n".join([*rows, "", " ".join(sentences)])


def orders_table() -> str:
    """Returns the cheapest shipped order of each task as Markdown."""
    best: dict[str, tuple[int, str]] = {}
    for order in shipped_orders():
        entry = order.counts["multiplications"], order.found_by
        if order.name not in best or entry[0] < best[order.name][0]:
            best[order.name] = entry
    rows = ["| task | multiplications | method |", "| --- | ---: | --- |"]
    for name in (name for name in veenv.tasks.list() if name in best):
        count, method = best[name]
        rows.append(_row((escaped(name), f"{count:,}", escaped(method))))
    return "\n".join(rows)


def run_times(rows: Sequence[Mapping[str, str]]) -> str:
    """Returns the multiplications of orders beside their run times as Markdown.

    Args:
      rows: those of the part `runtimes` of `scripts.benchmarks.jacobians`, by column.
    """
    if not rows:
        return ""
    columns = [*rows[0]]
    lines = [_row(columns), "| --- |" + " ---: |" * (len(columns) - 1)]
    return "\n".join([*lines, *(_row([escaped(row[name]) for name in columns]) for row in rows)])


def escaped(text: str) -> str:
    """Returns text from outside as a cell of a table: one line without Markdown and HTML.

    >>> escaped("<b>*x*</b> | y")
    '&#60;b&#62;&#42;x&#42;&#60;/b&#62; &#124; y'
    """
    text = "".join(c if c.isprintable() else " " for c in text)
    return re.sub(r"[&<>|*`~$\\\[\]]|\b_|_\b", lambda m: f"&#{ord(m[0])};", text)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _label(entrant: Entrant, runs: Sequence[Run]) -> str:
    """Returns the cell of a method, with its failures and whether its effort is only reported."""
    failed = sum(bool(run.failure) for run in runs)
    said = f", {failed} of {len(runs)} runs failed" if failed else ""
    return f"{escaped(entrant[0])}{' *reported*' * (entrant[1] == 'reported')}{said}"


def _summaries(
    document: Document, chosen: str, entrant: Entrant, costs: np.ndarray
) -> tuple[Summary, Summary | None]:
    """Returns costs [functions, seeds] to the best classical orders and to the references."""
    one = document.evaluation(chosen, entrant, costs)
    classical = one.compared("classical")
    assert classical is not None  # every function has classical orders
    return classical, one.compared("reference")


def _interval(one: Summary, seeds: int) -> str:
    """Returns an interquartile mean, with its interval if there are several seeds."""
    interval = f" ({one.low:.3f} to {one.high:.3f})" if seeds > 1 else ""
    return f"{one.middle:.3f}{interval}"


def _seconds(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _seconds_to(runs: Sequence[Run], best: Mapping[str, int]) -> str:
    """Returns the median time to a cost near the best; "-" if fewer than half of the runs get it.

    The median of an even number is the lower one.
    """
    times = sorted(
        math.inf
        if run.failure
        else min((at for at, _, c in run.trace if c <= NEAR * best[run.function]), default=math.inf)
        for run in runs
    )
    middle = times[(len(times) - 1) // 2]
    return "-" if middle == math.inf else _seconds(middle)


def cost_by_time(document: Document, path: Path) -> None:
    """Draws the least cost so far over the best classical order, a panel for each function.

    A line is the mean over the seeds, from the time on at which all of them have an order.
    """
    from matplotlib.ticker import MaxNLocator

    functions = document.of_set(CORE)
    columns = min(3, len(functions))
    lines = -(-len(functions) // columns)
    figure, end = canvas(5.6, 0.7 + 1.35 * lines), document.protocol.seconds
    panels = axes_of(figure, lines, columns)
    times = np.geomspace(end / 600, end, 100)
    runs = {name: document.of_method(CORE, (name, "rerun")) for name in TIMED}
    for panel, one in zip(panels, functions, strict=False):
        lowest, highest = 1.0, 1.0
        for name in TIMED:
            seeds = [run for run in runs[name][one.function] if not run.failure and run.trace]
            if not seeds:
                continue
            at = times[times >= max(run.trace[0][0] for run in seeds)]
            mean = np.mean([_least_at(run, at) for run in seeds], 0) / one.classical
            corner = np.ones(len(mean), bool)  # a point between two equal ones draws nothing
            corner[1:-1] = (mean[1:-1] != mean[:-2]) | (mean[1:-1] != mean[2:])
            panel.plot(at[corner], mean[corner], color=COLOURS[name], lw=1.3)
            lowest, highest = min([lowest, *mean]), max([highest, *mean])
        if one.reference is not None:
            panel.axhline(one.reference / one.classical, color=INK, ls=":", lw=0.8)
            lowest = min(lowest, one.reference / one.classical)
        room = 0.06 * max(1 - lowest, 0.02)
        panel.set(xscale="log", xlim=(times[0], end))
        panel.set_ylim(lowest - room, min(highest, 1 + 0.5 * max(1 - lowest, 0.05)) + room)
        panel.set_title(one.function, fontsize=7.5)
        panel.tick_params(labelsize=7)
        panel.yaxis.set_major_locator(MaxNLocator(4))
        panel.set_xticks([x for x in (0.1, 1, 10, 60) if times[0] <= x <= end], minor=False)
        panel.xaxis.set_major_formatter("{x:g}")
        panel.minorticks_off()
    for panel in panels[len(functions) :]:
        panel.remove()
    figure.supxlabel("seconds, compilation included", fontsize=8)
    figure.supylabel("least cost so far / best classical order", fontsize=8)
    _legend(figure, TIMED)
    save(figure, path)


def _least_at(run: Run, times: np.ndarray) -> np.ndarray:
    """Returns the least costs so far at times after the first order, [times]."""
    seconds, _, costs = np.array(run.trace).T
    return np.minimum.accumulate(costs)[np.searchsorted(seconds, times, side="right") - 1]


def _legend(figure: Any, names: Sequence[str], columns: int = 4) -> None:
    """Puts the names of methods above the panels."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=COLOURS[name], ls=_style(name), lw=1.6, label=name) for name in names
    ]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=columns, fontsize=8, columnspacing=1.2
    )


def _style(name: str) -> str:
    return "-" if METHODS[name].timed else "--"


def profile(document: Document, entrant: Entrant, factors: np.ndarray) -> np.ndarray:
    """Returns the share of a method's runs on `core` within each factor of the best cost."""
    best = np.array([*document.best(CORE).values()])
    ratios = np.maximum(document.costs(CORE, entrant), 1) / np.maximum(best, 1)[:, None]
    return np.array([(ratios <= factor).mean() for factor in factors])


def profiles(document: Document, path: Path) -> None:
    """Draws the share of runs within each factor of the best cost, a line for each method."""
    figure = canvas(5.6, 4.4)
    [panel] = axes_of(figure)
    factors = 1 + np.geomspace(1e-3, 1, 300)
    for name in METHODS:
        share = profile(document, (name, "rerun"), factors)
        panel.plot(factors - 1, share, _style(name), color=COLOURS[name], lw=1.5)
    panel.set(xscale="log", xlim=(1e-3, 1), ylim=(-0.02, 1.02))
    panel.set_xticks([0.001, 0.01, 0.1, 1], ["0.1 %", "1 %", "10 %", "100 %"])
    panel.set_xlabel("cost above the best of all methods, at most")
    panel.set_ylabel("share of runs on core")
    _legend(figure, [*METHODS])
    save(figure, path)


def generalisation(document: Document, path: Path) -> None:
    """Draws the shipped policy and Markowitz' rule on `core` and on `real`, with intervals."""
    names = "policy-32", "policy-1", "markowitz"
    figure = canvas(5.6, 2.6)
    [panel] = axes_of(figure)
    for k, (chosen, colour) in enumerate(((CORE, OURS), (REAL, THIRD))):
        number = len(document.of_set(chosen))
        if not number:
            continue
        entrants = [(name, "rerun") for name in names]
        costs = [document.costs(chosen, entrant) for entrant in entrants]
        shown = [
            _summaries(document, chosen, entrant, each)[0]
            for entrant, each in zip(entrants, costs, strict=True)
        ]
        _points(panel, k, shown, colour, f"{chosen}, {number} functions")
    panel.set_yticks(range(len(names)), names)
    panel.set(ylim=(len(names) - 0.5, -0.5))
    panel.axvline(1, color=INK, lw=1)
    panel.set_xlabel(
        "cost / best classical order, interquartile mean\n"
        "(the policy was trained on random functions only)"
    )
    figure.legend(loc="outside upper center", ncols=2, fontsize=8)
    save(figure, path)


def _points(panel: Axes, k: int, shown: Sequence[Summary], colour: str, label: str) -> None:
    """Draws summaries as points with intervals and numbers, series above series."""
    places = [row + 0.3 * k - 0.15 for row in range(len(shown))]
    middles = [one.middle for one in shown]
    sides = [
        [one.middle - one.low for one in shown],
        [one.high - one.middle for one in shown],
    ]
    panel.errorbar(middles, places, xerr=sides, fmt="o", color=colour, ms=5, capsize=3, label=label)
    for middle, high, place in zip(middles, (one.high for one in shown), places, strict=True):
        panel.annotate(
            f"{middle:.3f}", (max(middle, high), place), (7, 0), textcoords="offset points",
            va="center", fontsize=8, color=colour,
        )  # fmt: skip
    panel.margins(x=0.15)


PICTURES = {
    "cost-by-time": cost_by_time,
    "profiles": profiles,
    "generalisation": generalisation,
}
"""The function that draws each picture of the page."""


def read_run_times(path: Path = RUN_TIMES) -> list[dict[str, str]]:
    """Returns the rows of the measured run times by column; none where they are not measured."""
    if not path.exists():
        return []
    [table] = json.loads(path.read_text(encoding="utf-8"))["tables"]
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def write(document: Document, docs: Path = DOCS) -> None:
    """Writes all tables into the page of the leaderboard, and its pictures.

    Args:
      document: the runs of docs/leaderboard, reported ones included.
      docs: has leaderboard.md with ``<!-- NAME: begin -->`` and end of each section, and pictures/.

    Raises:
      OSError: a file cannot be read or written.
      ValueError: the page has no such sections.
    """
    sections = {
        "protocol": " ".join(filter(None, (protocol_line(document), neighbour(document)))),
        "methods": main_table(document),
        "learning": what_learning_adds(document),
        "functions": by_function(document),
        "held-out": held_out(document),
        "run-times": run_times(read_run_times()),
        "orders": orders_table(),
    }
    for name, text in sections.items():
        write_section(docs / PAGE, name, text)
    (docs / FOLDER).mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        draw(document, docs / FOLDER / f"{name}.svg")
