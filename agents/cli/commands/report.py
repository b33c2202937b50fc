"""Shows a run, or an order, as one HTML page: ``veenv-report RUN``, or ``scripts/report.py``."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import tyro
from tyro.conf import OmitArgPrefixes

from veenv.agents.config.args import fail, parse, say
from veenv.agents.config.function import FunctionConfig
from veenv.graph.graph import CostModel
from veenv.measure.report import Subject, page_path, read_subjects, write_report
from veenv.orders.documents import as_path


@dataclasses.dataclass(frozen=True)
class ReportArgs:
    """Writes a report of a run or of an order: one HTML file that loads nothing from the network.

    Example: veenv-report runs/RoeFlux_1d/2026-11-21T04-12-26

    It shows counts, times and the proof, plays the game on the graph, and holds the order and the
    code that uses it. Exit code 0: the order is right; 1: it is not; 2: bad input.
    """

    run: Annotated[str, tyro.conf.Positional]
    """Folder of a training run, or an order file."""
    out: str | None = None
    """The HTML file; by default `report.html` in the folder, or next to the order file with its
    name. For a run of several tasks a folder: `report-TASK.html` in it."""
    own: OmitArgPrefixes[FunctionConfig] = dataclasses.field(default_factory=FunctionConfig)
    cost: CostModel | None = None
    """Cost model of the game; by default the run's, or `multiplications`."""
    batch: int = 4096
    """Points that are differentiated at once when timed."""
    rounds: int = 20
    """Timed calls of each way to the Jacobian; 0 leaves the timing out."""
    points: int = 3
    """Points at which values are compared with JAX's."""
    seed: int = 0
    """Seed of the random points."""


def main() -> int:
    """Parses the command line and writes the pages; the exit code."""
    args = parse(ReportArgs)
    try:
        subjects = read_subjects(args.run, args.cost, args.own.read())
        right = [_write(args, subject, len(subjects) > 1) for subject in subjects]
    except (ValueError, OSError) as error:
        fail(str(error))
    return 0 if all(right) else 1


def _write(args: ReportArgs, subject: Subject, several: bool) -> bool:
    """Writes one page; True if its order is right."""
    subject = dataclasses.replace(subject, imports=args.own.imports)
    out = None if args.out is None else as_path(args.out)
    path = page_path(as_path(args.run), subject.task.name, several, out)
    proof = write_report(
        path, subject, batch=args.batch, rounds=args.rounds, points=args.points, seed=args.seed
    )
    say(f"report: {path}")
    for problem in proof.problems:
        say(f"WRONG: {problem}")
    return proof.passed
