"""Proves orders on the real engine: ``veenv-validate --help``, or ``scripts/validate.py``.

``veenv-validate --docs docs/internals/proofs.md`` checks and times every shipped order and writes
the table of results into the documentation.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import OmitArgPrefixes

import veenv
from veenv.agents.cli.report import points_of
from veenv.agents.config.args import parse, printable, say
from veenv.agents.config.function import FunctionConfig
from veenv.graph.graph import COST_MODELS
from veenv.measure.comparison import compare
from veenv.measure.proof import TOLERANCE
from veenv.measure.timing import USUAL, machine
from veenv.measure.validation import Report, validate
from veenv.orders.documents import write_section
from veenv.orders.order import Order, fingerprint
from veenv.orders.shipped import shipped_orders
from veenv.search.evaluation import Evaluation
from veenv.tasks import Task
from veenv.tasks.user import trace_task


@dataclasses.dataclass(frozen=True)
class Config:
    """Checks an order on the environment and the engine, and times it next to the usual ways.

    Example: veenv-validate --task RoeFlux_1d

    Exit code 0: every order passes; 1: one does not; 2: bad input.
    """

    order: str | None = None
    """Order file; without it every shipped order is checked. Of several orders that are shipped
    for one task the first is timed next to the usual ways, the others alone."""
    task: Annotated[str, tyro.conf.arg(metavar="NAME")] = ""
    """Task the order is for; by default the one its file names. Alone: its shipped orders."""
    own: OmitArgPrefixes[FunctionConfig] = dataclasses.field(default_factory=FunctionConfig)
    results: str | None = None
    """File that `veenv.evaluate(...).save` wrote, instead of orders: each order in it is counted
    again, and the table printed."""
    points: int = 3
    """Points at which values are compared: the task's own, then random ones near it."""
    tolerance: float = TOLERANCE
    """Largest relative error allowed."""
    batch: int = 4096
    """Points that are differentiated at once when timed."""
    rounds: int = 20
    """Timed calls of each method, in turn; 0 leaves the timing out."""
    timing: float = 10.0
    """Seconds, about, in which an order is timed as one kernel too, beside reverse and JAX's
    modes; 0, or no rounds, leaves it out."""
    longest: float = 4.0
    """Seconds of calls after which a method is timed no more; three calls are made in any case."""
    seed: int = 0
    """Seed of the random points."""
    docs: Path | None = None
    """Document to write the table into as well, between ``<!-- proof: begin -->`` and end."""
    json: bool = False
    """Print JSON instead of text."""

    def __post_init__(self) -> None:
        """Checks the time."""
        if not self.timing >= 0:
            raise ValueError(f"timing must not be negative, got {self.timing}")


def main(config: Config | None = None) -> int:
    """Validates, prints, and returns the exit code; the command line says what by default."""
    config = parse(Config) if config is None else config
    reports: list[Report] = []
    try:
        if config.results is not None:
            say(f"{Evaluation.load(config.results).recounted()}\nall orders are counted again")
            return 0
        function = _user_function(config)
        for order in _orders(config):
            task = function or veenv.tasks.get(config.task or order.name)
            report = validate(
                order,
                task,
                points=config.points,
                tolerance=config.tolerance,
                batch=config.batch,
                rounds=config.rounds,
                seed=config.seed,
                beside=() if task.name in {r.task for r in reports} else USUAL,
                longest=config.longest,
            )
            reports.append(report)
            if not config.json:
                say(details(report))
                if config.rounds and config.timing > 0:
                    say(_seconds(order, task, config))
        if config.docs is not None:
            write_section(config.docs, "proof", document(reports))
    except (ValueError, OSError) as error:
        print(printable(f"error: {error}"), file=sys.stderr)
        return 2
    if config.json:
        print(json.dumps({"machine": machine(), "reports": [as_json(r) for r in reports]}))
    elif len(reports) > 1:
        say(table(reports))
    return 0 if all(r.passed for r in reports) else 1


def _user_function(config: Config) -> Task | None:
    """The function that the order is for; None where it is for a task.

    Raises:
      ValueError: there is no such function, it comes without an order, or with a task.
    """
    function = config.own.read()
    if function is not None and (config.task or config.order is None):
        raise ValueError("--function goes with --order FILE and without --task")
    return function


