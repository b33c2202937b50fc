"""Makes, checks and draws the leaderboard: ``python scripts/leaderboard.py --help``."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # a checkout is not installed

from veenv.agents.cli.signals import exit_on_interrupt, run_script

exit_on_interrupt(__name__)

import concurrent.futures
import contextlib
import dataclasses
import itertools
import json
import os
import platform
import queue
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import jax
import tyro

from scripts.benchmarks.document import MOST_SEEDS, Document, Function, Protocol
from scripts.benchmarks.methods import resolved
from scripts.benchmarks.runs import (
    CORE,
    PATIENCE,
    PROCESSES,
    START,
    Job,
    Run,
    graph_of,
    jobs_of,
    latest,
    run_apart,
)
from scripts.docs import leaderboard as page
from veenv.agents.config.args import printable
from veenv.env.rewards import classical_costs
from veenv.orders.documents import file_name, parse_object, write_text
from veenv.orders.fields import read_field
from veenv.orders.order import fingerprint
from veenv.search.api import search
from veenv.search.heuristic.greedy_rules import greedy
from veenv.search.problem import prepare
from veenv.tasks.evaluation_sets import FIXED

FOLDER = ROOT / "docs" / "leaderboard"
FASTEST = 2.5e7
"""Eliminations a second of the fastest method known on one core, annealing (orders times vertices);
a file that says more than ten times as many is refused."""
ENVIRONMENT = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
    "JAX_ENABLE_COMPILATION_CACHE": "false",
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"),
    "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
}
"""Environment of a run: one thread, and no program that another run has compiled."""
WARM_UP, WARM_UP_ORDERS = ("RoeFlux_1d", "Encoder"), 1000
"""Functions, of scalars and of arrays, that are searched before the runs, and how many orders of
each: it compiles the kernels of searches, which are the same for all functions and stay on disk.
A search of a function whose best order is proved would end too early."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Writes the tables and pictures of docs/leaderboard from its file of runs.

    Raises:
      ValueError: a number is not positive, or a trial would write into docs/leaderboard.
    """

    refresh: bool = False
    """Make all rows anew on this machine, two runs at a time, each on a core of its own (two
    hours). The same command again goes on where it was killed."""
    check: bool = False
    """Count every order again and check what a file says, without writing (a minute)."""
    method: str = ""
    """Run a method on `core`, ``FILE.py:FUNCTION`` or one of ours, and write its row as
    *reported*. The function takes a graph, a seed, a number of seconds and report(eliminations,
    cost), and returns vertex ids."""
    seconds: float = 60.0
    """Budget of a run, compilation included."""
    seeds: int = 3
    """Seeds of a method that is random."""
    functions: tuple[str, ...] = ()
    """Functions to play instead of both sets, for a trial in another folder."""
    folder: Path = FOLDER
    """Folder of the file of runs and of reported rows."""
    docs: Path | None = None
    """Folder of the page and the pictures; by default they are written for docs/leaderboard
    only."""

    def __post_init__(self) -> None:
        """Checks the numbers and the folder."""
        if not self.seconds > 0:
            raise ValueError(f"seconds must be positive, got {self.seconds:g}")
        if not 1 <= self.seeds <= MOST_SEEDS:
            raise ValueError(f"seeds must be between 1 and {MOST_SEEDS}, got {self.seeds}")
        if self.functions and self.official:
            raise ValueError("a trial with --functions needs another --folder")

    @property
    def official(self) -> bool:
        """True for the folder that the page is made of."""
        return self.folder.resolve() == FOLDER

    @property
    def runs(self) -> Path:
        """The file of runs."""
        return self.folder / "runs.json"


def main(config: Config) -> int:
    """Does what the options say; returns the exit code."""
    try:
        if config.method:
            play_method(config)
        if config.refresh:
            refresh(config)
        if config.method and not config.runs.exists():
            return 0  # a trial of one method has no table
        document = whole_document(config)
        check(document)
        docs = config.docs or (page.DOCS if config.official else None)
        if docs is not None and not config.check:
            page.write(document, docs)
    except RuntimeError as error:
        print(printable(f"error: {error}"), file=sys.stderr)
        return 1
    except (ValueError, OSError) as error:
        print(printable(f"error: {error}"), file=sys.stderr)
        return 2
    print(f"{len(document.runs)} runs are right: {config.runs}")
    return 0


def wanted(config: Config) -> list[tuple[str, str]]:
    """Lists the sets and functions to play."""
    if config.functions:
        return [(CORE, function) for function in config.functions]
    return [(chosen, function) for chosen, functions in FIXED.items() for function in functions]


def refresh(config: Config) -> None:
    """Makes every run that the file of this refresh does not have yet, then writes the document.

    Raises:
      RuntimeError: as `check`; the file of this refresh stays.
      ValueError: the file of an interrupted refresh is of another machine, version or budget.
    """
    protocol = protocol_of(config)
    functions = tuple(_function(chosen, name) for chosen, name in wanted(config))
    part = config.folder / "runs.part.jsonl"
    head = {
        "commit": _commit(),
        "protocol": dataclasses.asdict(protocol),
        "functions": [dataclasses.asdict(function) for function in functions],
    }
    done, before = _resumed(part, head)
    began, jobs, starts = time.monotonic() - before, jobs_of(wanted(config), config.seeds), []
    cores = _cores(2)
    for function in WARM_UP:
        search(function, "auto", budget=WARM_UP_ORDERS)
    with part.open("a", encoding="utf-8") as file:
        for alone in (False, True):
            left = [job for job in jobs if job.alone == alone and job not in done]
            for run, start in _made(left, cores[:1] if alone else cores, config.seconds):
                wall = round(time.monotonic() - began, 1)
                file.write(json.dumps({"wall": wall, **dataclasses.asdict(run)}) + "\n")
                file.flush()
                done[run.job] = run
                starts.append(start)
                rest = [
                    (sum(starts) / len(starts) + job.timed * job.budget(config.seconds))
                    / (1 if job.alone else len(cores))
                    for job in jobs
                    if job not in done
                ]
                print(
                    f"{len(done)} of {len(jobs)}, {sum(rest) / 60:.0f} minutes left: {run}: "
                    f"{run.failure or run.cost}",
                    flush=True,
                )
    hours = round((time.monotonic() - began) / 3600, 3)
    protocol = dataclasses.replace(protocol, date=time.strftime("%Y-%m-%d"), hours=hours)
    document = Document(protocol, functions, tuple(done[job] for job in jobs)).complete()
    check(document)
    write_document(config.runs, document)
    part.unlink()


def _commit() -> str:
    """Returns the commit of the code; empty where there is none."""
    command = ["git", "rev-parse", "HEAD"]
    with contextlib.suppress(OSError):
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return ""


def _resumed(part: Path, head: Mapping[str, Any]) -> tuple[dict[Job, Run], float]:
    """Reads the runs of an interrupted refresh and its seconds; begins a file where there is none.

    Raises:
      ValueError: it is of another machine, version, commit or budget.
    """
    if not part.exists():
        write_text(part, json.dumps(head) + "\n")
        return {}, 0.0
    first, *rest = part.read_text(encoding="utf-8").splitlines(keepends=True)
    if json.loads(first) != head:
        raise ValueError(f"{part} is of another machine, version, commit or budget: remove it")
    lines = [line for line in rest if line.endswith("\n")]
    write_text(part, "".join([first, *lines]))  # a line that a kill has cut is left out
    entries = [json.loads(line) for line in lines]
    runs = [read_field("", Run, entry) for entry in entries]
    return {run.job: run for run in runs}, max([0.0, *(entry["wall"] for entry in entries)])


def _cores(number: int) -> list[int]:
    """Returns the first cores that this process may use; -1 alone where it cannot choose."""
    return sorted(os.sched_getaffinity(0))[:number] if hasattr(os, "sched_getaffinity") else [-1]


def _made(
    jobs: Sequence[Job], cores: Sequence[int], seconds: float, method: str = ""
) -> Iterator[tuple[Run, float]]:
    """Yields each run with the seconds that its process took besides, as many at once as cores."""
    if START == "forkserver":
        PROCESSES.set_forkserver_preload(["scripts.leaderboard"])
    free: queue.SimpleQueue[int] = queue.SimpleQueue()
    for core in cores:
        free.put(core)

    def make(job: Job) -> tuple[Run, float]:
        core, began = free.get(), time.monotonic()
        try:
            run = run_apart(job, job.budget(seconds), core, method)
        finally:
            free.put(core)
        return run, time.monotonic() - began - run.seconds

    with concurrent.futures.ThreadPoolExecutor(len(cores)) as pool:
        yield from pool.map(make, jobs)


def play_method(config: Config) -> None:
    """Runs one method on `core`, one run at a time, and writes its row.

    Raises:
      RuntimeError: all runs failed, or as `check`.
      ValueError: there is no such method.
    """
    method, name = resolved(config.method), file_name(config.method.rpartition(":")[2])
    functions = tuple(_function(CORE, name) for chosen, name in wanted(config) if chosen == CORE)
    jobs = [
        Job(CORE, one.function, name, seed, origin="reported")
        for one in functions
        for seed in range(config.seeds)
    ]
    runs = []
    for run, _ in _made(jobs, _cores(1), config.seconds, method):
        print(f"{run}: {run.failure or run.cost}", flush=True)
        runs.append(run)
    if all(run.failure for run in runs):
        raise RuntimeError(f"every run of {config.method} failed: {runs[0].failure}")
    document = Document(protocol_of(config), functions, tuple(runs))
    check(document)
    write_document(config.folder / "reported" / f"{name}.json", document)


def protocol_of(config: Config) -> Protocol:
    """Describes budget, versions and machine."""
    return Protocol(
        seconds=config.seconds,
        seeds=config.seeds,
        veenv=version("veenv"),
        jax=jax.__version__,
        python=platform.python_version(),
        machine=f"{_processor()}, {os.cpu_count()} cores",
    )


def _processor() -> str:
    """The processor's name."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _function(chosen: str, name: str) -> Function:
    """Describes a function: its graph and its cheapest classical order."""
    graph = graph_of(name)
    problem, costs = prepare(graph), classical_costs(graph, "multiplications")
    costs["greedy by cost"] = graph.cost(problem.to_ids(greedy(problem, "cost")))
    rule = min(costs, key=costs.__getitem__)
    arrays, vertices = not graph.is_scalar, len(graph.eliminable)
    return Function(chosen, name, fingerprint(graph), vertices, costs[rule], rule, arrays)


