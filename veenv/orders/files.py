"""Reads and writes order files: JSON, checked field by field before anything uses it.

The schema is documented in orders.html.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from veenv.graph.graph import CostModel
from veenv.orders.documents import parse_object, read_bytes, write_text
from veenv.orders.fields import read_field

FORMAT = "veenv-order"
VERSION = 1
MAX_BYTES = 16 * 2**20
"""Most bytes of a file: twice those of an order of a million vertices."""
MAX_ID = 2**31 - 1
"""Vertices and edges are numbered by int32."""

_FIELDS: Mapping[str, Any] = {
    **dict.fromkeys(("name", "fingerprint", "jax_version", "found_by"), str),
    **dict.fromkeys(("num_edges", "num_vertices", "steps"), int),
    **dict.fromkeys(("counts", "lower_bounds"), Mapping[CostModel, int]),
    "ids": tuple[int, ...],
}
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
    except FileNotFoundError as error:
        hint = "no order file; Order.save writes one, and veenv.best_order knows built-in tasks"
        raise FileNotFoundError(error.errno, hint, shown) from None
    except ValueError as error:
        raise ValueError(f"order file {shown}: {error}") from None


def parse_record(data: bytes) -> dict[str, Any]:
    """Parses the contents of an order file, and checks every field as `check_record`."""
    return check_record(parse_object(data))


def check_record(record: dict[str, Any]) -> dict[str, Any]:
    """Checks the fields of a record for type, range and mutual agreement; returns the record.

    Raises:
      ValueError: naming the offending field.
    """
    if record.get("format") != FORMAT:
        raise ValueError(f'format: expected an object with "format": "{FORMAT}"')
    if type(record.get("version")) is not int or record["version"] != VERSION:
        raise ValueError(f"version: expected {VERSION}, got {record.get('version')!r:.60}")
    for key, kind in _FIELDS.items():
        if key in record:
            read_field(key, kind, record[key])
        elif key not in _OPTIONAL:
            raise ValueError(f"{key}: the field is missing")
    for key in record:
        if key not in (*_FIELDS, "format", "version"):
            raise ValueError(f"{key!a:.60}: unknown field")
    if not re.fullmatch("[0-9a-f]{64}", record["fingerprint"]):
        raise ValueError(
            f"fingerprint: expected 64 hexadecimal digits, got {record['fingerprint']!a:.60}"
        )
    ids, vertices, counts = record["ids"], record["num_vertices"], record["counts"]
    numbers = [("num_edges", record["num_edges"], MAX_ID), ("num_vertices", vertices, MAX_ID)]
    numbers += [(f"ids[{i}]", vertex, vertices) for i, vertex in enumerate(ids)]
    for key, value, most in numbers:
        if value > most:
            raise ValueError(f"{key}: expected an integer of at most {most}, got {value}")
    for vertex, times in Counter(ids).items():
        if times > 1:
            raise ValueError(f"ids: vertex {vertex} is repeated")
    for cost in ("multiplications", "executed"):
        if cost not in counts:
            raise ValueError(f"counts[{cost!r}]: the field is missing")
    for cost, bound in record.get("lower_bounds", {}).items():
        known = counts.get(cost)
        if known is None:
            raise ValueError(f"lower_bounds[{cost!r}]: there is no count of that cost model")
        if bound > known:
            raise ValueError(f"lower_bounds[{cost!r}]: {bound} is more than the count {known}")
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
