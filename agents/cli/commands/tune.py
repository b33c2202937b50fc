"""The fastest form of a Jacobian: ``veenv-tune --task NAME``, or ``scripts/tune.py``."""

from __future__ import annotations

import dataclasses

from tyro.conf import OmitArgPrefixes

import veenv
from veenv import tasks
from veenv.agents.cli.signals import raising_interrupts
from veenv.agents.config.args import fail, parse, say
from veenv.agents.config.function import FunctionConfig


@dataclasses.dataclass(frozen=True)
class TuneArgs:
    """Times the forms of a function's Jacobian and shows them, the fastest first.

    Example: veenv-tune --task RoeFlux_1d --batch 4096

    Raises:
      ValueError: unless exactly one of a task and a function is given.
    """

    task: str | None = None
    """Task to tune (`python -c "import veenv; print(*veenv.tasks.list_tasks())"`)."""

    own: OmitArgPrefixes[FunctionConfig] = dataclasses.field(default_factory=FunctionConfig)

    batch: int | None = None
    """Number of points to differentiate at at once; one alone by default."""

    budget: str = "20s"
    """Time, such as `20s` or `2m`, compiling included."""

    cache: bool = True
    """Take what was found before and remember what is found; `--no-cache` does neither."""

    def __post_init__(self) -> None:
        """Checks that there is one thing to tune."""
        self.own.check_one(self.task)


def main() -> int:
    """Parses the command line and tunes; the exit code (0 right, 2 bad input)."""
    args = parse(TuneArgs)
    try:
        task = args.own.read() or tasks.get(args.task or "")
        with raising_interrupts():
            jacobian = veenv.tune(
                task.fun,
                *task.example_args(),
                argnums=task.argnums,
                batch=args.batch,
                budget=args.budget,
                cache=args.cache,
            )
        say(f"{jacobian!r}\n\n{jacobian.table()}")
    except (ValueError, TypeError, OSError) as error:
        fail(str(error))
    return 0
