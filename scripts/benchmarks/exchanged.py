"""What the devices of a compiled program send each other, read off the program's text."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

NAMES = "all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute|ragged-all-to-all"
WIDTHS = {"f32": 4, "s32": 4, "u32": 4, "bf16": 2, "pred": 1, "f64": 8, "s64": 8, "s8": 1, "u8": 1}
"""Bytes of a number."""


class Exchange(NamedTuple):
    """An operation by which devices exchange numbers, and the bytes of its results on one."""

    name: str
    num_bytes: int


def exchanges(text: str) -> list[Exchange]:
    """The exchanges of a program in the text of HLO; those of a loop count once.

    >>> exchanges("%x = (f32[2,3]{1,0}, /*index=1*/s32[]) all-reduce-start(%a, %b)")
    [Exchange(name='all-reduce', num_bytes=28)]
    """
    found = re.findall(rf"= (\S.*?) ({NAMES})(?:-start)?\(", text)
    return [Exchange(name, bytes_of(kind)) for kind, name in found]


def bytes_of(kind: str) -> int:
    """Bytes of a type of HLO, of all parts of a tuple."""
    parts = re.findall(r"(\w+)\[([\d,]*)\]", kind)
    return sum(WIDTHS.get(t, 0) * math.prod(map(int, filter(None, s.split(",")))) for t, s in parts)
