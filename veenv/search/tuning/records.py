"""What tuning found, as JSON: written aside and renamed, checked field by field when read."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from veenv.orders.documents import read_bytes, write_text
from veenv.search.tuning.contest import Trial, spread
from veenv.search.tuning.forms import FORM_KERNELS, MODES, Form

FORMAT = "veenv-tuned"
VERSION = 1
MAX_BYTES = 16 * 2**20
_MAX_IDS = 1_000_000
_MAX_TRIALS = 1000
_MAX_TEXT = 1000


@dataclass(frozen=True)
class Result:
    """One form, and how long it took.

    Attributes:
      form: the form.
      median: median seconds of a call; None if it was not timed.
      ratio: median over the rounds of its time to that of JAX's faster own mode; None likewise.
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
    chosen: Form = field(default_factory=lambda: Form("jacrev"))
    results: tuple[Result, ...] = ()

    @property
    def faster_mode(self) -> Form:
        """JAX's own mode that was faster."""
        own = [r for r in self.results if r.form.mode != "jacve" and r.median is not None]
        best = min(own, key=lambda r: r.median or math.inf, default=None)
        if best is not None:
            return best.form
        return self.chosen if self.chosen.mode != "jacve" else Form("jacrev")

    def result(self) -> Result | None:
        """The chosen form's own; None where nothing was timed."""
        return next((r for r in self.results if r.form == self.chosen), None)


def results_of(trials: list[Trial]) -> tuple[Result, ...]:
    """Trials as results: their medians, and paired ratios to the faster of JAX's own modes."""
    timed = {id(t): t.seconds[:] or ([] if t.first is None else [t.first]) for t in trials}
    longest = max((len(s) for s in timed.values()), default=0)
    own = [timed[id(t)] for t in trials if t.form.mode != "jacve" and timed[id(t)]]
    whole = [s for s in own if len(s) >= longest - 1] or own
    base = min(whole, key=lambda s: float(np.median(s)), default=None)
    found = []
    for t in trials:
        seconds = timed[id(t)]
        median = ratio = low = high = None
        if seconds:
            median = float(np.median(seconds))
        if seconds and base is not None:
            count = min(len(base), len(seconds))
            low, ratio, high = spread(np.divide(seconds[:count], base[:count]))
        timing = median, ratio, low, high, len(t.seconds)
        found.append(Result(t.form, *timing, t.compile_seconds, t.temporary, t.note))
    return tuple(found)


def write(path: str | os.PathLike[str], record: Record) -> None:
    """Writes a record.

    Raises:
      OSError: if it cannot be written.
    """
    fields = {
        "format": FORMAT,
        "version": VERSION,
        "name": record.name[:_MAX_TEXT],
        "argnums": record.argnums,
        "has_aux": record.has_aux,
        "shapes": record.shapes,
        "fingerprint": record.fingerprint,
        "batch": record.batch,
        "budget": record.budget,
        "seconds": record.seconds,
        "settled": record.settled,
        "where": dict(record.where),
        "chosen": _form_fields(record.chosen),
        "results": [
            {**{k: v for k, v in vars(r).items() if k != "form"}, "form": _form_fields(r.form)}
            for r in record.results
        ],
    }
    write_text(path, json.dumps(fields, indent=1, allow_nan=False) + "\n")


def _form_fields(form: Form) -> dict[str, Any]:
    return {**vars(form), "ids": list(form.ids)}


