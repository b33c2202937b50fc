"""Measured times of forms of Jacobians, and the numbers of `veenv.kernel.price` fitted to them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from veenv.kernel.price import MICROSECONDS
from veenv.orders.documents import write_text

FILE = Path(__file__).with_suffix(".json")
_ABOUT = {
    "call": 9.0, "loop": 1.0, "simple": 6e-5, "function": 6e-4, "stored": 2e-4, "flop": 2e-5,
    "code": 1e-3,
}  # fmt: skip
"""Microseconds that are taken where the measurements say nothing."""
_PRIOR = 0.3
"""What they weigh against one measurement."""


@dataclass(frozen=True)
class Measured:
    """A form of a function's Jacobian at a batch: what its price is made of, measured seconds."""

    function: str
    form: str
    batch: int
    counts: list[float]
    seconds: float


def read(path: Path) -> list[Measured]:
    """The rows of a file."""
    return [Measured(**row) for row in json.loads(path.read_text(encoding="utf-8"))["measured"]]


def write(path: Path, rows: Iterable[Measured], **notes: object) -> None:
    """Writes rows, one a line, after some notes."""
    head = json.dumps(notes, indent=1)[:-2]
    lines = ",\n".join("  " + json.dumps(asdict(row)) for row in rows)
    write_text(path, f'{head},\n "measured": [\n{lines}\n ]\n}}\n')


def fitted(rows: Sequence[Measured]) -> dict[str, float]:
    """Microseconds of least squared logarithmic errors, near `_ABOUT` where all will do."""
    from scipy.optimize import least_squares

    prior = np.array([_ABOUT[name] for name in MICROSECONDS])
    counts = np.array([row.counts for row in rows]) * prior
    wanted = np.log([1e6 * row.seconds for row in rows])

    def errors(change: np.ndarray) -> np.ndarray:
        return np.concatenate([np.log(counts @ np.exp(change)) - wanted, _PRIOR * change])

    costs = prior * np.exp(least_squares(errors, np.zeros(len(prior)), loss="soft_l1").x)
    return dict(zip(MICROSECONDS, costs.tolist(), strict=True))


def chosen(rows: Sequence[Measured], costs: Mapping[str, float]) -> list[float]:
    """Returns for each function and batch the time of the cheapest form over the fastest's."""
    each = np.array([*costs.values()])
    forms: dict[tuple[str, int], list[Measured]] = {}
    for row in rows:
        forms.setdefault((row.function, row.batch), []).append(row)
    return [
        min(rivals, key=lambda row: float(each @ row.counts)).seconds
        / min(row.seconds for row in rivals)
        for rivals in forms.values()
    ]
