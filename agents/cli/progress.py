"""Progress on a terminal as a bar, elsewhere as plain lines now and then."""

from __future__ import annotations

from types import TracebackType
from typing import Self, TextIO

from tqdm import tqdm

from agents.train.best import BestOrders
from agents.train.training import Progress


class ProgressDisplay:
    """Shows how far the training is and the best counts so far; a context manager."""

    def __init__(self, stream: TextIO, best: BestOrders, interval: float = 5.0):
        """Nothing is shown until the first `show`.

        Args:
          stream: where to write; a bar if it is a terminal.
          best: the orders found.
          interval: seconds between plain lines.
        """
        self._stream, self._best, self._interval = stream, best, interval
        self._bar: tqdm | None = None
        self._last = -interval

    def __enter__(self) -> Self:
        """Opens the bar if there is a terminal."""
        if self._stream.isatty():
            layout = "{percentage:3.0f}%|{bar}| {elapsed}{postfix}"
            self._bar = tqdm(total=1.0, file=self._stream, bar_format=layout, dynamic_ncols=True)
            self._bar.set_postfix_str("compiling")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes the bar."""
        if self._bar is not None:
            self._bar.close()

    def show(self, progress: Progress) -> None:
        """Updates the bar, or prints a line if the last one is long enough ago."""
        if self._bar is not None:
            self._bar.set_postfix_str(self._text(progress), refresh=False)
            self._bar.update(progress.fraction - self._bar.n)
        elif progress.seconds - self._last >= self._interval or progress.fraction >= 1.0:
            self._last = progress.seconds
            head = f"{progress.fraction:4.0%}  {progress.seconds:6.1f} s"
            print(f"{head}  {self._text(progress)}", file=self._stream, flush=True)

    def _text(self, progress: Progress) -> str:
        best = ", ".join(f"{n} {self._best[n].cost:,}" for n in progress.min_cost)
        mean = ", ".join(f"{cost:,.1f}" for cost in progress.mean_cost.values())
        if len(progress.min_cost) == 1:
            best = best.split(" ", 1)[1]
        return f"steps {progress.steps:,}  best {best}  mean {mean}"
