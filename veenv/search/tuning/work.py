"""The work of `veenv.tune`: traces, remembers or measures, and says what it found."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import math
import operator
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Event
from typing import Any

import jax

from veenv.graph.linearisation import linearise
from veenv.graph.program import Program, normalise_argnums, plain_argnums, trace
from veenv.kernel.fusing import kernels_within
from veenv.kernel.price import kernel_limit
from veenv.orders.cache import cache_dir
from veenv.orders.order import fingerprint
from veenv.search.tuning import records
from veenv.search.tuning.contest import Contest, Entry
from veenv.search.tuning.forms import AUTO, Form, other_forms, own_modes
from veenv.search.tuning.machine import free_bytes, where
from veenv.search.tuning.point import Point, shapes_of
from veenv.search.tuning.records import Record, results_of

_SAFE = 0.6
"""Share of the time left that a kernel may be predicted to take: some take 1.7 times as long."""


def _batched(in_axes: Any, count: int) -> tuple[bool, ...]:
    """For each argument whether the batch runs over it."""
    every = (in_axes,) * count if in_axes is None or in_axes == 0 else in_axes
    if not isinstance(every, (tuple, list)) or len(every) != count:
        raise ValueError(f"in_axes must be 0, None or one for each of {count}, got {in_axes!r}")
    if any(axis not in (0, None) for axis in every):
        raise ValueError(f"in_axes must be 0 or None for each argument, got {in_axes!r}")
    return tuple(axis is not None for axis in every)


class Tuning:
    """One call's work, in a thread that its caller leaves behind when the time is up."""

    def __init__(
        self,
        fun: Callable[..., Any],
        args: tuple[Any, ...],
        argnums: int | Iterable[int],
        batch: int | None,
        has_aux: bool,
        in_axes: Any,
        cache: bool,
        seed: int,
        began: float,
        seconds: float,
        left: Event,
    ):
        """Nothing runs yet; what the arguments are is said in `veenv.tune`."""
        if not callable(fun):
            raise TypeError(f"fun must be callable, got {fun!r}")
        if batch is not None and (isinstance(batch, bool) or operator.index(batch) < 1):
            raise ValueError(f"batch must be a positive number of points, got {batch!r}")
        self._fun, self._args, self._batch, self._has_aux = fun, args, batch, has_aux
        self._argnums = plain_argnums(argnums)
        wanted = normalise_argnums(self._argnums, len(args))
        self._point = Point.of(args, wanted, _batched(in_axes, len(args)))
        self._cache, self._seed = cache, seed
        self._began, self._seconds, self._end = began, seconds, began + seconds
        self._where = where()
        self._contest = Contest(self._prepare, self._end, left.is_set)
        self._key, self._fingerprint = "", ""
        self._found: Record | None = None
        self._usual = [AUTO]

    def run(self) -> None:
        """Tunes, or remembers."""
        program = trace(self._fun, self._args, argnums=self._argnums, has_aux=self._has_aux)
        outputs = sum(math.prod(a.shape) for a in program.out_avals)
        inputs = sum(math.prod(a.shape) for a in program.avals[: program.num_inputs])
        modes = own_modes(inputs, outputs)
        self._usual = [AUTO, *modes]
        try:
            graph = linearise(program).graph
        except (TypeError, ValueError, NotImplementedError):
            graph = None  # no graph, no elimination: JAX's own modes remain
            self._usual = modes
        forms: Iterable[Form] = self._usual
        if graph is not None:
            self._fingerprint = fingerprint(graph)
            self._key = self._name_in_cache(program)
            self._found = self._remembered()
            if self._found is not None:
                return
            if graph.eliminable:
                names = [e.primitive.name for e in program.equations]
                kernels, batched = jax.default_backend() == "cpu", self._batch is not None
                others = other_forms(graph, names, self._seconds, kernels=kernels, batched=batched)
                forms = itertools.chain(forms, others)
        self._contest.run(forms)
        errors = self._contest.errors
        if all(form in errors for form in self._usual):
            raise errors[Form("jacrev")]

    def record(self) -> Record:
        """What was found, which is remembered if anything was timed."""
        if self._found is not None:
            return self._found
        contest = self._contest
        winner, mode, trials = contest.verdict(), contest.mode(), contest.trials[:]
        untimed = next((f for f in self._usual if f not in contest.errors), self._usual[0])
        found = Record(
            getattr(self._fun, "__name__", type(self._fun).__name__),
            self._argnums,
            self._has_aux,
            shapes_of(self._args),
            self._fingerprint,
            self._batch,
            self._seconds,
            time.perf_counter() - self._began,
            contest.settled,
            self._where,
            winner.form if winner is not None else untimed,
            results_of(trials, mode),
        )
        path = self._path()
        if path is not None and winner is not None:
            with contextlib.suppress(OSError):  # a cache that cannot be written costs only that
                records.write(path, found)
        return found

    def _prepare(self, form: Form) -> Entry:
        """Traces and compiles a form."""
        made = form.jacobian(self._fun, self._argnums, has_aux=self._has_aux)
        jacobian, values = self._point.function(made), self._values
        if self._batch is not None:
            axes = [0 if batched else None for batched in self._point.axes]
            jacobian = jax.vmap(jacobian, in_axes=axes, axis_size=self._batch)
        patience = _SAFE * max(0.0, self._end - time.perf_counter())
        limit = kernel_limit(patience)
        with kernels_within(limit) if form.kernel == "fused" else contextlib.nullcontext():
            compiled = jax.jit(jacobian).lower(*values).compile()
        memory = compiled.memory_analysis()
        temporary = getattr(memory, "temp_size_in_bytes", None)
        total = (temporary or 0) + getattr(memory, "output_size_in_bytes", 0)
        if total > free_bytes():
            raise MemoryError(f"it would take {total / 2**20:,.0f} MiB of memory")
        return Entry(lambda: jax.block_until_ready(compiled(*values)), temporary)

    @functools.cached_property
    def _values(self) -> list[Any]:
        """What the programs are called with."""
        return self._point.values(self._batch, self._seed)

    def _name_in_cache(self, program: Program) -> str:
        """Hash of all that decides what is fastest."""
        operations = [
            [e.primitive.name, re.sub(r"0x[0-9a-f]+", "", str(dict(e.params)))[:10_000]]
            for e in program.equations
        ]
        avals = [[str(a.dtype), list(a.shape)] for a in program.avals]
        axes = list(self._point.axes)
        parts = [
            "veenv tuned 2",
            self._fingerprint,
            operations,
            avals,
            [str(shapes_of(self._args)), self._argnums, self._has_aux, self._batch, axes],
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
        theirs = found.fingerprint, found.shapes, found.argnums, found.batch
        right = theirs == (self._fingerprint, shapes_of(self._args), self._argnums, self._batch)
        enough = found.settled or found.budget >= self._seconds
        return found if right and enough else None
