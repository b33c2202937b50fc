"""The command line of training: its options, and errors that take one line."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

import tyro
from tyro.conf import OmitArgPrefixes

from veenv.agents.config.checks import check_integers, check_positive
from veenv.agents.config.function import FunctionConfig
from veenv.agents.config.help import help_text
from veenv.agents.config.ppo import PPOConfig
from veenv.agents.config.search import SearchConfig
from veenv.agents.config.settings import expand
from veenv.agents.devices import ScaleConfig
from veenv.graph.graph import CostModel
from veenv.tasks.user import find

Record = TypeVar("Record")
DEFAULT_TIME_LIMIT = 100.0
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclasses.dataclass(frozen=True)
class TrainArgs:
    """Trains an agent to find a cheap elimination order for a task, and proves the order right.

    Example: veenv-train --task RoeFlux_1d --time-limit 2m

    Ctrl-C ends the training early; the best order so far is validated and written all the same.
    Before the first train step is done it ends the program with exit code 130. SIGTERM writes a
    checkpoint and ends the program with exit code 75.

    Raises:
      ValueError: naming the first field that is out of range.
    """

    task: str | None = None
    """Task to train on (`python -c "import veenv; print(*veenv.tasks.list_tasks())"` lists
    them), or several, separated by commas, or a named set, for one agent that plays all of them."""
    agent: Literal["ppo", "alphazero"] = "ppo"
    """`ppo`, or Gumbel AlphaZero, which searches before every move (needs `pip install mctx`)."""
    cost: CostModel = "multiplications"
    """What an elimination costs: `multiplications` is the literature's count, `executed` what the
    Jacobian really multiplies (edges of ±1 are free), `operations` adds its additions."""
    time_limit: str | None = None
    """Wall-clock limit of the training, compilation included: seconds, or a number with s, m or h
    such as `10m`; if it is left out, 100 seconds, or no limit where --steps is given. Proof and
    timing follow."""

    own: OmitArgPrefixes[FunctionConfig] = dataclasses.field(default_factory=FunctionConfig)

    out: str = "runs"
    """Folder of all runs, or an address such as `gs://bucket/runs` (accelerators.html); this one
    writes to OUT/TASK/TIME."""
    folder: str | None = None
    """Run folder, in place of OUT/TASK/TIME. If it has a run already, that run goes on, as with
    --resume, so a scheduler can repeat the command."""
    report: bool = False
    """Write a page that shows the run, `report.html`, to the run folder, too."""
    tensorboard: bool = False
    """Write TensorBoard's event files to the run folder, too (needs `pip install tensorboardX`)."""
    wandb: bool = False
    """Log to Weights & Biases, too (needs `pip install wandb`; WANDB_MODE=offline without
    network)."""
    polish: str | None = None
    """Time (`10s`) or number of evaluations of a local search that starts from the best order; what
    it finds is reported and written next to it, as `order-polished.json`."""
    timing: float = 10.0
    """Seconds, about, in which the orders are timed in the end, as one kernel and as XLA, beside
    reverse and JAX's modes; 0 leaves it out."""
    config: str | None = None
    """File of options (TOML, such as `config.toml` of a run), each under its name without dashes
    in front; options on the command line override it."""
    preset: Literal["cpu", "gpu", "tpu", "auto"] | None = None
    """Options that suit a device (training.html); `auto`: the device that JAX finds. Others
    override."""
    resume: str | None = None
    """Run folder to go on in, from its last checkpoint and with its options; others override."""
    init_from: str | None = None
    """Run folder or file of weights (`best.eqx` of a run) to start from; its network replaces the
    options of the network, such as --hidden."""
    network: str | None = None
    """Network of your own, as MODULE:NAME (networks.html), in place of the options of the
    network."""
    loss: str | None = None
    """Loss of your own, as MODULE:NAME (networks.html), in place of PPO's."""
    checkpoint_seconds: float = 30.0
    """Seconds between checkpoints."""
    checkpoint_updates: int | None = None
    """Train steps between checkpoints, instead of --checkpoint-seconds."""
    keep_checkpoints: int = 3
    """How many of the newest checkpoints to keep; the best one is kept, too."""

    ppo: OmitArgPrefixes[PPOConfig] = dataclasses.field(default_factory=PPOConfig)
    search: OmitArgPrefixes[SearchConfig] = dataclasses.field(default_factory=SearchConfig)
    scale: OmitArgPrefixes[ScaleConfig] = dataclasses.field(default_factory=ScaleConfig)

    def __post_init__(self) -> None:
        """Checks what the records in it do not."""
        self.own.check_one(self.task)
        if self.task is not None:
            task_names(self.task)
        place = self.folder or self.resume or self.out
        if (self.tensorboard or self.wandb) and "://" in place:
            what = "tensorboard" if self.tensorboard else "wandb"
            raise ValueError(f"{what} writes to folders of the file system alone, got {place}")
        if None not in (self.folder, self.resume) and self.folder != self.resume:
            raise ValueError("folder and resume both name a run folder; give one of them")
        if self.preset == "auto" and self.scale.several:
            raise ValueError("preset auto is for one process; name cpu, gpu or tpu")
        if self.time_limit is not None:
            parse_duration(self.time_limit)
        if self.polish is not None:
            from veenv.search import Budget  # numba takes a second to import

            Budget.parse(self.polish)
        check_positive(self, "checkpoint_seconds")
        if not self.timing >= 0:
            raise ValueError(f"timing must not be negative, got {self.timing}")
        check_integers(self, "checkpoint_updates keep_checkpoints")

    def read(self, option: str) -> Any:
        """The network or the loss that an option names; None where there is none.

        Raises:
          ValueError: as `veenv.tasks.user.find`.
        """
        path = getattr(self, option)
        return None if path is None else find(path, f"--{option}")[0]

    @property
    def seconds(self) -> float | None:
        """The time limit in seconds; None if only the number of steps limits the run."""
        if self.time_limit is not None:
            return parse_duration(self.time_limit)
        return DEFAULT_TIME_LIMIT if self.ppo.steps is None else None


