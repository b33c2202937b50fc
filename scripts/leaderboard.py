"""Proves the orders of docs/leaderboard and writes docs/leaderboard.md.

    python scripts/leaderboard.py

Each file ``docs/leaderboard/NAME.json`` is an order file; ``entries.toml`` next to it says under
``[NAME]`` who found it and in how many seconds on what machine. An order is listed only if it
passes what scripts/validate.py checks; exit code 1 if one does not, 2 if a file is missing.
Each file ``docs/leaderboard/policies/NAME.json`` is what `veenv.evaluate` found on a named set, and
each file ``docs/leaderboard/learners/NAME.json`` a row that scripts/learners.py made. The orders of
all their seeds are counted again, as are the classical ones: what is not counted has no figures.
"""

from __future__ import annotations

from veenv.agents.cli.signals import exit_on_interrupt, run_script

exit_on_interrupt(__name__)

import dataclasses
import itertools
import re
import sys
import tomllib
from collections.abc import Sequence
from math import fsum, inf
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

import veenv

sys.path.insert(0, str(Path(__file__).parents[1]))  # a checkout is not installed

from scripts.learners import PARTLY, evaluation_of, start_of
from veenv.agents.config.args import printable
from veenv.env import random_action
from veenv.env.factory import task_graph
from veenv.env.task_set import graphs_of
from veenv.graph.graph import Graph
from veenv.measure.validation import validate
from veenv.orders.documents import parse_object, write_section
from veenv.orders.order import Order, fingerprint
from veenv.orders.shipped import shipped_orders
from veenv.search.evaluation import Evaluation, Row, Summary
from veenv.tasks.evaluation_sets import (
    BUDGETS,
    CANDIDATES,
    compared_sets,
    drawn_from,
    evaluation_set,
    set_names,
)

ROOT = Path(__file__).parents[1]

PUBLISHED = {
    "RoeFlux_1d": {"AlphaZero, published": (320, 342, 6)},
    "HumanHeartDipole": {"AlphaZero, published": (148, 156, ""), "PPO, published": (161, 167, "")},
}
"""Least and largest count of published runs, and how many if known (Lohoff & Neftci 2024)."""

NOT_COUNTED = "not counted"
"""In place of the figures of a file without orders, or of graphs of another version of JAX."""

PART = " functions"
"""What the name of an evaluation ends with that lacks functions which are in the set today."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Proves the submitted orders and writes the leaderboard."""

    folder: Path = ROOT / "docs" / "leaderboard"
    """Folder of the order files and of entries.toml."""
    docs: Path = ROOT / "docs" / "leaderboard.md"
    """Page to write the table into, between ``<!-- leaderboard: begin -->`` and end."""
    baselines: bool = False
    """Play random moves, the greedy rules, the shipped policy and annealing again on every test set
    but those of learners, with five seeds, and write their files (three minutes)."""
    points: int = 3
    """Points at which Jacobians are compared; 0 counts the orders only."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One row.

    Attributes:
      task: name of the task.
      count: its multiplications.
      method: how the order was found.
      by: who found it.
      seconds: how long it took; None if that is not known.
      machine: on what.
    """

    task: str
    count: int
    method: str
    by: str
    seconds: float | None = None
    machine: str = ""


def main(config: Config) -> int:
    """Proves, writes and returns the exit code."""
    try:
        if config.baselines:
            play_baselines(config.folder / "policies")
        entries = [*shipped_entries(), *read_entries(config.folder, config.points)]
        policies = read_policies(config.folder / "policies")
        write_section(config.docs, "leaderboard", table(entries))
        learners = read_learners(config.folder / "learners")
        write_section(config.docs, "policies", policy_table(policies))
        write_section(config.docs, "learners", learner_table(learners))
        write_section(config.docs, "pairs", paired_table(learners))
        write_section(config.docs, "hard", by_task([x for x in learners if x.tasks == "hard"]))
    except RuntimeError as error:
        print(printable(f"error: {error}"), file=sys.stderr)
        return 1
    except (ValueError, OSError) as error:
        print(printable(f"error: {error}"), file=sys.stderr)
        return 2
    print(f"{len(entries)} orders: {config.docs}")
    return 0


