"""Order files on disk: JSON that is checked field by field before anything uses it.

The schema is documented in orders.html.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from veenv.orders.documents import parse_object, read_bytes, write_text

FORMAT = "veenv-order"
VERSION = 1
MAX_BYTES = 16 * 2**20
MAX_ID = 2**31 - 1
MAX_COUNT = 2**63 - 1
MAX_TEXT = 10_000

_COSTS = ("multiplications", "executed", "operations")
_REQUIRED_COSTS = ("multiplications", "executed")
_TEXTS = ("name", "fingerprint", "jax_version", "found_by")
_REQUIRED = ("format", "version", "ids", "counts", "num_edges", "num_vertices", *_TEXTS)
_OPTIONAL = ("lower_bounds", "steps")


def read_record(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads an order file and checks every field.

    Raises:
      ValueError: if it is not an order file, naming the file and the offending field.
      OSError: if it cannot be read.
    """
    shown = os.fspath(path)
    try:
        return parse_record(read_bytes(path, MAX_BYTES, "order file"))
    except ValueError as error:
        raise ValueError(f"order file {shown}: {error}") from None


def parse_record(data: bytes) -> dict[str, Any]:
    """Parses the contents of an order file, and checks every field as `check_record`."""
    return check_record(parse_object(data))


def check_record(record: dict[str, Any]) -> dict[str, Any]:
    """Checks the types, ranges and mutual agreement of the fields of a record, which it returns.

    Raises:
      ValueError: naming the offending field.
    """
    if record.get("format") != FORMAT:
        raise ValueError(f'format: expected an object with "format": "{FORMAT}"')
    if type(record.get("version")) is not int or record["version"] != VERSION:
        raise ValueError(f"version: expected {VERSION}, got {_shown(record.get('version'))}")
    for key in _REQUIRED:
        if key not in record:
            raise ValueError(f"{key}: the field is missing")
    for key in record:
        if key not in _REQUIRED and key not in _OPTIONAL:
            raise ValueError(f"{_shown(key)}: unknown field")
    for key in _TEXTS:
        _check_text(key, record[key])
    if not re.fullmatch("[0-9a-f]{64}", record["fingerprint"]):
        raise ValueError(
            f"fingerprint: expected 64 hexadecimal digits, got {_shown(record['fingerprint'])}"
        )
    for key in ("num_edges", "num_vertices"):
        _check_integer(key, record[key], 0, MAX_ID)
    if "steps" in record:
        _check_integer("steps", record["steps"], 0, MAX_COUNT)
    _check_ids(record["ids"], record["num_vertices"])
    _check_counts("counts", record["counts"], _REQUIRED_COSTS)
    _check_counts("lower_bounds", record.get("lower_bounds", {}), ())
    for cost, bound in record.get("lower_bounds", {}).items():
        if cost not in record["counts"]:
            raise ValueError(f"lower_bounds[{cost!r}]: there is no count of that cost model")
        if bound > record["counts"][cost]:
            raise ValueError(
                f"lower_bounds[{cost!r}]: {bound} is more than the count {record['counts'][cost]}"
            )
    return record


def write_record(path: str | os.PathLike[str], fields: Mapping[str, Any]) -> None:
    """Writes an order file, given all fields but ``format`` and ``version``.

    Raises:
      ValueError: if the record would not be read again.
      OSError: if it cannot be written.
    """
    record = check_record({"format": FORMAT, "version": VERSION, **fields})
    lines = (f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in record.items())
    write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def _check_ids(ids: Any, num_vertices: int) -> None:
    if not isinstance(ids, list):
        raise ValueError(f"ids: expected a list of vertex ids, got {type(ids).__name__}")
    for i, vertex in enumerate(ids):
        _check_integer(f"ids[{i}]", vertex, 1, num_vertices)
    if len(set(ids)) != len(ids):
        seen: set[int] = set()
        repeated = next(v for v in ids if v in seen or seen.add(v))
        raise ValueError(f"ids: vertex {repeated} is repeated")


def _check_counts(name: str, counts: Any, needed: tuple[str, ...]) -> None:
    if not isinstance(counts, dict):
        raise ValueError(f"{name}: expected an object, got {type(counts).__name__}")
    for cost in needed:
        if cost not in counts:
            raise ValueError(f"{name}[{cost!r}]: the field is missing")
    for cost, value in counts.items():
        if cost not in _COSTS:
            raise ValueError(f"{name}[{_shown(cost)}]: expected one of {', '.join(_COSTS)}")
        _check_integer(f"{name}[{cost!r}]", value, 0, MAX_COUNT)


def _check_integer(name: str, value: Any, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name}: expected an integer in {low} .. {high}, got {_shown(value)}")


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{name}: expected text, got {_shown(value)}")
    if len(value) > MAX_TEXT:
        raise ValueError(f"{name}: {len(value)} characters, expected at most {MAX_TEXT}")
    if any("\ud800" <= c <= "\udfff" for c in value):
        raise ValueError(f"{name}: a surrogate stands alone")


def _shown(value: Any) -> str:
    """A value for an error message: printable ASCII, and short."""
    if isinstance(value, (list, dict)):
        return f"{type(value).__name__} of {len(value)}"
    text = ascii(value)
    return text if len(text) <= 60 else text[:60] + "…"