def write_document(path: Path, document: Document) -> None:
    """Writes a document, a line for each function and run."""
    fields = dataclasses.asdict(document)
    lists = [
        f'"{name}": [\n' + ",\n".join(map(json.dumps, fields[name])) + "\n]"
        for name in ("functions", "runs")
    ]
    protocol = f'"protocol": {json.dumps(fields["protocol"])}'
    write_text(path, "{\n" + ",\n".join([protocol, *lists]) + "\n}\n")


def whole_document(config: Config) -> Document:
    """Reads the file of runs, and behind it the runs of reported rows.

    Raises:
      ValueError: a file is none of ours, or has other functions, or runs are missing.
      OSError: it cannot be read.
    """
    document = _read(config.runs)
    functions, runs = document.functions, document.runs
    if [(one.set, one.function) for one in functions] != wanted(config):
        raise ValueError(f"{config.runs} has other functions than {', '.join(FIXED)} or a trial's")
    for path in sorted((config.folder / "reported").glob("*.json")):
        reported = _read(path)
        if not {*reported.functions} <= {*functions}:
            raise ValueError(f"{path} describes other functions or graphs than {config.runs}")
        if any(run.origin != "reported" for run in reported.runs):
            raise ValueError(f"{path} holds runs that are not marked as reported")
        runs += reported.runs
    return dataclasses.replace(document, runs=runs).complete()