def read_entries(folder: Path, points: int) -> list[Entry]:
    """The submitted orders, each proved at so many points.

    Raises:
      RuntimeError: an order does not pass.
      ValueError: a file is no order file, or there is no word about it in entries.toml.
      OSError: a file cannot be read.
    """
    words = tomllib.loads((folder / "entries.toml").read_text(encoding="utf-8"))
    files = {path.stem: path for path in sorted(folder.glob("*.json"))}
    if words.keys() != files.keys():
        raise ValueError(f"entries.toml names {sorted(words)}, the folder has {sorted(files)}")
    entries = []
    for name, path in files.items():
        order, word = Order.load(path), _checked(name, words[name])
        task = veenv.tasks.get(order.name)
        if points:
            report = validate(order, task, points=points, rounds=0)
            if not report.passed:
                raise RuntimeError(f"{path.name}: {'; '.join(report.problems)}")
        graph = veenv.make_graph(task.fun, task.argnums)(*task.example_args())
        count = graph.cost(order.ids_for(graph))
        entries.append(Entry(task.name, count, order.found_by, **word))
    return entries


def _checked(name: str, word: Any) -> dict[str, Any]:
    """Checks and returns what entries.toml says about an order.

    Raises:
      ValueError: a field is missing or of another kind.
    """
    for field, kind in {"by": str, "seconds": int | float, "machine": str}.items():
        value = word.get(field) if isinstance(word, dict) else None
        if not isinstance(value, kind) or isinstance(value, bool) or value in (inf, -inf):
            raise ValueError(f"entries.toml: {field} of [{name}] is {value!r:.60}")
    return {field: word[field] for field in ("by", "seconds", "machine")}


def shipped_entries() -> list[Entry]:
    """The orders that come with the package, the best of each task; proved by validate.py."""
    best: dict[str, Entry] = {}
    for order in shipped_orders():
        entry = Entry(order.name, order.counts["multiplications"], order.found_by, "shipped")
        if order.name not in best or entry.count < best[order.name].count:
            best[order.name] = entry
    return [best[name] for name in veenv.tasks.list() if name in best]


def table(entries: Sequence[Entry]) -> str:
    """The entries as Markdown, by task, the cheapest first."""
    rows = ["| task | multiplications | method | by | seconds | machine |"]
    rows.append("| --- | --- | --- | --- | --- | --- |")
    names = list(dict.fromkeys(entry.task for entry in entries))
    for entry in sorted(entries, key=lambda e: (names.index(e.task), e.count)):
        seconds = "" if entry.seconds is None else f"{entry.seconds:,.0f}"
        cells = entry.task, f"{entry.count:,}", entry.method, entry.by, seconds, entry.machine
        rows.append(f"| {' | '.join(map(escaped, cells))} |")
    return "\n".join(rows)


def play_baselines(folder: Path) -> None:
    """Evaluates what every policy is compared with, and writes the files.

    Raises:
      OSError: a file cannot be written.
    """

    def at_random(key: Any, seen: Any, mask: Any) -> Any:
        return random_action(key, mask)

    ways: dict[str, tuple[Any, dict[str, Any]]] = {
        "random": (at_random, {"samples": 32, "seed": range(5), "name": "random play"}),
        "markowitz": ("markowitz", {}),
        "cost": ("cost", {"name": "cheapest vertex first"}),
        "policy": (
            "policy-32",
            {"seed": range(5), "budget": "60s", "name": "shipped policy, 32 games"},
        ),
        "anneal": (
            "anneal",
            {"seed": range(5), "budget": 20_000, "name": "annealing, 20,000 orders"},
        ),
    }
    for chosen in compared_sets():
        if chosen in BUDGETS:  # those are for learners
            continue
        for kind, (policy, options) in ways.items():
            veenv.evaluate(policy, chosen, **options).save(folder / f"{kind}-{chosen}.json")


