"""What scalar operations take, in multiplications: the one table, fitted to measured times.

``python scripts/benchmark.py weights`` measures it on a processor and writes ``weights.json``, with
the processor that it was measured on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

FILE = Path(__file__).with_name("weights.json")
WEIGHTS: Mapping[str, int] = MappingProxyType(
    json.loads(FILE.read_text(encoding="utf-8"))["weights"]
)
"""Weights of operations and of functions of libm, by name, in float32."""
_OTHER_FUNCTION = 25
SHARED = max(0, WEIGHTS["sin"] + WEIGHTS["cos"] - WEIGHTS["sincos"])
"""What a sine and a cosine of one number take less than both alone."""


def weight(name: str, function: str | None = None) -> int:
    """The weight of an operation of a scalar program; 1 for those that the table does not have.

    Args:
      name: the operation's name.
      function: which function, for a ``call``.

    Example:
      >>> weight("mul"), weight("call", "sin") == WEIGHTS["sin"]
      (1, True)
    """
    if name == "call":
        return WEIGHTS.get(function or "", _OTHER_FUNCTION)
    return WEIGHTS.get(name, 1)
