"""Signals that ask a training run to end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Stop:
    """Whether a signal asked for the end, and which."""

    name = ""

    def is_set(self) -> bool:
        """Whether one did."""
        return bool(self.name)


@contextmanager
def until_signal() -> Iterator[Stop]:
    """Turns the first SIGINT or SIGTERM into a request to stop; a second one acts as ever."""
    stop = Stop()
    previous: dict[signal.Signals, Any] = {}

    def on_signal(number: int, frame: Any) -> None:
        del frame
        stop.name = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
        for known, handler in previous.items():
            signal.signal(known, handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        previous[number] = signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