def read_policies(folder: Path) -> list[Evaluation]:
    """The evaluations on named sets, counted; those that cannot be counted here are last.

    Raises:
      RuntimeError: an order does not cost what its row says, or the graphs are others.
      ValueError: a file is no evaluation of a whole named set.
      OSError: a file cannot be read.
    """
    rows = counted([Evaluation.load(path) for path in sorted(folder.glob("*.json"))])
    middles = {id(one): x.middle for one in rows if (x := one.compared("classical")) is not None}
    return sorted(rows, key=lambda one: (one.tasks, middles.get(id(one), inf)))


def read_learners(folder: Path) -> list[Evaluation]:
    """The rows of learners, single tasks first, as `read_policies` has them.

    Rows whose first seed is not through yet are left out.

    Raises:
      RuntimeError: an order does not cost what its row says, or the graphs are others.
      ValueError: a file is no row.
      OSError: a file cannot be read.
    """
    paths = sorted(folder.glob("*.json"))
    rows = [evaluation_of(parse_object(path.read_bytes())) for path in paths]
    evaluations = counted([row for row in rows if row is not None])

    def place(one: Evaluation) -> tuple[Any, ...]:
        partly = one.policy.endswith((PARTLY, PART))
        return one.tasks in set_names(), one.tasks, _start(one), partly, _mean(one)

    return sorted(evaluations, key=place)


