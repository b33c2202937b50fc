"""A training run from its settings to its exit code: what `scripts/train.py` does."""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from agents.best import BestOrders
from agents.cli import TrainArgs, task_names
from agents.games import Game, make_game
from agents.ppo import Trainer
from agents.progress import ProgressDisplay
from agents.report import TOLERANCE, Validation, result_table, validate
from agents.runs import RunFolder
from agents.training import train
from agents.weights import load_weights
from veenv import tasks
from veenv.env.make import task_graph
from veenv.graph import CostModel


def make_task_game(task: str, cost: CostModel) -> Game:
    """The game of some tasks.

    Args:
      task: names of the tasks, separated by commas.
      cost: the cost model.

    Raises:
      ValueError: a task is unknown (the message names the nearest ones), named twice or has
        nothing to learn.
    """
    names = [tasks.get(name).name for name in task_names(task)]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"task names {name} twice")
    return make_game([(name, task_graph(name)) for name in names], cost)


def run_training(args: TrainArgs, out: TextIO, *, started: float | None = None) -> int:
    """Trains, writes the run folder and reports.

    Args:
      args: the settings.
      out: where to report.
      started: `time.monotonic()` from which the time limit counts; now by default.

    Returns:
      0 if every order found is proved right, 1 if one is not or there is none.

    Raises:
      ValueError: as `make_task_game` and `load_weights`; nothing has been written then.
      OSError: the run folder cannot be written.
    """
    started = time.monotonic() if started is None else started

    def say(text: str = "") -> None:
        print(text, file=out, flush=True)

    start = None if args.init_from is None else load_weights(args.init_from)
    trainer = Trainer(args.ppo, make_task_game(args.task, args.cost))
    state = trainer.init(start)
    game = trainer.game
    for line in header(game):
        say(line)
    best = BestOrders(game)
    folder = RunFolder(args.out, game)
    folder.write_config(dataclasses.asdict(args))
    with until_signal() as stop, ProgressDisplay(out, best) as display:
        for progress in train(
            trainer,
            best,
            state=state,
            time_limit=args.seconds,
            started=started,
            should_stop=stop.is_set,
        ):
            folder.log(progress, best)
            display.show(progress)
            state = progress.state
    folder.write_weights(state.network)
    if stop.is_set():
        say(f"stopped by {stop.name}")
    right = [report(game, name, best, folder, say) for name in game.names]
    folder.draw()
    say(f"\nrun folder: {folder.path}  ({time.monotonic() - started:.0f} s)")
    return 0 if all(right) else 1


def header(game: Game) -> list[str]:
    """Lines that say what is trained on."""
    lines = []
    for name, graph, classical in zip(game.names, game.graphs, game.classical, strict=True):
        counts = ", ".join(f"{order} {cost:,}" for order, cost in classical.items())
        lines.append(
            f"{name}: {graph.num_inputs} inputs, {graph.num_outputs} outputs, "
            f"{len(graph.eliminable)} vertices to eliminate, {len(graph.edges)} edges"
        )
        lines.append(f"{game.cost}: {counts}")
    return lines


def report(game: Game, name: str, best: BestOrders, folder: RunFolder, say: Any) -> bool:
    """Shows the table of a graph and proves its best order; True if it is right."""
    classical = game.classical[game.names.index(name)]
    record = best.get(name)
    say(f"\n{name}")
    say(result_table(classical, None if record is None else record.cost))
    if record is None:
        say("no episode was played, so there is no order")
        return False
    checked = validate(tasks.get(name), record.ids)
    say(verdict(checked))
    say(f"order: {folder.order_path(name)}")
    return checked.passed


def verdict(checked: Validation) -> str:
    """One line on how the order's Jacobian compares."""
    return (
        f"veenv.jacve against jax.jacrev, float64, {checked.points} random points, "
        f"{checked.entries} entries: largest relative error {checked.error:.1e} "
        f"({'right' if checked.passed else f'WRONG: more than {TOLERANCE:.0e}'})"
    )


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
