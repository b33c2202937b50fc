"""Records of tuning as JSON: written aside and renamed, checked field by field when read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import numpy as np

from veenv.measure.timing import spread
from veenv.orders.documents import parse_object, read_bytes, write_text
from veenv.orders.fields import MAX_TEXT, read_field
from veenv.orders.files import MAX_BYTES
from veenv.search.tuning.contest import Trial, ratios
from veenv.search.tuning.forms import AUTO, Form

FORMAT = "veenv-tuned"
VERSION = 1


@dataclass(frozen=True)
class Result:
    """One form with its measured times, or a note why there are none.

    Attributes:
      form: the form.
      median: median seconds of a call; None if it was not timed.
      ratio: median over the rounds of its time to that of JAX's faster own mode; None if no round
        had both of them.
      low: lower bound of that ratio, at about 95 % confidence; None likewise.
      high: its upper bound; None likewise.
      rounds: how often it was timed.
      compile_seconds: seconds of tracing and compiling.
      temporary: bytes of temporary memory; None where the backend does not tell.
      note: why it was not timed, or not to the end.
    """

    form: Form
    median: float | None
    ratio: float | None
    low: float | None
    high: float | None
    rounds: int
    compile_seconds: float
    temporary: int | None
    note: str


@dataclass(frozen=True)
class Record:
    """The result of `veenv.tune`.

    Attributes:
      name: name of the function.
      argnums: what it was differentiated by; None of a step, which was not.
      has_aux: whether it returns an auxiliary output.
      shapes: shape of each leaf of its arguments; None of what is no array.
      fingerprint: of its graph; empty where time was up before it was traced.
      batch: number of points; None for one.
      budget: seconds that were allowed.
      seconds: seconds that were taken.
      settled: whether more time would not have changed the choice.
      where: device and versions.
      chosen: the form.
      results: of all forms.
      holomorphic: whether it is a holomorphic function of complex arguments.
    """

    name: str
    argnums: int | tuple[int, ...] | None
    has_aux: bool
    shapes: tuple[tuple[int, ...] | None, ...]
    fingerprint: str
    batch: int | None
    budget: float
    seconds: float
    settled: bool
    where: Mapping[str, str] = field(hash=False)
    chosen: Form = AUTO
    results: tuple[Result, ...] = ()
    holomorphic: bool = False

    @property
    def faster_mode(self) -> Form | None:
        """JAX's faster mode; None where neither was timed."""
        modes = [r for r in self.results if r.form.by_jax and r.median is not None]
        # Ratios are to the faster mode, whose own ratio is 1.
        return min(modes, key=lambda r: (r.ratio != 1.0, r.median)).form if modes else None

    @property
    def usual(self) -> Form:
        """Returns the fastest form of those that need no tuning."""
        timed = [r for r in self.results if r.form.usual and r.median is not None]
        none = AUTO if self.argnums is not None else self.chosen
        return min(timed, key=lambda r: r.median or 0.0).form if timed else none

    def result(self) -> Result | None:
        """Returns the chosen form's result; None where it was not timed."""
        every = (r for r in self.results if r.form == self.chosen and r.median is not None)
        return next(every, None)


def results_of(trials: list[Trial], mode: Trial | None) -> tuple[Result, ...]:
    """Converts trials to results: medians, and paired ratios to the faster of JAX's modes."""
    results = []
    for t in trials:
        median = ratio = low = high = None
        if times := t.times():
            median = float(np.median(times))
            if mode is not None and (t is mode or t.seconds.keys() & mode.seconds.keys()):
                low, ratio, high = spread(ratios(t, mode))
        timing = median, ratio, low, high, len(t.seconds)
        results.append(Result(t.form, *timing, t.compile_seconds, t.temporary, t.note))
    return tuple(results)


def write(path: str | os.PathLike[str], record: Record) -> None:
    """Writes a record."""
    fields = asdict(record) | {"name": record.name[:MAX_TEXT]}
    whole = {"format": FORMAT, "version": VERSION, **fields}
    write_text(path, json.dumps(whole, indent=1, allow_nan=False) + "\n")


def read(path: str | os.PathLike[str]) -> Record:
    """Reads a record and checks every field."""
    try:
        data = parse_object(read_bytes(path, MAX_BYTES, "tuned file"))
        if data.get("format") != FORMAT:
            raise ValueError(f'format: expected an object with "format": "{FORMAT}"')
        if data.get("version") != VERSION:
            raise ValueError(f"version: expected {VERSION}, got {data.get('version')!r:.60}")
        record = read_field("", Record, {"holomorphic": False} | data)  # older files lack it
        if not re.fullmatch("([0-9a-f]{64})?", record.fingerprint):
            raise ValueError(
                f"fingerprint: expected 64 hexadecimal digits, got {record.fingerprint!r:.60}"
            )
        return record
    except ValueError as error:
        raise ValueError(f"tuned file {os.fspath(path)}: {error}") from None