def parse_training(args: Sequence[str] | None = None) -> TrainArgs:
    """The settings of a training run; ``--help`` and errors end the program."""
    try:
        expanded = expand(TrainArgs, sys.argv[1:] if args is None else args)
    except (ValueError, OSError) as error:
        fail(str(error))
    return parse(TrainArgs, expanded)


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
    """Builds a record from command-line arguments; ``--help`` and errors end the program."""
    arguments = sys.argv[1:] if args is None else args
    if dataclasses.is_dataclass(record) and {"-h", "--help"} & {*arguments}:
        command = Path(sys.argv[0]).stem.removeprefix("veenv-")
        say(help_text(record, f"veenv-{command}", called(command)))
        raise SystemExit(0)
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):
            return tyro.cli(record, prog=Path(sys.argv[0]).name, args=args)
    except ValueError as error:
        fail(str(error))
    except SystemExit as exit_:
        if exit_.code:
            fail(_one_line(stderr.getvalue()))
        raise


def called(command: str) -> str:
    """Returns how a command is called here: ``veenv-NAME``, or a script of a checkout."""
    program = Path(sys.argv[0])
    script = program.parent.name == "scripts" and program.suffix == ".py"
    return f"python {program.with_stem(command)}" if script else f"veenv-{command}"


def fail(message: str) -> NoReturn:
    """Ends the program with exit code 2 and one line on stderr."""
    sys.stderr.write(printable(f"error: {' '.join(message.split())}") + "\n")
    raise SystemExit(2)


def say(text: str = "") -> None:
    """Prints text, which may be of files, on stdout."""
    sys.stdout.write(printable(text) + "\n")
    sys.stdout.flush()


def printable(text: str) -> str:
    r"""Text without what a terminal would obey: escapes for control characters, lines as they are.

    >>> printable("a\x1b[31m name\r")
    'a\\x1b[31m name\\r'
    """
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )


def _one_line(box: str) -> str:
    """Returns what a tyro error says, without its heading, frame (lines or -) and advice."""
    box = re.sub(r"\x1b\[[0-9;]*m", "", box)
    lines = [line.strip(" │") for line in box.splitlines() if not line.startswith(("╭", "╰"))]
    rules = [i for i, line in enumerate(lines) if line and set(line) <= {"─", "-"}]
    if "╭" not in box and rules:
        lines, rules = lines[rules[0] + 1 :], [i - rules[0] - 1 for i in rules[1:]]
    text = " ".join(lines[: rules[0]] if rules else lines).strip() or box
    wrong = r"no type matching ({None}\|)?(.*?) could .*? \[(.*?)\].*"
    text = re.sub(wrong, r"expected \2, got \3", text)
    text = re.sub(r"^Error parsing (?!-)[^:]*: ", "", text)
    text = re.sub(r"^Missing from [^:]*: +(--\S+).*", r"missing option \1", text)
    advice = " ".join(lines[rules[0] + 1 : rules[1] if rules[1:] else None]) if rules else ""
    near = re.findall(r"(--(?!help)[a-z][\w-]*) ", advice)
    if text.startswith("Unrecognized") and near:
        text += f"; did you mean {' or '.join(dict.fromkeys(near[:3]))}?"
    elif unnamed := re.match(r"Unrecognized options: ([^-\s][^,\s]*)", text):
        text = f"unexpected {unnamed[1]!r}: every value follows the name of its option"
    return text + " (--help explains every option)"
