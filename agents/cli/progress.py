"""Progress on a terminal as a bar, elsewhere as plain lines now and then."""

from __future__ import annotations

from typing import Self, TextIO

from tqdm import tqdm

from veenv.agents.config.args import printable
from veenv.agents.training.learner import Learner
from veenv.agents.training.loop import TrainProgress


class ProgressDisplay:
    """Shows how far the training is and what it measures; a context manager."""

    def __init__(self, stream: TextIO, learner: Learner, interval: float = 5.0):
        """Nothing is shown until the first `show`."""
        self._stream, self._interval, self._describe = stream, interval, learner.describe
        self._bar: tqdm | None = None
        self._last = -interval

    def __enter__(self) -> Self:
        """Opens the bar if there is a terminal."""
        if self._stream.isatty():
            layout = "{percentage:3.0f}%|{bar}| {elapsed}{postfix}"
            self._bar = tqdm(total=1.0, file=self._stream, bar_format=layout, dynamic_ncols=True)
            self._bar.set_postfix_str("compiling")
        return self

    def __exit__(self, *error: object) -> None:
        """Closes the bar."""
        if self._bar is not None:
            self._bar.close()

    def show(self, progress: TrainProgress) -> None:
        """Updates the bar, or prints a line if the last one is long enough ago."""
        text = printable(f"steps {progress.steps:,}  {self._describe(progress.measured)}")
        due = progress.seconds - self._last >= self._interval or progress.fraction >= 1.0
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(progress.fraction - self._bar.n)
        elif due:
            self._last = progress.seconds
            head = f"{progress.fraction:4.0%}  {progress.seconds:6.1f} s"
            print(f"{head}  {text}", file=self._stream, flush=True)
