"""Runs of the leaderboard's methods: `jobs_of` lists them, `run_apart` makes one in a process."""

from __future__ import annotations

import dataclasses
import math
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).parents[2]))  # a checkout is not installed

from scripts.benchmarks.methods import METHODS, load
from veenv.env.factory import task_graph
from veenv.tasks.evaluation_sets import FIXED

CORE, REAL = FIXED
graph_of = cache(task_graph)
CONTROL, CONTROL_SECONDS = "anneal", 15.0
"""Method that is run again alone on each function of `core`, and for so long."""
PATIENCE = 60.0
"""Seconds after its budget in which a run may end by itself."""
START = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
PROCESSES: Any = multiprocessing.get_context(START)
"""Starts processes; a fork server has imported all modules before, and starts one at once."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A run that is to be made; its fields tell runs apart.

    Attributes:
      set: name of the set.
      function: name of the function.
      method: name of the method.
      seed: its seed.
      alone: True where nothing runs on the other cores.
      origin: ``"rerun"`` where the machine of the protocol makes it, ``"reported"`` where a file
        from outside says so.
    """

    set: str
    function: str
    method: str
    seed: int
    alone: bool = False
    origin: Literal["rerun", "reported"] = "rerun"

    def __str__(self) -> str:
        """Names method, function and seed in a message."""
        alone = ", alone" * self.alone
        return f"{self.method} on {self.function} of {self.set}, seed {self.seed}{alone}"

    @property
    def timed(self) -> bool:
        """True if the run takes its whole budget."""
        return self.origin == "reported" or METHODS[self.method].timed

    def budget(self, seconds: float) -> float:
        """Returns the seconds of the run where others have so many."""
        return min(CONTROL_SECONDS, seconds) if self.alone else seconds


@dataclasses.dataclass(frozen=True)
class Run(Job):
    """One run of a method.

    Attributes:
      seconds: wall-clock time, compilation included.
      eliminations: vertices eliminated in all games; for a search, orders times vertices.
      cost: multiplications of the order; None where the run failed.
      order: vertex ids.
      trace: seconds, eliminations and least cost so far at each improvement.
      failure: reason of a failure; empty where there is none.
    """

    seconds: float = 0.0
    eliminations: int = 0
    cost: int | None = None
    order: tuple[int, ...] = ()
    trace: tuple[tuple[float, ...], ...] = ()
    failure: str = ""

    def __post_init__(self) -> None:
        """Checks that the run has a whole result or none.

        Raises:
          ValueError: it has an order and a failure, or neither, or another kind of trace.
        """
        if {self.cost is None, not self.order, not self.trace} != {bool(self.failure)}:
            raise ValueError(f"{self}: expected an order, its cost and a trace, or a failure")
        if any(len(point) != 3 for point in self.trace):
            raise ValueError(f"{self}: expected seconds, eliminations and cost in its trace")

    @property
    def job(self) -> Job:
        """The fields that tell runs apart."""
        return Job(*(getattr(self, field.name) for field in dataclasses.fields(Job)))

    def least(self, classical: int, *, seconds: float = math.inf, effort: float = math.inf) -> int:
        """Returns the least cost so far after a time and a number of eliminations.

        A failed run, and one without an order so far, counts as the best classical order.
        """
        costs = [cost for at, done, cost in self.trace if at <= seconds and done <= effort]
        return int(min(costs, default=classical))


class Trace:
    """The least cost so far by time and by eliminations, recorded while a method runs."""

    def __init__(self) -> None:
        """Starts the clock."""
        self.began = time.perf_counter()
        self.points: list[tuple[float, int, int]] = []
        self.eliminations = 0

    def __call__(self, eliminations: int, cost: float, *_: object) -> None:
        """Records a point where the cost is lower than before."""
        self.eliminations = max(self.eliminations, int(eliminations), 1)
        if math.isfinite(cost) and (not self.points or math.ceil(cost) < self.points[-1][2]):
            seconds = round(time.perf_counter() - self.began, 3)
            self.points.append((seconds, self.eliminations, math.ceil(cost)))

    def end(self, cost: int, vertices: int) -> None:
        """Ends with the cost of the order that a method returned, whatever it reported."""
        self.points = [point for point in self.points if point[2] >= cost]
        self(vertices, cost)


def jobs_of(functions: Sequence[tuple[str, str]], seeds: int) -> list[Job]:
    """Lists the runs of sets and functions: quick ones, then seed after seed, then those alone."""
    jobs = [
        Job(chosen, function, name, seed)
        for timed in (False, True)
        for seed in range(seeds)
        for chosen, function in functions
        for name, method in METHODS.items()
        if method.timed == timed and (method.seeded or seed == 0) and (chosen == CORE or not timed)
    ]
    core = [function for chosen, function in functions if chosen == CORE]
    return jobs + [Job(CORE, function, CONTROL, 0, alone=True) for function in core]


def latest(seconds: float) -> float:
    """Returns the seconds after which a run of a budget counts as a failure.

    >>> latest(60.0)
    64.0
    """
    return 1.05 * seconds + 1  # an update that has begun, and a second to count the order


def play(job: Job, seconds: float, method: str = "") -> Run:
    """Makes a run in this process; an exception is a failure of the run.

    Args:
      job: the run.
      seconds: its budget.
      method: a `resolved` method; by default the one that the run names.
    """
    graph = graph_of(job.function)
    trace, order, cost, failure = Trace(), (), None, ""
    try:
        order = graph.check_order(load(method or job.method)(graph, job.seed, seconds, trace))
        cost = graph.cost(order)
        trace.end(cost, len(order))
    except Exception as error:  # whatever a method of others raises is a cell of the table
        failure = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    took = time.perf_counter() - trace.began
    if not failure and job.timed and took > latest(seconds):
        failure = f"took {took:.0f} s of {seconds:g} s"
    if failure:
        order, cost, trace.points = (), None, []
    return Run(
        **dataclasses.asdict(job),
        seconds=round(took, 3),
        eliminations=trace.eliminations,
        cost=cost,
        order=tuple(int(v) for v in order),
        trace=tuple(trace.points),
        failure=failure,
    )


def run_apart(job: Job, seconds: float, core: int = -1, method: str = "") -> Run:
    """Makes a run as `play`, in a process on a core; a crash or a hang is a failure.

    The process is not bound to a core where that is negative.
    """
    began, most = time.monotonic(), seconds + PATIENCE
    receiver, sender = PROCESSES.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as caches, receiver:
        process = PROCESSES.Process(
            target=_child, args=(sender, job, seconds, core, caches, method)
        )
        process.start()
        sender.close()
        try:
            if receiver.poll(most):
                return receiver.recv()
            failure = f"killed after {most:.0f} s"
        except EOFError:  # the process has ended without a run
            process.join()
            failure = f"ended with exit code {process.exitcode}"
        finally:
            process.kill()
            process.join()
    took = min(time.monotonic() - began, most)
    return Run(**dataclasses.asdict(job), seconds=round(took, 3), failure=failure)


def _child(
    sender: Connection, job: Job, seconds: float, core: int, caches: str, method: str
) -> None:
    """Makes a run in a new process, on a core and with an empty folder of caches, and sends it."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if core >= 0 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    os.environ["VEENV_CACHE_DIR"] = caches
    sender.send(play(job, seconds, method))
    os._exit(0)  # without waiting for a thread that still compiles


def _end_with_parent() -> None:
    """Ends this process when the one that started it is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # a child has one
    parent.join()
    os._exit(1)
