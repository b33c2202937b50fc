"""The document of the leaderboard: its protocol, functions and runs, and their costs as arrays.

`Document.of` reads the parsed JSON of docs/leaderboard/runs.json; no run may be missing.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # a checkout is not installed

import numpy as np

from scripts.benchmarks.methods import METHODS
from scripts.benchmarks.runs import CORE, Job, Run, graph_of, jobs_of
from veenv.orders.fields import read_field
from veenv.search.evaluation import Evaluation, Row
from veenv.tasks.evaluation_sets import reference

MOST_SEEDS = 100
"""A document with more is refused."""


@dataclasses.dataclass(frozen=True)
class Protocol:
    """Settings and machine of all runs.

    Attributes:
      seconds: wall-clock budget of a run of a timed method.
      seeds: seeds of every method that depends on one, from 0 on.
      veenv: version.
      jax: version.
      python: version.
      machine: processor and cores.
      date: day of the last run; empty before it.
      hours: time of all runs.
    """

    seconds: float
    seeds: int
    veenv: str
    jax: str
    python: str
    machine: str
    date: str = ""
    hours: float = 0.0


@dataclasses.dataclass(frozen=True)
class Function:
    """One function of a set.

    Attributes:
      set: name of the set.
      function: its name.
      fingerprint: of its graph.
      vertices: number of vertices to eliminate.
      classical: multiplications of the cheapest classical order.
      rule: the rule of that order.
      arrays: True for graphs of arrays.
    """

    set: str
    function: str
    fingerprint: str
    vertices: int
    classical: int
    rule: str
    arrays: bool

    @property
    def reference(self) -> int | None:
        """Multiplications of the cheapest order known now; None where there is none."""
        return reference_of(self.function)


@cache
def reference_of(function: str) -> int | None:
    """Returns the multiplications of the cheapest order known of a task; None if there is none."""
    return reference(graph_of(function))


Entrant = tuple[str, str]
"""Method and origin: a reported method may have the name of another one."""


@dataclasses.dataclass(frozen=True)
class Document:
    """All runs of the leaderboard.

    Attributes:
      protocol: settings and machine.
      functions: the functions of `core` and `real`.
      runs: all runs, those of the control group (``alone``) included.
    """

    protocol: Protocol
    functions: tuple[Function, ...]
    runs: tuple[Run, ...]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Document:
        """Reads parsed JSON, and checks that it is `complete`.

        Raises:
          ValueError: it holds something else, or it is incomplete.
        """
        return read_field("", cls, document).complete()

    def complete(self) -> Document:
        """Returns the document, in which no method lacks a function or a seed.

        Raises:
          ValueError: a run is missing, is there twice, or is none of the protocol.
        """
        seeds, functions = self.protocol.seeds, [(one.set, one.function) for one in self.functions]
        if not 1 <= seeds <= MOST_SEEDS:
            raise ValueError(f"expected 1 to {MOST_SEEDS} seeds, got {seeds}")
        has = Counter(run.job for run in self.runs)
        reported = {(job.method, job.seed) for job in has if job.origin == "reported"}
        wanted = jobs_of(functions, seeds) + [
            Job(CORE, function, method, seed, origin="reported")
            for method, number in Counter(method for method, _ in reported).items()
            for chosen, function in functions
            if chosen == CORE
            for seed in range(number)
        ]
        problems = [] if self.of_set(CORE) else [f"there is no function of {CORE}"]
        problems += [f"{job} is missing" for job in wanted if job not in has]
        problems += [f"{job} is no run of the protocol" for job in has if job not in {*wanted}]
        problems += [f"{job} is there {number} times" for job, number in has.items() if number > 1]
        if problems:
            more = f"; and {len(problems) - 5} more" * (len(problems) > 5)
            raise ValueError(f"expected every run once: {'; '.join(problems[:5])}{more}")
        return self

    def of_set(self, chosen: str) -> list[Function]:
        """Returns the functions of a set."""
        return [one for one in self.functions if one.set == chosen]

    def entrants(self, chosen: str) -> list[Entrant]:
        """Returns the methods that were run on a set, those of the protocol first."""
        present = dict.fromkeys((x.method, x.origin) for x in self.runs if _counts(x, chosen))
        known = [(name, "rerun") for name in METHODS if (name, "rerun") in present]
        return [*known, *(one for one in present if one not in known)]

    def of_method(self, chosen: str, entrant: Entrant) -> dict[str, list[Run]]:
        """Returns the runs of a method on a set by function, in order of their seeds."""
        runs: dict[str, list[Run]] = {one.function: [] for one in self.of_set(chosen)}
        for run in sorted(self.runs, key=lambda run: run.seed):
            if _counts(run, chosen) and (run.method, run.origin) == entrant:
                runs[run.function].append(run)
        return runs

    def costs(
        self, chosen: str, entrant: Entrant, seconds: float = math.inf, effort: Any = None
    ) -> np.ndarray:
        """Returns the costs of a method on a set, [functions, seeds].

        Args:
          chosen: the set.
          entrant: the method.
          seconds: counts only orders of this time at most.
          effort: by function, counts only orders after so many eliminations at most.
        """
        runs, limits = self.of_method(chosen, entrant), effort or {}
        return np.array([
            [
                run.least(one.classical, seconds=seconds, effort=limits.get(one.function, math.inf))
                for run in runs[one.function]
            ]
            for one in self.of_set(chosen)
        ])  # fmt: skip

    def evaluation(self, chosen: str, entrant: Entrant, costs: np.ndarray) -> Evaluation:
        """Returns costs [functions, seeds] as `veenv.evaluate` does, for its summaries."""
        rows = tuple(
            Row(
                one.function, one.fingerprint, one.classical, one.reference,
                tuple(line), float(np.mean(line)), 0, 0.0, (),
            )
            for one, line in zip(self.of_set(chosen), costs.tolist(), strict=True)
        )  # fmt: skip
        seeds = tuple(range(costs.shape[1]))
        return Evaluation(
            entrant[0], chosen, "multiplications", seeds, 1, None, self.protocol.jax, rows
        )

    def best(self, chosen: str) -> dict[str, int]:
        """Returns the least cost of all runs by function."""
        lines = [self.costs(chosen, entrant).min(1) for entrant in self.entrants(chosen)]
        names = [one.function for one in self.of_set(chosen)]
        return dict(zip(names, np.min(lines, 0).tolist(), strict=True))


def _counts(run: Run, chosen: str) -> bool:
    """Returns whether a run is one of a set's tables."""
    return run.set == chosen and not run.alone
