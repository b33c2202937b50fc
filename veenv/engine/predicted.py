"""Predicted times of traced forms of a Jacobian, and which of them is the shortest."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from veenv.engine import pins
from veenv.kernel.features import Features, features_of
from veenv.kernel.fusing import Traced
from veenv.kernel.parts import Part
from veenv.kernel.times import seconds

Predicted = Callable[[int], float]
"""From a number of points to the seconds that a program is predicted to take."""
NOMINAL = (1, 256)
"""Batches for which a program is chosen that does not know its own."""
_ALIKE = 0.995
"""Share from which on two predicted times say nothing of which is the shorter."""


def predicted_seconds(form: Traced, *, pin: bool) -> Predicted:
    """The predicted seconds of a form at a batch, on which depends what is stored.

    Args:
      form: traced, its jaxpr a `Part`.
      pin: it is run with the pins that are needed (`veenv.engine.pins`).
    """
    part: Part = form.closed
    points = pins.stored_points(part, form.lifted) if pin else {}

    @functools.cache
    def features(dropped: frozenset[Any]) -> Features:
        return features_of(part, dropped)

    def at(batch: int) -> float:
        dropped = frozenset(v for v, least in points.items() if least > batch)
        return seconds(features(dropped), batch)

    return at


def nominal(predicted: Predicted) -> float:
    """The predicted seconds where the batch is not known: over small and large."""
    return float(prod(map(predicted, NOMINAL)) ** (1 / len(NOMINAL)))


def least(times: Sequence[float]) -> int:
    """The number of the first that is about the least."""
    return next(k for k, seconds in enumerate(times) if _ALIKE * seconds <= min(times))