def read(path: str | os.PathLike[str]) -> Record:
    """Reads a record and checks every field.

    Raises:
      ValueError: if it is no such record, naming the file and the offending field.
      OSError: if it cannot be read.
    """
    try:
        text = read_bytes(path, MAX_BYTES, "tuned file").decode("utf-8")
        return _checked(json.loads(text, parse_constant=_no_constant))
    except RecursionError:
        raise ValueError(f"tuned file {os.fspath(path)}: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"tuned file {os.fspath(path)}: {error}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _checked(data: Any) -> Record:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f'format: expected an object with "format": "{FORMAT}"')
    if data.get("version") != VERSION:
        raise ValueError(f"version: expected {VERSION}, got {data.get('version')!r:.60}")
    argnums = data.get("argnums")
    if isinstance(argnums, list):
        argnums = tuple(_integer("argnums", a, -1000, 1000) for a in argnums)
    else:
        argnums = _integer("argnums", argnums, -1000, 1000)
    batch = data.get("batch")
    where = _typed("where", data.get("where"), dict)
    fingerprint = _string("fingerprint", data.get("fingerprint"))
    if not re.fullmatch("([0-9a-f]{64})?", fingerprint):
        raise ValueError(f"fingerprint: expected 64 hexadecimal digits, got {fingerprint!r:.60}")
    results = _sequence("results", data.get("results"), _MAX_TRIALS)
    return Record(
        _string("name", data.get("name")),
        argnums,
        _typed("has_aux", data.get("has_aux"), bool),
        tuple(_shape(s) for s in _sequence("shapes", data.get("shapes"), 100_000)),
        fingerprint,
        None if batch is None else _integer("batch", batch, 1, 2**40),
        _number("budget", data.get("budget")),
        _number("seconds", data.get("seconds")),
        _typed("settled", data.get("settled"), bool),
        {_string("where", k): _string("where", v) for k, v in where.items()},
        _form("chosen", data.get("chosen")),
        tuple(_result(k, r) for k, r in enumerate(results)),
    )


def _result(k: int, data: Any) -> Result:
    name = f"results[{k}]"
    data = _typed(name, data, dict)

    def optional(key: str) -> float | None:
        return None if data.get(key) is None else _number(f"{name}.{key}", data[key])

    temporary = data.get("temporary")
    return Result(
        _form(f"{name}.form", data.get("form")),
        optional("median"),
        optional("ratio"),
        optional("low"),
        optional("high"),
        _integer(f"{name}.rounds", data.get("rounds"), 0, 10**9),
        _number(f"{name}.compile_seconds", data.get("compile_seconds")),
        None if temporary is None else _integer(f"{name}.temporary", temporary, 0, 2**63 - 1),
        _string(f"{name}.note", data.get("note")),
    )


def _form(name: str, data: Any) -> Form:
    data = _typed(name, data, dict)
    for key, known in (("mode", MODES), ("kernel", FORM_KERNELS)):
        if not isinstance(data.get(key), str) or data[key] not in known:
            raise ValueError(f"{name}.{key}: expected one of {', '.join(known)}")
    pin = data.get("pin")
    if not isinstance(pin, bool) and pin != "auto":
        raise ValueError(f'{name}.pin: expected "auto", true or false')
    ids = [
        _integer(f"{name}.ids", v, 1, 2**31 - 1)
        for v in _sequence(f"{name}.ids", data.get("ids"), _MAX_IDS)
    ]
    order = _string(f"{name}.order", data.get("order"))
    return Form(data["mode"], order, tuple(ids), data["kernel"], pin)


def _shape(data: Any) -> tuple[int, ...] | None:
    if data is None:
        return None
    return tuple(_integer("shapes", n, 0, 2**40) for n in _sequence("shapes", data, 100))


def _typed(name: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{name}: expected {kind.__name__}, got {type(value).__name__}")
    return value


def _sequence(name: str, value: Any, most: int) -> list[Any]:
    if len(_typed(name, value, list)) > most:
        raise ValueError(f"{name}: {len(value)} entries, expected at most {most}")
    return value


def _string(name: str, value: Any) -> str:
    if len(_typed(name, value, str)) > _MAX_TEXT:
        raise ValueError(f"{name}: {len(value)} characters, expected at most {_MAX_TEXT}")
    return value


def _integer(name: str, value: Any, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name}: expected an integer in {low} .. {high}, got {value!r:.60}")
    return value


def _number(name: str, value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1e15:
        raise ValueError(f"{name}: expected a number that is not negative, got {value!r:.60}")
    return float(value)