def _seconds(order: Order, task: veenv.tasks.Task, config: Config) -> str:
    """The order as one kernel and as XLA, beside reverse and JAX's modes."""
    options = {"batch": config.batch, "limit": config.timing, "seed": config.seed}
    text = compare(task, order.ids_for(trace_task(task)), **options).text()
    return "\n".join(f"  {line}" for line in text.splitlines())


def _orders(config: Config) -> list[Order]:
    """Returns the order of a file, or the shipped ones of a task or of all tasks.

    Raises:
      ValueError: if the file is not an order file, or no shipped order is for the task.
      OSError: if the file cannot be read.
    """
    if config.order is not None:
        try:
            return [Order.load(config.order)]
        except OSError as error:
            raise OSError(f"order file {config.order}: {error.strerror or error}") from None
    names = (veenv.tasks.get(config.task).name,) if config.task else veenv.tasks.list()
    orders = []
    for name in names:
        task = veenv.tasks.get(name)
        key = fingerprint(trace_task(task))
        of_graph = [order for order in shipped_orders() if order.fingerprint == key]
        orders += sorted(of_graph, key=lambda order: order.counts["multiplications"])
    if not orders:
        raise ValueError(f"no order is shipped for the graph of {', '.join(names)}")
    return orders


def details(report: Report) -> str:
    """A report as text."""
    lines = [f"{report.task} ({report.found_by})"]
    for cost, c in report.counts.items():
        recorded = "none" if c.recorded is None else c.recorded
        lines.append(
            f"  {cost}: recorded {recorded}, environment {c.environment}, engine {c.engine}, "
            f"emitted {c.emitted}"
        )
    proof = report.proof
    errors = ", ".join(f"{e:.1e} against {name}" for name, e in proof.errors.items())
    noise = "" if proof.noise is None else f" (jacrev against jacfwd: {proof.noise:.1e})"
    lines.append(f"  largest error at {points_of(proof)}, float64: {errors}{noise}")
    lines += [f"  not compared, as JAX gives nothing finite: {block}" for block in proof.missing]
    if report.timings:
        lines.append(f"  batch of {report.batch}, float32, {machine()}")
        lines.append(f"  {'':<10} {'ms':>9} {'10 %':>9} {'90 %':>9} {'Mflop':>9} {'MB temp':>9}")
    for t in report.timings:
        flops = "" if t.flops is None else f"{t.flops / 1e6:.2f}"
        temporary = "" if t.temporary is None else f"{t.temporary / 1e6:.2f}"
        lines.append(
            f"  {t.method:<10} {1e3 * t.median:>9.3f} {1e3 * t.low:>9.3f} {1e3 * t.high:>9.3f} "
            f"{flops:>9} {temporary:>9}"
        )
    lines += [f"  {problem}" for problem in report.problems]
    lines.append(f"  {'PASS' if report.passed else 'FAIL'}")
    return "\n".join(lines)


def table(reports: list[Report]) -> str:
    """Many reports as one Markdown table, a row each."""
    methods = [t.method for t in max(reports, key=lambda r: len(r.timings)).timings]
    head = ["task", *COST_MODELS, "error", *methods, "verdict"]
    rows = [head, ["---"] * len(head)]
    for r in reports:
        times = {t.method: f"{1e3 * t.median:.2f}" for t in r.timings}
        worst = r.proof.error
        counts = [f"{c.emitted:,}" for c in r.counts.values()]
        verdict = "pass" if r.passed else "FAIL"
        rows.append(
            [r.task, *counts, f"{worst:.0e}", *(times.get(m, "") for m in methods), verdict]
        )
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def document(reports: list[Report]) -> str:
    """The table, and what it was measured on, as a section of a document."""
    timed = [r for r in reports if r.timings]
    how = f" Median milliseconds for a vmapped batch of {timed[0].batch}, float32." if timed else ""
    return f"Machine: {machine()}.{how}\n\n{table(reports)}"


def as_json(report: Report) -> dict[str, object]:
    """A report as JSON; what is not finite as text."""
    record = dataclasses.asdict(report)
    record["passed"] = report.passed
    return json.loads(json.dumps(record), parse_constant=str)
