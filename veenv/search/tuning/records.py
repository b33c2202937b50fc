"""What tuning found, as JSON: written aside and renamed, checked field by field when read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from veenv.kernel.fusing import KERNEL_MODES
from veenv.measure.timing import spread
from veenv.orders.documents import read_bytes, write_text
from veenv.search.tuning.contest import Trial, ratios
from veenv.search.tuning.forms import AUTO, MODES, Form

FORMAT = "veenv-tuned"
VERSION = 1
MAX_BYTES = 16 * 2**20
_MAX_TEXT = 1000


@dataclass(frozen=True)
class Result:
    """One form, and how long it took.

    Attributes:
      form: the form.
      median: median seconds of a call; None if it was not timed.
      ratio: median over the rounds of its time to that of JAX's faster own mode; None if one of
        them was not timed.
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
            if mode is not None:
                low, ratio, high = spread(ratios(t, mode))
        timing = median, ratio, low, high, len(t.seconds)
        found.append(Result(t.form, *timing, t.compile_seconds, t.temporary, t.note))
    return tuple(found)


def write(path: str | os.PathLike[str], record: Record) -> None:
    """Writes a record.

    Raises:
      OSError: if it cannot be written.
    """
    whole = {"format": FORMAT, "version": VERSION, **asdict(record)}
    write_text(
        path,
        json.dumps(whole | {"name": record.name[:_MAX_TEXT]}, indent=1, allow_nan=False) + "\n",
    )


def read(path: str | os.PathLike[str]) -> Record:
    """Reads a record and checks every field.

    Raises:
      ValueError: if it is no such record, naming the file and the offending field.
      OSError: if it cannot be read.
    """
    try:
        text = read_bytes(path, MAX_BYTES, "tuned file").decode("utf-8")
        data = json.loads(text, parse_constant=_no_constant)
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ValueError(f'format: expected an object with "format": "{FORMAT}"')
        if data.get("version") != VERSION:
            raise ValueError(f"version: expected {VERSION}, got {data.get('version')!r:.60}")
        return _RECORD("", data)
    except RecursionError:
        raise ValueError(f"tuned file {os.fspath(path)}: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"tuned file {os.fspath(path)}: {error}") from None


_Check = Callable[[str, Any], Any]
"""From the name of a field and what was read to its value; raises `ValueError`."""


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _typed(name: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{name}: expected {kind.__name__}, got {type(value).__name__}")
    return value


def _bool(name: str, value: Any) -> bool:
    return _typed(name, value, bool)


def _text(name: str, value: Any) -> str:
    if len(_typed(name, value, str)) > _MAX_TEXT:
        raise ValueError(f"{name}: {len(value)} characters, expected at most {_MAX_TEXT}")
    return value


def _digits(name: str, value: Any) -> str:
    if not re.fullmatch("([0-9a-f]{64})?", _text(name, value)):
        raise ValueError(f"{name}: expected 64 hexadecimal digits, got {value!r:.60}")
    return value


def _texts(name: str, value: Any) -> dict[str, str]:
    return {_text(name, k): _text(name, v) for k, v in _typed(name, value, dict).items()}


def _number(name: str, value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1e15:
        raise ValueError(f"{name}: expected a number that is not negative, got {value!r:.60}")
    return float(value)


def _integer(low: int, high: int) -> _Check:
    def check(name: str, value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"{name}: expected an integer in {low} .. {high}, got {value!r:.60}")
        return value

    return check


def _one_of(*known: Any) -> _Check:
    def check(name: str, value: Any) -> Any:
        if not any(type(value) is type(k) and value == k for k in known):
            raise ValueError(f"{name}: expected one of {', '.join(map(str, known))}")
        return value

    return check


def _optional(check: _Check) -> _Check:
    return lambda name, value: None if value is None else check(name, value)


def _list(check: _Check, most: int) -> _Check:
    def checked(name: str, value: Any) -> tuple[Any, ...]:
        if len(_typed(name, value, list)) > most:
            raise ValueError(f"{name}: {len(value)} entries, expected at most {most}")
        return tuple(check(f"{name}[{k}]", x) for k, x in enumerate(value))

    return checked


def _object(kind: type, **fields: _Check) -> _Check:
    def check(name: str, value: Any) -> Any:
        value = _typed(name, value, dict)
        prefix = name and f"{name}."
        return kind(**{key: f(prefix + key, value.get(key)) for key, f in fields.items()})

    return check


def _argnums(name: str, value: Any) -> Any:
    one = _integer(-1000, 1000)
    return (_list(one, 1000) if isinstance(value, list) else one)(name, value)


_FORM = _object(
    Form,
    mode=_one_of(*MODES),
    order=_text,
    ids=_list(_integer(1, 2**31 - 1), 1_000_000),
    kernel=_one_of(*KERNEL_MODES),
    pin=_one_of("auto", True, False),
)
_RESULT = _object(
    Result,
    form=_FORM,
    median=_optional(_number),
    ratio=_optional(_number),
    low=_optional(_number),
    high=_optional(_number),
    rounds=_integer(0, 10**9),
    compile_seconds=_number,
    temporary=_optional(_integer(0, 2**63 - 1)),
    note=_text,
)
_RECORD = _object(
    Record,
    name=_text,
    argnums=_argnums,
    has_aux=_bool,
    shapes=_list(_optional(_list(_integer(0, 2**40), 100)), 100_000),
    fingerprint=_digits,
    batch=_optional(_integer(1, 2**40)),
    budget=_number,
    seconds=_number,
    settled=_bool,
    where=_texts,
    chosen=_FORM,
    results=_list(_RESULT, 1000),
)
