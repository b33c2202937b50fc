"""The work of `veenv.tune`: traces, remembers or measures, and says what it found."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import operator
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import jax

from veenv.graph.argnums import normalise_argnums, plain_argnums
from veenv.graph.linearisation import linearise
from veenv.graph.program import Program, trace
from veenv.kernel.fusing import kernels_within
from veenv.kernel.program import CannotFuseError
from veenv.kernel.times import kernel_limit
from veenv.orders.cache import cache_dir
from veenv.orders.order import fingerprint
from veenv.search.tuning import records
from veenv.search.tuning.contest import Contest, Entry
from veenv.search.tuning.forms import Form, all_forms, own_modes
from veenv.search.tuning.machine import free_bytes, where
from veenv.search.tuning.point import Point, shapes_of
from veenv.search.tuning.records import Record, results_of

_HURRIED = 0.2
"""Share of the time in which a kernel has to be compiled before JAX's own modes have been tried."""
_LAST = 0.75
"""Share of the time that a kernel must leave some of, to compare."""
_SAFE = 0.6
"""Share of what is left of it that a kernel may be predicted to take: some take twice as long."""


def _batched(in_axes: Any, count: int) -> tuple[bool, ...]:
    """For each argument whether the batch runs over it.

    Raises:
      ValueError: if `in_axes` is neither 0 nor None, nor one of them for each argument.
    """
    every = (in_axes,) * count if in_axes is None or in_axes == 0 else in_axes
    if not isinstance(every, (tuple, list)) or len(every) != count:
        raise ValueError(f"in_axes must be 0, None or one for each of {count}, got {in_axes!r}")
    if any(axis not in (0, None) for axis in every):
        raise ValueError(f"in_axes must be 0 or None for each argument, got {in_axes!r}")
    return tuple(axis is not None for axis in every)


@dataclass(frozen=True)
class Job:
    """What to tune, and until when."""

    fun: Callable[..., Any]
    args: tuple[Any, ...]
    argnums: int | tuple[int, ...]
    batch: int | None
    has_aux: bool
    point: Point
    began: float
    seconds: float
    seed: int

    @classmethod
    def of(
        cls,
        fun: Callable[..., Any],
        args: tuple[Any, ...],
        argnums: int | Iterable[int],
        batch: int | None,
        has_aux: bool,
        in_axes: Any,
        began: float,
        seconds: float,
        seed: int,
    ) -> Job:
        """The job of a call.

        Raises:
          ValueError: if argnums is out of range, or batch or in_axes is not valid.
        """
        if not callable(fun):
            raise TypeError(f"fun must be callable, got {fun!r}")
        if batch is not None and (isinstance(batch, bool) or operator.index(batch) < 1):
            raise ValueError(f"batch must be a positive number of points, got {batch!r}")
        plain = plain_argnums(argnums)
        wanted, batched = normalise_argnums(plain, len(args)), _batched(in_axes, len(args))
        point = Point.of(args, wanted, batched)
        return cls(fun, args, plain, batch, has_aux, point, began, seconds, seed)

    @property
    def end(self) -> float:
        """When the caller leaves."""
        return self.began + self.seconds


