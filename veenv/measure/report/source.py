"""Reads the subject of a report: a task, its graph, its orders, and the run that found them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from veenv import tasks
from veenv.env.rewards import classical_orders
from veenv.graph.graph import CostModel, Graph, check_cost_model
from veenv.graph.linearisation import make_graph
from veenv.measure.rows import read_rows, rows_of
from veenv.orders.documents import as_path, file_name, parse_object
from veenv.orders.order import Order
from veenv.tasks import Task
from veenv.tasks.user import refuse_code

CLASSICAL = ("forward", "reverse", "Markowitz")
"""Names of the orders that every graph has."""


@dataclass(frozen=True)
class Subject:
    """The subject of a report.

    Attributes:
      task: the function and its point.
      graph: its graph.
      order: the order in question.
      cost: the cost model.
      others: further orders to compare with, by name; the classical ones are added by the report.
      rows: rows of a run's metrics, each with ``steps``, ``seconds`` and, by task, ``mean_cost``
        and ``best_cost``; empty where no run is behind the order.
      facts: further lines of the headline, by name.
      imports: a line of Python that makes the function ``f`` known to the code shown; by default
        it is looked up among the tasks.
    """

    task: Task
    graph: Graph
    order: Order
    cost: CostModel = "multiplications"
    others: Mapping[str, Order] = field(default_factory=dict)
    rows: tuple[Mapping[str, Any], ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    imports: str | None = None

    def ids(self) -> dict[str, tuple[int, ...]]:
        """Returns vertex ids of all orders, by name, the one in question first.

        Raises:
          ValueError: an order is for another graph.
        """
        orders = {"this order": _ids(self.order, self.graph)}
        orders |= {name: _ids(order, self.graph) for name, order in self.others.items()}
        return orders | classical_orders(self.graph)


def _ids(order: Order, graph: Graph) -> tuple[int, ...]:
    return dataclasses.replace(order, counts={}).ids_for(graph)


def read_subjects(
    path: str | os.PathLike[str], cost: CostModel | None = None, task: Task | None = None
) -> list[Subject]:
    """Reads the subjects of a run folder, or of an order file.

    Args:
      path: folder of a training run, or order file.
      cost: the cost model; by default the run's, and ``"multiplications"`` for a file.
      task: the function; by default the task that the order names.  The folder of a run on a
        function of the user's own needs it: no code is run that a file names.

    Returns:
      One subject for each order file, or task of the run.

    Raises:
      ValueError: the folder has no orders, a file is not what it should be, or `task` is missing.
      OSError: a file cannot be read.
    """
    path = as_path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: expected a run folder or an order file")
    if not path.is_dir():
        return [_subject(Order.load(path), cost or "multiplications", task)]
    settings = _settings(path)
    user_task = settings.get("own", {})
    if task is None and isinstance(user_task, dict) and user_task.get("function"):
        refuse_code(path, user_task["function"])
    model = cost or check_cost_model(str(settings.get("cost", "multiplications")))
    rows, _ = read_rows(path / "metrics.jsonl")
    beside = ("order-polished", "order-classical")
    files = [p for p in sorted(path.glob("order*.json")) if not p.name.startswith(beside)]
    if not files:
        raise ValueError(f"{path} has no order.json: no episode was played, or it is no run folder")
    subjects = []
    for file in files:
        subject = _subject(Order.load(file), model, task)
        polished = file.with_name(file.name.replace("order", "order-polished", 1))
        further = {"polished": Order.load(polished)} if polished.exists() else {}
        known = tuple(rows_of(rows, subject.task.name))
        facts = _facts(settings, known)
        subjects.append(dataclasses.replace(subject, others=further, rows=known, facts=facts))
    return subjects


def import_line(path: str, args: str | None = None, argnums: str | None = None) -> str:
    """Returns lines that define ``f`` and ``point``, of a function as `from_path` takes it."""
    named = {"args": args, "argnums": argnums}
    arguments = repr(path) + "".join(f", {k}={v!r}" for k, v in named.items() if v is not None)
    return (
        "from veenv.tasks.user import from_path\n\n"
        f"task = from_path({arguments})\nf, point = task.fun, task.example_args()"
    )


def _subject(order: Order, cost: CostModel, task: Task | None) -> Subject:
    subject = tasks.get(order.name) if task is None else task
    graph = make_graph(subject.fun, subject.argnums)(*subject.example_args())
    return Subject(subject, graph, order, cost)


def _settings(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    try:
        return parse_object(file.read_bytes()) if file.exists() else {}
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def _facts(settings: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    facts, seed = {}, settings.get("ppo")
    if "agent" in settings:
        seed = seed.get("seed") if isinstance(seed, dict) else None
        facts["agent"] = f"{settings['agent']}, seed {seed}"
    if rows:
        facts["training"] = f"{rows[-1]['seconds']:,.0f} s, {rows[-1]['steps']:,} environment steps"
    versions = settings.get("versions")
    if isinstance(versions, dict):
        facts["versions"] = ", ".join(f"{name} {value}" for name, value in versions.items())
    return facts


def page_path(run: Path, name: str, several: bool, out: Path | None = None) -> Path:
    """Returns the path of a page: the user's, or one beside the run folder or order file."""
    if several:
        return (out or run) / f"report-{file_name(name)}.html"
    if out is not None:
        return out
    return run / "report.html" if run.is_dir() else run.with_suffix(".html")
