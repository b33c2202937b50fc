"""The command line of training: its options, and errors that take one line."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn, TypeVar

import tyro

from agents.config import PPOConfig
from veenv.graph import CostModel

Record = TypeVar("Record")
DEFAULT_TIME_LIMIT = 100.0
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclasses.dataclass(frozen=True)
class TrainArgs:
    """Trains PPO to find a cheap vertex-elimination order for a task, and proves the order right.

    Ctrl-C (or SIGTERM) ends the training early; the best order so far is validated and written
    all the same.

    Raises:
      ValueError: naming the first field that is out of range.
    """

    task: str
    """Task to train on (`python -c "import veenv; print(*veenv.tasks.list())"` lists them), or
    several, separated by commas, for one agent that plays all of them."""

    cost: CostModel = "multiplications"
    """What an elimination costs: `multiplications` is the literature's count, `executed` what the
    Jacobian really executes (edges of ±1 are free)."""

    time_limit: str | None = None
    """Wall-clock limit, compilation included: seconds, or a number with s, m or h such as `10m`;
    if it is left out, 100 seconds, or no limit where --steps is given."""

    out: str = "runs"
    """Folder of all runs; this one writes to OUT/TASK/TIME."""

    init_from: str | None = None
    """File of weights to start from (`weights.eqx` of a run); its network replaces the options of
    the network, such as --hidden."""

    ppo: Annotated[PPOConfig, tyro.conf.arg(name="")] = dataclasses.field(default_factory=PPOConfig)

    def __post_init__(self) -> None:
        """Checks what `PPOConfig` does not."""
        task_names(self.task)
        if self.time_limit is not None:
            parse_duration(self.time_limit)

    @property
    def seconds(self) -> float | None:
        """The time limit in seconds; None if only the number of steps limits the run."""
        if self.time_limit is not None:
            return parse_duration(self.time_limit)
        return DEFAULT_TIME_LIMIT if self.ppo.steps is None else None


def task_names(task: str) -> tuple[str, ...]:
    """The names in a list separated by commas.

    Raises:
      ValueError: there are none.
    """
    names = tuple(name for part in task.split(",") if (name := part.strip()))
    if not names:
        raise ValueError(f"task must name at least one task, got {task!r}")
    return names


def parse_duration(text: str) -> float:
    """Seconds of a duration such as ``90``, ``1.5m`` or ``2h``.

    Raises:
      ValueError: it is no positive duration.

    >>> parse_duration("10m")
    600.0
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if seconds <= 0:
        raise ValueError(
            f"time_limit must be a positive duration such as 90, 90s, 10m or 2h, got {text!r}"
        )
    return seconds


def parse(record: type[Record], args: Sequence[str] | None = None) -> Record:
    """Builds a record from command-line arguments; ``--help`` and errors end the program.

    Args:
      record: a dataclass.
      args: the arguments; `sys.argv`'s by default.
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(record, args=args)
    except ValueError as error:
        fail(str(error))
    except SystemExit as exit_:
        if exit_.code:
            fail(_one_line(said.getvalue()))
        raise


def fail(message: str) -> NoReturn:
    """Ends the program with exit code 2 and one line on stderr."""
    sys.stderr.write(f"error: {' '.join(message.split())}\n")
    raise SystemExit(2)


def _one_line(box: str) -> str:
    """What a tyro error says, without its frame and its advice."""
    box = re.sub(r"\x1b\[[0-9;]*m", "", box)
    lines = [line.strip(" │") for line in box.splitlines() if line.startswith("│")]
    rules = [i for i, line in enumerate(lines) if line and set(line) == {"─"}]
    text = " ".join(lines[: rules[0]] if rules else lines) or box
    text = re.sub(r"^Error parsing (?!-)[^:]*: ", "", text)
    text = re.sub(r"^Missing from [^:]*: (--\S+).*", r"missing option \1", text)
    near = re.findall(r"(--[\w-]+) ", " ".join(lines[rules[0] + 1 :])) if rules else []
    if text.startswith("Unrecognized") and near:
        text += f"; did you mean {' or '.join(dict.fromkeys(near[:3]))}?"
    return text + " (--help explains every option)"
