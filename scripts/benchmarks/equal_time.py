"""PPO and AlphaZero after equal time: ``python scripts/benchmark.py equal-time --help``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from tyro.conf import OmitArgPrefixes, arg

from agents.config.args import fail, parse, parse_duration, task_names
from agents.config.checks import check_integers
from agents.config.ppo import PPOConfig
from agents.config.search import SearchConfig
from agents.ppo.trainer import Trainer
from agents.training.curriculum import FixedTasks
from agents.training.loop import train
from agents.training.played import AGENTS, Played, make_trainer
from scripts.benchmarks.ppo import PUBLISHED
from scripts.benchmarks.result_file import Table, write_result

COLUMNS = ("task", "published", "agent", "best", "median", "worst", "steps of a run")


@dataclasses.dataclass(frozen=True)
class EqualTimeArgs:
    """Trains both agents on tasks with several seeds, every run for the same time.

    The time of a run leaves out compiling, which the seeds share.

    Raises:
      ValueError: naming the first field that is out of range.
    """

    task: str = ",".join(PUBLISHED)
    """Tasks, separated by commas."""

    time_limit: str = "30s"
    """Time of every run."""

    seeds: int = 3
    """Number of seeds, from 0 on."""

    out: str | None = None
    """File to write the result to, as JSON, after every row."""

    ppo: Annotated[
        OmitArgPrefixes[PPOConfig], arg(help="Of both agents, as far as they have them.")
    ] = dataclasses.field(default_factory=PPOConfig)

    search: Annotated[OmitArgPrefixes[SearchConfig], arg(help="Of AlphaZero.")] = dataclasses.field(
        default_factory=SearchConfig
    )

    def __post_init__(self) -> None:
        """Checks number and time."""
        check_integers(self, "seeds")
        parse_duration(self.time_limit)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line, trains, prints the table and writes it."""
    args = parse(EqualTimeArgs, arguments)
    table = Table(COLUMNS)
    table.begin()
    try:
        for name in task_names(args.task):
            played = Played.named(name).tasks
            published = PUBLISHED.get(name)
            for agent, written in AGENTS.items():
                search = args.search if agent == "alphazero" else SearchConfig()
                trainer = make_trainer(agent, args.ppo, search, played)
                trainer.step(trainer.init(), 0.0)  # compiles
                runs = [run(trainer, seed, args) for seed in range(args.seeds)]
                costs, steps = zip(*runs, strict=True)
                ends = min(costs), np.median(costs), max(costs)
                cells = (f"{x:,.0f}" for x in (*ends, np.mean(steps)))
                table.add(name, "-" if published is None else f"{published:,}", written, *cells)
                if args.out is not None:
                    write_result(args.out, table)
    except ValueError as error:
        fail(str(error))


def run(trainer: Trainer, seed: int, args: EqualTimeArgs) -> tuple[int, int]:
    """The least cost that a run of a compiled trainer finds, and the environment steps it plays."""
    config = dataclasses.replace(trainer.config, seed=seed)
    state = Trainer(config, trainer.tasks, agent=trainer.agent).init()
    curriculum, steps = FixedTasks(trainer), 0
    for progress in train(curriculum, state=state, time_limit=parse_duration(args.time_limit)):
        steps = progress.steps
    return curriculum.best.cost(trainer.tasks.names[0]), steps