def counted(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """Counts the order of each task and seed; classical costs and references are made here, too.

    Raises:
      RuntimeError: an order does not cost what its row says, or the graphs are others.
      ValueError: what was played has no name, or the rows are not those of all its tasks and seeds.
    """
    graphs: dict[str, dict[str, Graph]] = {
        name: graphs_of(evaluation_set(name), "multiplications")
        if name in set_names()
        else {name: task_graph(name)}
        for name in {one.tasks for one in evaluations}
    }
    return [_counted(one, graphs[one.tasks]) for one in evaluations]


def _counted(one: Evaluation, graphs: dict[str, Graph]) -> Evaluation:
    """One evaluation, as `counted`; without rows if it has no orders or another JAX made it."""
    number, title = len(one.seeds), f"{one.policy} on {one.tasks}"
    if one.cost != "multiplications":
        raise ValueError(f"{title}: expected costs in multiplications, got {one.cost}")
    one = _of_today(one, graphs)
    if not 0 < number == len({*one.seeds}):
        raise ValueError(f"{title}: expected different seeds")
    rows: list[Row] = []
    for row in one.rows:
        name, graph = row.task, graphs[row.task]
        if {len(row.costs), len(row.orders)} != {number}:
            raise ValueError(f"{title}: {name}: expected {number} costs and orders, one a seed")
        if fingerprint(graph) != row.fingerprint:
            if one.jax == jax.__version__:
                raise RuntimeError(f"{one.policy} on {name}: another graph")
            return dataclasses.replace(one, rows=())  # another version of JAX traces it otherwise
        if graph.eliminable and () in row.orders:
            return dataclasses.replace(one, rows=())
        try:
            rows.append(row.recounted(graph, one.cost))
        except ValueError as error:
            raise RuntimeError(f"{one.policy} on {error}") from error
    return dataclasses.replace(one, rows=tuple(rows))


def _of_today(one: Evaluation, graphs: dict[str, Graph]) -> Evaluation:
    """The rows of the functions that are in the set today; a name of less than all of them says so.

    Raises:
      ValueError: a row is of a function that was never in the set, or there is none, or two of one.
    """
    rows_by_name = {row.task: row for row in one.rows}
    for name in rows_by_name.keys() - graphs.keys():
        if name not in CANDIDATES.get(one.tasks, ()) and not (
            drawn_from(name) and name.startswith(f"{one.tasks} ")
        ):
            raise ValueError(
                f"{one.policy} on {one.tasks}: {name!r:.60} is no function of this set"
            )
    rows = tuple(rows_by_name[name] for name in graphs if name in rows_by_name)
    if not rows or len(rows_by_name) < len(one.rows):
        raise ValueError(f"{one.policy} on {one.tasks}: expected one row for each function")
    part = f", {len(rows)} of {len(graphs)}{PART}" if len(rows) < len(graphs) else ""
    return dataclasses.replace(one, policy=one.policy + part, rows=rows)


def policy_table(evaluations: Sequence[Evaluation]) -> str:
    """The evaluations as Markdown, by set, the cheapest first."""
    rows = [
        "| set | to the best classical order | policy | to the reference | below classical, % "
        "| played |",
        "| --- | --- | --- | --- | ---: | --- |",
    ]
    for one in evaluations:
        classical, known = one.compared("classical"), one.compared("reference")
        if classical is None:
            cells = one.tasks, NOT_COUNTED, one.policy, "", "", ""
        else:
            ratios, to_reference = (
                "" if x is None else _ratio(x, len(one.seeds)) for x in (classical, known)
            )
            seconds = sum(row.seconds for row in one.rows)
            seeds = f"{len(one.seeds)} seed{'s' * (len(one.seeds) > 1)}"
            played = f"{one.budget or one.samples}, {seeds}, {seconds:,.0f} s"
            below = f"{100 * classical.below:.0f}"
            cells = one.tasks, ratios, one.policy, to_reference, below, played
        rows.append(f"| {' | '.join(map(escaped, cells))} |")
    return "\n".join(rows)


def learner_table(evaluations: Sequence[Evaluation]) -> str:
    """Rows of learners as Markdown: costs on a task, ratios to the best classical orders on a set.

    Published results of a task come first.
    """
    rows = [
        "| played | start | learner | mean | interquartile mean | worst | to the reference "
        "| budget | seeds | steps of a seed | seconds of a seed |",
        "| --- | --- | --- | ---: | --- | ---: | --- | --- | ---: | ---: | ---: |",
    ]
    titles = list(dict.fromkeys(one.tasks for one in evaluations))
    for title in titles:
        for learner, (least, most, seeds) in PUBLISHED.get(title, {}).items():
            cells = f"{title} | nothing | {learner} |  | {least} to {most}"
            rows.append(f"| {cells} |  |  |  | {seeds} |  |  |")
        for one in (one for one in evaluations if one.tasks == title):
            compared, to_reference = one.compared("classical"), one.compared("reference")
            if compared is None:
                cells = title, _start(one), one.policy, NOT_COUNTED, "", "", "", one.budget or ""
                cells = *cells, "", "", ""
                rows.append(f"| {' | '.join(map(escaped, cells))} |")
                continue
            scale, digits = (one.rows[0].classical, 1) if len(one.rows) == 1 else (1, 3)
            middle, low, high, mean, worst = (
                f"{scale * x:,.{digits}f}"
                for x in (
                    compared.middle,
                    compared.low,
                    compared.high,
                    _mean(one),
                    _ratios(one).max(),
                )
            )
            number = len(one.seeds)
            steps, seconds = (
                f"{fsum(getattr(row, name) for row in one.rows) / number:,.0f}"
                for name in ("steps", "seconds")
            )
            known = "" if to_reference is None else f"{to_reference.middle:.3f}"
            whole = f"{middle} ({low} to {high})" if number > 1 else middle
            cells = title, _start(one), one.policy, mean, whole, worst, known
            cells = *cells, one.budget or "", f"{number}", steps, seconds
            rows.append(f"| {' | '.join(map(escaped, cells))} |")
    return "\n".join(rows)


def paired_table(evaluations: Sequence[Evaluation]) -> str:
    """Compares learners in pairs with one budget on one set, as Markdown."""
    rows = [
        "| set | budget | learner | to | ratio | cheaper on | more expensive on |",
        "| --- | --- | --- | --- | --- | ---: | ---: |",
    ]
    played = [one for one in evaluations if one.tasks in set_names() and one.rows]
    for ours, theirs in itertools.combinations(played, 2):
        alike = (
            (one.tasks, one.budget, [row.fingerprint for row in one.rows]) for one in (ours, theirs)
        )
        if next(alike) != next(alike):
            continue
        compared = ours.compared(theirs)
        assert compared is not None  # it has rows
        differences = _by_task(ours) - _by_task(theirs)
        cells = ours.tasks, ours.budget or "", ours.policy, theirs.policy
        cells = *cells, _ratio(compared, len(ours.seeds) + len(theirs.seeds) - 1)
        cells = *cells, f"{(differences < 0).sum()}", f"{(differences > 0).sum()}"
        rows.append(f"| {' | '.join(map(escaped, cells))} |")
    return "\n".join(rows)


def _by_task(one: Evaluation) -> np.ndarray:
    """Mean costs over seeds, [tasks]."""
    return np.array([np.mean(row.costs) for row in one.rows])


def _ratio(compared: Summary, seeds: int) -> str:
    """An interquartile mean of ratios, with its interval if there is more than one seed."""
    interval = f" ({compared.low:.3f} to {compared.high:.3f})" if seeds > 1 else ""
    return f"{compared.middle:.3f}{interval}"


def _start(one: Evaluation) -> str:
    """Returns what a learner knew when it started."""
    sizes = (len(order) for row in one.rows for order in row.orders)
    return start_of(one.policy.partition(",")[0], max(sizes, default=0))


def by_task(evaluations: Sequence[Evaluation]) -> str:
    """The mean costs of evaluations on one set, a line for each task."""
    evaluations = [one for one in evaluations if one.rows]
    if not evaluations:
        return ""
    names = [f"{one.policy}, {one.budget}" for one in evaluations]
    rows = [f"| task | best classical | reference | {' | '.join(map(escaped, names))} |"]
    rows.append("| --- |" + " ---: |" * (2 + len(evaluations)))
    by_name = [{row.task: row for row in one.rows} for one in evaluations]
    for task in dict.fromkeys(name for lines in by_name for name in lines):
        lines = [rows_of.get(task) for rows_of in by_name]
        first = next(line for line in lines if line is not None)
        means = ["" if line is None else f"{np.mean(line.costs):,.0f}" for line in lines]
        known = "" if first.reference is None else f"{first.reference:,}"
        cells = escaped(task), f"{first.classical:,}", known, *means
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _mean(one: Evaluation) -> float:
    """Mean over seeds of the geometric mean over tasks of costs to the best classical order.

    Infinite for what is not counted.
    """
    if not one.rows:
        return inf
    return float(np.exp(np.log(_ratios(one)).mean(0)).mean())


def _ratios(one: Evaluation) -> np.ndarray:
    """Costs to the best classical order, [tasks, seeds]."""
    return np.array([np.maximum(row.costs, 1) / max(row.classical, 1) for row in one.rows])


def escaped(text: str) -> str:
    """Text of others as itself in a cell of a table: one line without Markdown and HTML.

    >>> escaped("<b>*x*</b> | y")
    '&#60;b&#62;&#42;x&#42;&#60;/b&#62; &#124; y'
    """
    text = "".join(c if c.isprintable() else " " for c in text)
    return re.sub(r"[&<>|*`~$\\\[\]]|\b_|_\b", lambda m: f"&#{ord(m[0])};", text)


if __name__ == "__main__":
    run_script(lambda: main(tyro.cli(Config)))
