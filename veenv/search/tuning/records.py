"""What tuning found, as JSON: written aside and renamed, checked field by field when read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from veenv.measure.timing import spread
from veenv.orders.documents import parse_object, read_bytes, write_text
from veenv.search.tuning.contest import Trial, ratios
from veenv.search.tuning.forms import AUTO, Form

FORMAT = "veenv-tuned"
VERSION = 1
MAX_BYTES = 16 * 2**20
_MAX_TEXT = 1000
_LONGEST = 1_000_000
_LEAST = {"ids": 1, "batch": 1, "argnums": -1000}
"""The least integer of some fields; zero of others."""


@dataclass(frozen=True)
class Result:
    """One form, and how long it took.

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
    """What `veenv.tune` found.

    Attributes:
      name: name of the function.
      argnums: what it was differentiated by.
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
    """

    name: str
    argnums: int | tuple[int, ...]
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

    @property
    def faster_mode(self) -> Form | None:
        """JAX's own mode that was faster; None where neither was timed."""
        own = [r for r in self.results if r.form.mode != "jacve" and r.median is not None]
        # The faster one is what the ratios are to.
        return min(own, key=lambda r: (r.ratio != 1.0, r.median)).form if own else None

    @property
    def usual(self) -> Form:
        """What is fastest of what needs no tuning."""
        own = [r for r in self.results if r.form.usual and r.median is not None]
        return min(own, key=lambda r: r.median or 0.0).form if own else AUTO

    def result(self) -> Result | None:
        """The chosen form's own; None where it was not timed."""
        every = (r for r in self.results if r.form == self.chosen and r.median is not None)
        return next(every, None)


def results_of(trials: list[Trial], mode: Trial | None) -> tuple[Result, ...]:
    """Trials as results: their medians, and paired ratios to the faster of JAX's own modes."""
    found = []
    for t in trials:
        median = ratio = low = high = None
        if times := t.times():
            median = float(np.median(times))
            if mode is not None and (t is mode or t.seconds.keys() & mode.seconds.keys()):
                low, ratio, high = spread(ratios(t, mode))
        timing = median, ratio, low, high, len(t.seconds)
        found.append(Result(t.form, *timing, t.compile_seconds, t.temporary, t.note))
    return tuple(found)


def write(path: str | os.PathLike[str], record: Record) -> None:
    """Writes a record."""
    whole = {"format": FORMAT, "version": VERSION, **asdict(record)}
    write_text(
        path,
        json.dumps(whole | {"name": record.name[:_MAX_TEXT]}, indent=1, allow_nan=False) + "\n",
    )


def read(path: str | os.PathLike[str]) -> Record:
    """Reads a record and checks every field."""
    try:
        data = parse_object(read_bytes(path, MAX_BYTES, "tuned file"))
        if data.get("format") != FORMAT:
            raise ValueError(f'format: expected an object with "format": "{FORMAT}"')
        if data.get("version") != VERSION:
            raise ValueError(f"version: expected {VERSION}, got {data.get('version')!r:.60}")
        record = _read("", Record, data)
        if not re.fullmatch("([0-9a-f]{64})?", record.fingerprint):
            raise ValueError(
                f"fingerprint: expected 64 hexadecimal digits, got {record.fingerprint!r:.60}"
            )
        return record
    except ValueError as error:
        raise ValueError(f"tuned file {os.fspath(path)}: {error}") from None


_JSON = {NoneType: NoneType, bool: bool, int: int, tuple: list, Literal: str}
"""What json.loads gives for the alternatives of a field."""


def _read(name: str, hint: Any, value: Any) -> Any:
    """A value of JSON as a field of some type."""
    origin, kinds = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        known = (k for k in kinds if type(value) is _JSON.get(get_origin(k) or k))
        return _read(name, next(known, kinds[0]), value)
    whole: Any = hint
    if is_dataclass(hint):
        fields = _typed(name, value, dict)
        return whole(
            **{key: _read(f"{name}.{key}".lstrip("."), kind, fields.get(key))
               for key, kind in get_type_hints(hint).items()}
        )  # fmt: skip
    if origin is tuple:
        if len(_typed(name, value, list)) > _LONGEST:
            raise ValueError(f"{name}: {len(value)} entries, expected at most {_LONGEST}")
        return tuple(_read(f"{name}[{k}]", kinds[0], x) for k, x in enumerate(value))
    if origin is Mapping:
        entries = _typed(name, value, dict).items()
        return {_read(name, str, k): _read(name, str, x) for k, x in entries}
    return _scalar(name, hint, value)


def _scalar(name: str, hint: Any, value: Any) -> Any:
    if get_origin(hint) is Literal:
        if not any(type(value) is type(known) and value == known for known in get_args(hint)):
            raise ValueError(f"{name}: expected one of {', '.join(map(str, get_args(hint)))}")
    elif hint is float:
        if type(value) not in (int, float) or not 0 <= value < 1e15:
            raise ValueError(f"{name}: expected a number that is not negative, got {value!r:.60}")
        return float(value)
    elif hint is int:
        low = _LEAST.get(name.rpartition(".")[2].partition("[")[0], 0)
        if type(value) is not int or not low <= value < 2**63:
            raise ValueError(f"{name}: expected an integer in {low} .. 2**63, got {value!r:.60}")
    elif _typed(name, value, hint) and hint is str and len(value) > _MAX_TEXT:
        raise ValueError(f"{name}: {len(value)} characters, expected at most {_MAX_TEXT}")
    return value


def _typed(name: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{name}: expected {kind.__name__}, got {type(value).__name__}")
    return value