class Tuning:
    """One call's work, in a thread that its caller leaves behind when the time is up."""

    def __init__(self, job: Job, left: Event, *, cache: bool):
        self._job, self._cache = job, cache
        self._where = where()
        self._contest = Contest(self._prepare, job.end, left.is_set)
        self._key, self._fingerprint, self._equations = "", "", 0
        self._found: Record | None = None
        self._modes = own_modes(1, 1)

    def run(self) -> None:
        """Tunes, or remembers."""
        job = self._job
        program = trace(job.fun, job.args, argnums=job.argnums, has_aux=job.has_aux)
        outputs = sum(math.prod(a.shape) for a in program.out_avals)
        inputs = sum(math.prod(a.shape) for a in program.avals[: program.num_inputs])
        self._modes = own_modes(inputs, outputs)
        try:
            graph = linearise(program).graph
        except (TypeError, ValueError, NotImplementedError):
            graph = None  # no graph, no elimination: JAX's own modes remain
        if graph is not None:
            self._fingerprint = fingerprint(graph)
            self._key = self._name_in_cache(program)
            self._found = self._remembered()
            if self._found is not None:
                return
        kernels = jax.default_backend() == "cpu"
        names = [e.primitive.name for e in program.equations]
        self._equations = len(names)
        forms: Iterable[Form] = self._modes
        if graph is not None and graph.eliminable:
            forms = all_forms(
                self._modes,
                graph,
                names,
                job.seconds,
                kernels=kernels,
                batched=job.batch is not None,
                too_large=self._was_too_large,
                refused=self._contest.errors.__contains__,
            )
        self._contest.run(forms)
        errors = self._contest.errors
        if all(form in errors for form in self._modes):
            raise errors[Form("jacrev")]

    def record(self) -> Record:
        """What was found, which is remembered if it took the whole budget or is certain."""
        if self._found is not None:
            return self._found
        job, contest = self._job, self._contest
        trials = list(contest.trials)
        winner = contest.verdict()
        chosen = winner.form if winner is not None else self._modes[0]
        found = Record(
            getattr(job.fun, "__name__", type(job.fun).__name__),
            job.argnums,
            job.has_aux,
            shapes_of(job.args),
            self._fingerprint,
            job.batch,
            job.seconds,
            time.perf_counter() - job.began,
            contest.settled,
            self._where,
            chosen,
            results_of(trials),
        )
        path = self._path()
        if path is not None and winner is not None:
            with contextlib.suppress(OSError):  # a cache that cannot be written costs only that
                records.write(path, found)
        return found

    def _prepare(self, form: Form) -> Entry:
        """Traces and compiles a form.

        Raises:
          MemoryError: if it would take more memory than there is.
        """
        job = self._job
        jacobian = job.point.function(form.jacobian(job.fun, job.argnums, has_aux=job.has_aux))
        values = job.point.values(job.batch, job.seed)
        if job.batch is not None:
            axes = [0 if batched else None for batched in job.point.axes]
            jacobian = jax.vmap(jacobian, in_axes=axes, axis_size=job.batch)
        fused = form.kernel == "fused"
        limit = kernel_limit(self._patience(), self._equations)
        with kernels_within(limit) if fused else contextlib.nullcontext():
            compiled = jax.jit(jacobian).lower(*values).compile()
        memory = compiled.memory_analysis()
        temporary = getattr(memory, "temp_size_in_bytes", None)
        total = (temporary or 0) + getattr(memory, "output_size_in_bytes", 0)
        if total > free_bytes():
            raise MemoryError(f"it would take {total / 2**20:,.0f} MiB of memory")
        return Entry(lambda: jax.block_until_ready(compiled(*values)), temporary)

    def _was_too_large(self, form: Form) -> bool:
        """Whether a kernel was refused, and not for a primitive."""
        error = self._contest.errors.get(form)
        return isinstance(error, CannotFuseError) and not error.primitive

    def _patience(self) -> float:
        """Seconds that a kernel may be predicted to take to compile."""
        job = self._job
        if all(trial.form.mode == "jacve" for trial in self._contest.trials):
            return _HURRIED * job.seconds
        return max(0.0, _SAFE * (job.began + _LAST * job.seconds - time.perf_counter()))

    def _name_in_cache(self, program: Program) -> str:
        """Hash of all that decides what is fastest."""
        job = self._job
        operations = [
            [e.primitive.name, re.sub(r"0x[0-9a-f]+", "", str(dict(e.params)))[:10_000]]
            for e in program.equations
        ]
        avals = [[str(a.dtype), list(a.shape)] for a in program.avals]
        axes = list(job.point.axes)
        parts = [
            "veenv tuned 1",
            self._fingerprint,
            operations,
            avals,
            [str(shapes_of(job.args)), job.argnums, job.has_aux, job.batch, axes],
            dict(self._where),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def _path(self) -> Path | None:
        folder = cache_dir() if self._cache and self._key else None
        return folder and folder / "tuned" / f"{self._key}.json"

    def _remembered(self) -> Record | None:
        """What an earlier call found that had as much time."""
        path = self._path()
        if path is None:
            return None
        try:
            found = records.read(path)
        except (OSError, ValueError):
            return None
        right = found.fingerprint == self._fingerprint and found.shapes == shapes_of(self._job.args)
        right = right and found.argnums == self._job.argnums and found.batch == self._job.batch
        enough = found.settled or found.budget >= self._job.seconds
        return found if right and enough else None