def _read(path: Path) -> Document:
    """Reads one document and checks the kinds of its fields.

    Raises:
      ValueError: it is none.
    """
    try:
        return read_field("", Document, parse_object(path.read_bytes()))
    except ValueError as error:
        raise ValueError(f"{path} is no file of runs: {error}") from None


def check(document: Document) -> None:
    """Counts every order again, and checks what the runs say of their effort.

    Raises:
      RuntimeError: an order does not cost what its run says, a graph or a cost of a rule is
        another one, or a run made more than a machine can.
      ValueError: another version of JAX made the runs, and traces a function to another graph.
    """
    protocol = document.protocol
    for one in document.functions:
        here = _function(one.set, one.function)
        if here.fingerprint != one.fingerprint and protocol.jax != jax.__version__:
            raise ValueError(
                f"{one.function}: the runs are of jax {protocol.jax}, which traces another graph "
                f"than jax {jax.__version__} does"
            )
        if here != one:
            raise RuntimeError(f"{one.function}: the file describes another graph or other costs")
    for run in document.runs:
        problem = _problem(run, run.budget(protocol.seconds))
        if problem:
            raise RuntimeError(f"{run}: {problem}")


def _problem(run: Run, budget: float) -> str:
    """Says what of a run cannot be true; empty if nothing."""
    graph = graph_of(run.function)
    if run.seconds > (latest(budget) if run.timed and not run.failure else budget + PATIENCE):
        return f"it took {run.seconds:g} s of {budget:g}"
    points = [*run.trace, (run.seconds + 0.01, run.eliminations, -1)]  # times are rounded
    if any(b[0] < a[0] or b[1] < a[1] or b[2] >= a[2] for a, b in itertools.pairwise(points)):
        return "its trace goes back, or on after the end"
    least = 0 if run.failure else 1
    for seconds, eliminations, _ in points:
        if not least <= eliminations <= 10 * FASTEST * max(seconds, 0.1):
            return f"{eliminations:,.0f} eliminations are not possible in {seconds:g} s"
    if run.failure:
        return ""
    try:
        cost = graph.cost(graph.check_order(run.order))
    except ValueError as error:
        return str(error)
    if cost != run.cost or cost != run.trace[-1][2]:
        return f"its order costs {cost:,}, not {run.cost} or what its trace ends with"
    if run.eliminations < len(run.order):
        return f"its order takes more than {run.eliminations} eliminations"
    return ""


if __name__ == "__main__":
    os.environ |= ENVIRONMENT  # the fork server has it
    run_script(lambda: main(tyro.cli(Config)))
