"""The fastest form of a Jacobian, by measuring: ``python scripts/tune.py --function mod:f``."""

from __future__ import annotations

from agents.cli.signals import exit_on_interrupt, raising_interrupts, run_script

exit_on_interrupt(__name__)

import dataclasses
from typing import Annotated, Any

import tyro

import veenv
from agents.config.args import fail, parse

try:
    from scripts.search import find_function, read_point
except ModuleNotFoundError:
    from search import find_function, read_point


@dataclasses.dataclass(frozen=True)
class TuneArgs:
    """Times the forms of a function's Jacobian and shows them, the fastest first.

    Ctrl-C ends it.

    Raises:
      ValueError: unless exactly one of a task and a function is given.
    """

    task: str | None = None
    """Task to tune (`python -c "import veenv; print(*veenv.tasks.list())"`)."""

    function: str | None = None
    """Function to tune, as MODULE:NAME; it runs at --args."""

    args: str | None = None
    """Arguments of the function as a Python tuple, such as `(1.0, [2.0, 3.0])`."""

    argnums: Annotated[tuple[int, ...], tyro.conf.UseAppendAction] = ()
    """Argument to differentiate by, once for each; all by default."""

    batch: int | None = None
    """Number of points to differentiate at at once; one alone by default."""

    budget: str = "20s"
    """Time, such as `20s` or `2m`, compiling included."""

    cache: bool = True
    """Whether to take what was found before, and remember what is found."""

    out: str | None = None
    """File for what was found, such as `tuned.json`."""

    def __post_init__(self) -> None:
        """Checks that there is one thing to tune."""
        if (self.task is None) == (self.function is None):
            raise ValueError("give either --task NAME or --function MODULE:NAME")
        if self.function is not None and self.args is None:
            raise ValueError("--function needs --args, a Python tuple such as '(1.0, [2.0, 3.0])'")
        if self.task is not None and (self.args is not None or self.argnums):
            raise ValueError("--args and --argnums belong to --function")


def main() -> int:
    """Parses the command line and tunes; the exit code (0 right, 2 bad input)."""
    args = parse(TuneArgs)
    try:
        fun, point, argnums = what(args)
        with raising_interrupts():
            jacobian = veenv.tune(
                fun,
                *point,
                argnums=argnums,
                batch=args.batch,
                budget=args.budget,
                cache=args.cache,
            )
        print(f"{jacobian!r}\n\n{jacobian.table()}")
        if args.out is not None:
            jacobian.save(args.out)
            print(f"\nwritten to {args.out}")
    except (ValueError, TypeError, OSError) as error:
        fail(str(error))
    return 0


def what(args: TuneArgs) -> tuple[Any, tuple[Any, ...], tuple[int, ...]]:
    """Function, point and argnums that the arguments ask for.

    Raises:
      ValueError: if there is no such task or function.
    """
    if args.task is not None:
        task = veenv.tasks.get(args.task)
        wanted = (task.argnums,) if isinstance(task.argnums, int) else tuple(task.argnums)
        return task.fun, tuple(task.example_args()), wanted
    fun, point = find_function(args.function or ""), read_point(args.args or "")
    return fun, point, args.argnums or tuple(range(len(point)))


if __name__ == "__main__":
    run_script(main)
