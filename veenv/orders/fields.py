"""Reads JSON values as dataclasses, with the type and size of every field checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

MAX_TEXT = 10_000
_LONGEST = 1_000_000
_LEAST = {"ids": 1, "batch": 1, "argnums": -1000}
"""The least integer of some fields; zero of others."""

_JSON = {NoneType: NoneType, bool: bool, int: int, tuple: list, Literal: str}
"""What json.loads gives for the alternatives of a field."""


def read_field(name: str, hint: Any, value: Any) -> Any:
    """Reads a JSON value as a field's type: a dataclass, tuple, text, number or None.

    Raises:
      ValueError: it is of another kind, or too large; the name of the field is said.
    """
    origin, kinds = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        known = (k for k in kinds if type(value) is _JSON.get(get_origin(k) or k))
        return read_field(name, next(known, kinds[0]), value)
    whole: Any = hint
    if is_dataclass(hint):
        fields = _typed(name, value, dict)
        return whole(
            **{key: read_field(f"{name}.{key}".lstrip("."), kind, fields.get(key))
               for key, kind in get_type_hints(hint).items()}
        )  # fmt: skip
    if origin is tuple:
        if len(_typed(name, value, list)) > _LONGEST:
            raise ValueError(f"{name}: {len(value)} entries, expected at most {_LONGEST}")
        return tuple(read_field(f"{name}[{k}]", kinds[0], x) for k, x in enumerate(value))
    if origin is Mapping:
        entries = _typed(name, value, dict).items()
        return {
            read_field(shown, kinds[0], k): read_field(shown, kinds[1], x)
            for k, x in entries
            for shown in [f"{name}[{k!a:.60}]"]
        }
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
            raise ValueError(
                f"{name}: expected an integer in {low} .. {2**63 - 1}, got {value!r:.60}"
            )
    elif _typed(name, value, hint) and hint is str:
        if len(value) > MAX_TEXT:
            raise ValueError(f"{name}: {len(value)} characters, expected at most {MAX_TEXT}")
        if any("\ud800" <= c <= "\udfff" for c in value):
            raise ValueError(f"{name}: a surrogate stands alone")
    return value


def _typed(name: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        expected = {list: "a list", dict: "an object", str: "text"}.get(kind, kind.__name__)
        raise ValueError(f"{name}: expected {expected}, got {type(value).__name__}")
    return value
