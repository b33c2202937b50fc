"""Ablations: what is slower without each mechanism of the engine and the kernel.

A mechanism is switched off by replacing a few names of modules, in a process of its own. Functions
that emit the same program without it are not timed; of others both programs are timed interleaved.
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import veenv
from scripts.benchmarks.functions.mechanisms import MECHANISMS, Mechanism
from scripts.benchmarks.programs import compiled, forget
from scripts.benchmarks.tables import Table, geometric_mean, named
from veenv.kernel.cpu import codegen
from veenv.kernel.scalar_program import ScalarProgram
from veenv.measure.timing import interleaved

COLUMNS = (
    "mechanism", "rows changed", "time without", "worst row", "first call", "worst first call",
)  # fmt: skip
_KEYS = re.compile(r"key = \d+")
"""What kernels are called by, which depends on the build."""
_BUILDS = itertools.count()
_ROUNDS = 1000


class Row(NamedTuple):
    """A function that is compiled with and without a mechanism."""

    name: str
    fun: Callable[..., Any]
    points: Callable[[], tuple[Any, ...]]  # its arguments
    wide: bool = False  # they are float64


Ratios = tuple[str, float, float]
"""A row, and what its time and its first call are without a mechanism, over those with it."""


def ablations(
    only: tuple[str, ...] = (), seconds: float = 0.4, minutes: float = 15.0
) -> Iterator[Table]:
    """Ratios of time and of first calls without a mechanism to those with it, in its corpora.

    Times are medians over rounds in which both programs run, of processor time, which others on the
    machine change little. A first call is tracing and compiling, the median of three where it takes
    less than a second. What is known of mechanisms that are gone
    stays in the file.

    Args:
        only: names of mechanisms; all by default.
        seconds: of timing for each row.
        minutes: time for a mechanism, after which no other row is begun.
    """
    yield (table := Table(*COLUMNS, key=1))
    every = Table("mechanism", "row", "time without", "first call without", key=2)
    table.beside["rows"] = every
    for name in named(only, MECHANISMS, "only"):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            number, changed = pool.submit(measured, name, seconds, minutes).result()
        for row in changed:
            every.rows.append((name, row[0], *(f"{ratio:.3g}" for ratio in row[1:])))
        table.add(name, *cells(number, changed))


def cells(number: int, changed: list[Ratios]) -> list[str]:
    """The cells of a mechanism behind its name; of so many rows some were changed."""
    ratios = [f"{len(changed)} of {number}", *[""] * 4]
    if changed:
        for k in (1, 2):
            worst = max(changed, key=lambda row: row[k])
            ratios[2 * k - 1] = f"{geometric_mean([row[k] for row in changed]):.3f}"
            ratios[2 * k] = f"{worst[0]} {worst[k]:.2f}"
    return ratios


def measured(name: str, seconds: float, minutes: float) -> tuple[int, list[Ratios]]:
    """Measures a mechanism: the number of rows looked at, and ratios of those that change."""
    one, end, number, changed = MECHANISMS[name], time.monotonic() + 60 * minutes, 0, []
    compiled({"": veenv.fuse(jnp.sin)}, (1.0,))  # loads what compiles
    for row in (row for corpus in one.corpora for row in CORPORA[corpus]()):
        if time.monotonic() > end:
            break
        number += 1
        with jax.enable_x64(row.wide):
            points = row.points()
            program, first, text, touched = _built(row, points, one, off=False)
            if not touched:
                continue
            other, without, new, _ = _built(row, points, one, off=True)
            if new == text:
                continue
            firsts = [first], [without]
            for _ in range(2 if first < 1 else 0):
                for off in (False, True):
                    firsts[off].append(_built(row, points, one, off=off)[1])
            runs = {"with": program, "without": other}
            times = interleaved(runs, points, _ROUNDS, seconds=seconds, clock=time.process_time)
            ratio = float(np.median(times["without"] / times["with"]))
            changed.append((row.name, ratio, float(np.median(firsts[1]) / np.median(firsts[0]))))
    return number, changed


def _built(row: Row, points: Any, one: Mechanism, *, off: bool) -> tuple[Any, float, str, bool]:
    """The program, the seconds it took, what it is, and whether the mechanism had a part in it."""
    forget()
    emitted, calls = [], []
    with switched(one, off, emitted, calls):
        began = time.process_time()
        lowered = jax.jit(row.fun).lower(*points)
        program = lowered.compile()
        took = time.process_time() - began
    text = _KEYS.sub("", lowered.as_text()) + "".join(sorted(emitted))
    return program, took, hashlib.sha256(text.encode()).hexdigest(), bool(calls)


@contextmanager
def switched(one: Mechanism, off: bool, emitted: list[str], calls: list[str]) -> Iterator[None]:
    """Inside, a mechanism is off, or notes that it was asked; code for a CPU is noted."""
    with ExitStack() as stack:
        for place, instead in one.off.items():
            module, _, path = place.partition(":")
            *owners, name = path.split(".")
            owner = importlib.import_module(module)
            for part in owners:
                owner = getattr(owner, part)
            was = getattr(owner, name)

            def noted(*args: Any, was: Any = was, place: str = place, **named: Any) -> Any:
                calls.append(place)
                return was(*args, **named)

            new = instead if off else noted if callable(was) else was
            if not callable(was):
                calls.append(place)
            stack.enter_context(mock.patch.object(owner, name, new))
        digest, compile_objects = ScalarProgram.digest, codegen.objects_of
        salt = next(_BUILDS)  # no kernel is another build's

        def salted(self: ScalarProgram) -> str:
            return hashlib.sha256(f"{digest(self)} {salt}".encode()).hexdigest()

        def noted_code(text: str, stack: int = 0) -> Any:
            emitted.append(text)
            return compile_objects(text, stack)

        stack.enter_context(mock.patch.object(ScalarProgram, "digest", salted))
        stack.enter_context(mock.patch.object(codegen, "objects_of", noted_code))
        yield


def _realistic(sizes: tuple[int, ...] = (1, 64)) -> Iterator[Row]:
    from scripts.benchmarks.functions.realistic import REALISTIC

    for case in REALISTIC.values():
        fun = veenv.jacve(case.fun, argnums=case.argnums)
        for n in sizes:
            points = lambda case=case, n=n: case.points(n)  # noqa: E731
            yield Row(f"{case.name}, {n}", fun if n == 1 else jax.vmap(fun), points)


def _fuse(size: int = 64) -> Iterator[Row]:
    from scripts.benchmarks import fuse

    for name, (make, point) in fuse.ALL.items():
        fun = jax.vmap(veenv.fuse(make(veenv.value_and_jacve)))
        points = lambda p=point: jax.tree.map(fuse._keys_apart, fuse.points(p, size))  # noqa: E731
        yield Row(f"{name}, {size}", fun, points)


def _libraries(size: int = 64) -> Iterator[Row]:
    from scripts.benchmarks.functions.solves import SOLVES

    for name, one in SOLVES.items():
        points = lambda one=one: one.points(size)  # noqa: E731
        yield Row(f"{name}, {size}", jax.vmap(veenv.fuse(one.fun)), points)


def _unknowns(size: int) -> tuple[Any, ...]:
    return (jnp.asarray(np.random.default_rng(0).uniform(0.1, 1, size)),)


def _sparse() -> Iterator[Row]:
    from scripts.benchmarks.functions.sparse_cases import CASES, DENSE

    for sparse, cases in (True, CASES), (False, DENSE):
        for name, case in cases.items():
            fun = veenv.jacve(case.fun, sparse_representation=sparse)
            points = lambda n=case.size: _unknowns(n)  # noqa: E731
            yield Row(name if sparse else f"{name}, dense", fun, points, True)


def _hessians() -> Iterator[Row]:
    from scripts.benchmarks.functions.sparse_cases import CASES

    for name, case in [*CASES.items()][:11]:  # of the others it may take all memory
        energy = lambda x, f=case.fun: 0.5 * jnp.sum(f(x) ** 2)  # noqa: E731
        fun = veenv.hessian(energy, sparse_representation=True)
        yield Row(f"Hessian, {name}", fun, lambda n=case.size: _unknowns(n), True)


def _writings(scale: float = 0.3) -> Iterator[Row]:
    from scripts.benchmarks.functions.writings import PROBLEMS, scaled, writings

    for name in PROBLEMS:
        problem = scaled(name, scale)
        for writing, fun in writings(problem).items():
            sparse = veenv.jacve(fun, sparse_representation=True)
            yield Row(f"{name}, {writing}", sparse, lambda n=problem.size: _unknowns(n), True)


CORPORA: Mapping[str, Callable[[], Iterator[Row]]] = {
    "realistic": _realistic, "fuse": _fuse, "libraries": _libraries, "sparse": _sparse,
    "hessians": _hessians, "writings": _writings,
}  # fmt: skip
