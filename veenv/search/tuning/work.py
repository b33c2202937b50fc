"""The work of `veenv.tune`: traces, reads a cached record or measures, and makes a record."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import math
import operator
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Event
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from llvmlite import binding as llvm

from veenv.graph.identity import digest_of_jaxpr
from veenv.graph.linearisation import linearise
from veenv.graph.program import Program, hiding_aux, normalise_argnums, plain_argnums, trace
from veenv.kernel.fusing import kernels_within
from veenv.kernel.price import kernel_limit
from veenv.measure.timing import near
from veenv.orders.cache import cache_dir
from veenv.orders.order import fingerprint
from veenv.rules.base import replaced
from veenv.rules.complex import are_analytic
from veenv.search.tuning import records
from veenv.search.tuning.contest import Contest, Entry
from veenv.search.tuning.forms import AUTO, Form, other_forms, own_modes, step_forms
from veenv.search.tuning.records import Record, results_of

_ARRAYS = (jax.Array, np.ndarray, np.generic)
_NUMBERS = (*_ARRAYS, float, complex, int)


class Point:
    """Arguments of a function: the leaves that vary, and all others as they are.

    Attributes:
      whole: all leaves.
      tree: their structure.
      varying: the leaves that are arguments of the compiled programs, by number: arrays, and all
        numbers to differentiate by.
      axes: whether each varying leaf is batched.
    """

    def __init__(self, args: Sequence[Any], wanted: Sequence[int], batched: Sequence[bool]):
        """Takes arguments apart, of which `wanted` are differentiated by.

        `batched` says of each leaf whether the batch runs over it.
        """
        owners = [a for a, x in enumerate(args) for _ in jax.tree.leaves(x)]
        self.whole, self.tree = jax.tree.flatten(tuple(args))
        self.varying = [
            k
            for k, (a, x) in enumerate(zip(owners, self.whole, strict=True))
            if isinstance(x, _NUMBERS if a in wanted else _ARRAYS)
        ]
        self.axes = [batched[k] for k in self.varying]

    def function(self, jacobian: Callable[..., Any]) -> Callable[..., Any]:
        """Converts a function of all arguments to one of the leaves that vary."""

        def of_leaves(*values: Any) -> Any:
            leaves = replaced(self.whole, self.varying, values)
            return jacobian(*jax.tree.unflatten(self.tree, leaves))

        return of_leaves

    def values(self, batch: int | None, seed: int) -> list[Any]:
        """Returns the arguments of the programs: the point, or a batch of points near it."""
        arguments = []
        for number, (k, batched) in enumerate(zip(self.varying, self.axes, strict=True)):
            x = self.whole[k]
            if batch is not None and batched and jnp.issubdtype(jnp.result_type(x), jnp.floating):
                x = jnp.asarray(near(x, [seed, number], batch), jnp.result_type(x))
            elif batch is not None and batched:
                x = jnp.broadcast_to(jnp.asarray(x), (batch, *np.shape(x)))
            elif isinstance(x, _ARRAYS):
                x = jnp.asarray(x)
            arguments.append(x)
        return arguments


def shapes_of(args: Sequence[Any]) -> tuple[tuple[int, ...] | None, ...]:
    """Returns the shape of each leaf of arguments; None for one that is no array or number."""
    return tuple(
        tuple(np.shape(x)) if isinstance(x, (*_NUMBERS, jax.core.Tracer)) else None
        for x in jax.tree.leaves(tuple(args))
    )


def where() -> Mapping[str, str]:
    """Returns the device and the versions that figures belong to."""
    device, config = jax.devices()[0], jax.config
    settings: Any = config
    return {
        "backend": device.platform,
        "device": device.device_kind,
        "processor": llvm.get_host_cpu_name() if device.platform == "cpu" else "",
        "cores": str(os.cpu_count()),
        "x64": str(bool(settings.jax_enable_x64)),
        "matmul precision": str(settings.jax_default_matmul_precision),
        "XLA flags": os.environ.get("XLA_FLAGS", "")[:500],
        "jax": jax.__version__,
        "jaxlib": _version("jaxlib"),
        "veenv": _version("veenv"),
    }


def _version(package: str) -> str:
    with contextlib.suppress(PackageNotFoundError):  # of a checkout that is not installed
        return version(package)
    return ""


def free_bytes() -> float:
    """Returns the memory that a program may take: half of the free bytes; infinite if unknown."""
    try:
        return 0.5 * os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return float("inf")


_SAFE = 0.6
"""Largest predicted share of the time left for a kernel: some take 1.7 times as long."""


def _batched(in_axes: Any, args: tuple[Any, ...]) -> list[bool]:
    """Returns for each leaf of the arguments whether it is batched."""

    def flags(axis: int | None, part: Any) -> list[bool]:
        return [axis is not None] * len(jax.tree.leaves(part))

    prefix = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    if any(x is not None and (isinstance(x, bool) or x != 0) for x in jax.tree.leaves(prefix)):
        raise ValueError(f"in_axes must be 0 or None for each argument or leaf, got {in_axes!r}")
    try:
        return jax.tree.leaves(jax.tree.map(flags, prefix, args, is_leaf=lambda x: x is None))
    except ValueError as error:
        raise ValueError(
            f"in_axes must be 0, None or a prefix of the arguments' trees "
            f"{jax.tree.structure(args)}, got {in_axes!r}: {error}"
        ) from None


class Tuning:
    """One call's work, in a thread that its caller abandons when the time is up."""

    def __init__(
        self,
        fun: Callable[..., Any],
        args: tuple[Any, ...],
        argnums: int | Iterable[int] | None,
        batch: int | None,
        kinds: tuple[bool, bool],
        in_axes: Any,
        cache: bool,
        seed: int,
        began: float,
        seconds: float,
        left: Event,
    ):
        """Prepares the work; `veenv.tune` documents the arguments.

        `kinds` are `has_aux` and `holomorphic`.
        """
        if not callable(fun):
            raise TypeError(f"fun must be callable, got {fun!r}")
        if batch is not None and (isinstance(batch, bool) or operator.index(batch) < 1):
            raise ValueError(f"batch must be a positive number of points, got {batch!r}")
        self._name, self._args = getattr(fun, "__name__", type(fun).__name__), args
        self._has_aux, self._holomorphic = kinds
        self._fun = hiding_aux(fun, self._has_aux)
        if argnums is None and any(kinds):
            raise ValueError("a step (argnums=None) has neither has_aux nor holomorphic")
        self._argnums = argnums if argnums is None else plain_argnums(argnums)
        several = range(len(args)) if self._argnums is None else self._argnums
        wanted = normalise_argnums(several, len(args))
        self._point = Point(args, wanted, _batched(in_axes, args))
        self._batch, self._cache, self._seed = batch, cache, seed
        self._began, self._seconds, self._end = began, seconds, began + seconds
        self._where = where()
        self._contest = Contest(self._prepare, self._end, left.is_set)
        self._key, self._fingerprint = "", ""
        self._found: Record | None = None
        self._usual = [AUTO]

    def run(self) -> None:
        """Reads a cached record, or times the forms."""
        if self._argnums is None:
            forms = step_forms(self._fun)
            self._usual = [form for form in forms if form.usual]
            self._key = self._hash("step", self._text(self._usual[0]))
            self._found = self._remembered()
            if self._found is None:
                self._compared(forms)
            return
        program = trace(self._fun, self._args, argnums=self._argnums, has_aux=self._has_aux)
        outputs = sum(math.prod(a.shape) for a in program.out_avals)
        inputs = sum(math.prod(a.shape) for a in program.avals[: program.num_inputs])
        modes = own_modes(inputs, outputs)
        self._usual = [AUTO, *modes]
        try:
            by_complex = self._holomorphic and are_analytic(program.equations)  # as `jacve` does
            graph = linearise(program, holomorphic=by_complex).graph
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
                alternatives = other_forms(
                    graph, names, self._seconds, kernels=kernels, batched=batched
                )
                forms = itertools.chain(forms, alternatives)
        self._compared(forms)

    def _text(self, form: Form) -> str:
        """Returns a step's program as a canonical text; empty where it has none."""
        try:
            step = self._point.function(self._made(form))
            return digest_of_jaxpr(jax.make_jaxpr(step)(*self._point.values(None, 0))) or ""
        except Exception:  # of the user's function: it is raised where the form is compiled
            return ""

    def _compared(self, forms: Iterable[Form]) -> None:
        """Times forms; raises the usual forms' error if all fail."""
        self._contest.run(forms)
        errors = self._contest.errors
        if all(form in errors for form in self._usual):
            raise errors[self._usual[-1]]

    def record(self) -> Record:
        """Returns the record, which is cached if anything was timed."""
        if self._found is not None:
            return self._found
        contest = self._contest
        winner, mode, trials = contest.verdict(), contest.mode(), contest.trials[:]
        untimed = next((f for f in self._usual if f not in contest.errors), self._usual[0])
        result = Record(
            self._name,
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
            self._holomorphic,
        )
        path = self._path()
        if path is not None and winner is not None:
            with contextlib.suppress(OSError):  # a cache that cannot be written costs only that
                records.write(path, result)
        return result

    def _prepare(self, form: Form) -> Entry:
        """Traces and compiles a form."""
        jacobian, values = self._point.function(self._made(form)), self._values
        if self._batch is not None:
            axes = [0 if batched else None for batched in self._point.axes]
            jacobian = jax.vmap(jacobian, in_axes=axes, axis_size=self._batch)
        patience = _SAFE * max(0.0, self._end - time.perf_counter())
        limit = kernel_limit(patience)
        with kernels_within(limit) if form.kernel == "fused" else contextlib.nullcontext():
            called = jax.jit(jacobian)
            memory = called.lower(*values).compile().memory_analysis()
        temporary = getattr(memory, "temp_size_in_bytes", None)
        total = (temporary or 0) + getattr(memory, "output_size_in_bytes", 0)
        if total > free_bytes():
            raise MemoryError(f"it would take {total / 2**20:,.0f} MiB of memory")
        return Entry(lambda: called(*values), temporary)  # as users call it, not ahead of time

    def _made(self, form: Form) -> Callable[..., Any]:
        """Returns the Jacobian, or the step, in a form."""
        options = {"has_aux": self._has_aux, "holomorphic": self._holomorphic}
        return form.jacobian(self._fun, self._argnums, **options)

    @functools.cached_property
    def _values(self) -> list[Any]:
        """Returns the arguments of the programs."""
        return self._point.values(self._batch, self._seed)

    def _name_in_cache(self, program: Program) -> str:
        """Hashes everything that decides which form is fastest."""
        operations = [
            [e.primitive.name, re.sub(r"0x[0-9a-f]+", "", str(dict(e.params)))[:10_000]]
            for e in program.equations
        ]
        avals = [[str(a.dtype), list(a.shape)] for a in program.avals]
        return self._hash(self._fingerprint, operations, avals)

    def _hash(self, *parts: Any) -> str:
        """Hashes the parts with the arguments and the machine; empty where a part is empty."""
        if not all(parts):
            return ""
        shapes, axes = str(shapes_of(self._args)), list(self._point.axes)
        asked = [shapes, self._argnums, self._has_aux, self._batch, axes, self._holomorphic]
        whole = ["veenv tuned 3", *parts, asked, dict(self._where)]
        return hashlib.sha256(json.dumps(whole).encode()).hexdigest()

    def _path(self) -> Path | None:
        folder = cache_dir() if self._cache and self._key else None
        return folder and folder / "tuned" / f"{self._key}.json"

    def _remembered(self) -> Record | None:
        """Returns the cached record of an earlier call that had as much time."""
        path = self._path()
        if path is None:
            return None
        try:
            stored = records.read(path)
        except (OSError, ValueError):
            return None
        theirs = stored.fingerprint, stored.shapes, stored.argnums, stored.batch
        theirs += stored.has_aux, stored.holomorphic, dict(stored.where)
        ours = self._fingerprint, shapes_of(self._args), self._argnums, self._batch
        right = theirs == (*ours, self._has_aux, self._holomorphic, dict(self._where))
        enough = stored.settled or stored.budget >= self._seconds
        return stored if right and enough else None
