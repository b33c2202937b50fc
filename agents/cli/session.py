"""A training run from its settings to its exit code: what `scripts/train.py` does."""

from __future__ import annotations

import time
from typing import Any, TextIO

from tqdm import tqdm

from agents.cli.pretraining import run_pretraining
from agents.cli.progress import ProgressDisplay
from agents.cli.report import result_table, verdict
from agents.cli.signals import until_signal
from agents.cli.start import follow, open_run
from agents.config.args import TrainArgs
from agents.devices import connect, is_main
from agents.games import Game
from agents.run.checkpoints import Schedule
from agents.run.runs import RunFolder
from agents.train.best import BestOrders
from agents.train.polish import polish
from agents.train.training import DivergedError, train
from veenv import tasks
from veenv.measure.proof import prove


def run_training(args: TrainArgs, out: TextIO, *, started: float | None = None) -> int:
    """Trains, writes the run folder and reports.

    Args:
      args: the settings.
      out: where to report.
      started: `time.monotonic()` from which the time limit counts; now by default.

    Returns:
      0 if every order found is proved right and written, 1 otherwise.

    Raises:
      ValueError: as `make_task_game`, `load_weights`, `Checkpoints.restore` and
        `trackers.need`; nothing has been written then.
      OSError: the run folder cannot be made, or another process uses it.
    """
    started = time.monotonic() if started is None else started

    def say(text: str = "") -> None:
        tqdm.write(text, file=out)
        out.flush()

    if args.task == "random":
        return run_pretraining(args, out, started=started)
    connect(args.scale)
    if not is_main():
        follow(args)
        return 0
    run = open_run(args, say)
    game, best, folder = run.trainer.game, run.best, run.folder
    for line in header(game):
        say(line)
    state, progress, failed = run.state, None, False
    schedule = Schedule(args.checkpoint_seconds, args.checkpoint_updates)
    with until_signal() as stop, ProgressDisplay(out, best) as display, run.trackers:
        try:
            for progress in train(
                run.trainer,
                best,
                state=state,
                time_limit=args.seconds,
                started=started - run.seconds,
                should_stop=stop.is_set,
            ):
                stop.arm()
                row = folder.log(progress, best)
                run.trackers.log(row)
                display.show(progress)
                state = progress.state
                if schedule.is_due(progress.update):
                    folder.save_checkpoint(run.checkpoints, progress, best)
        except DivergedError as error:
            say(f"training has ended: {error}")
            failed = True
    if progress is not None:
        folder.save_checkpoint(run.checkpoints, progress, best)
    folder.write_weights(state.network)
    if stop.is_set():
        say(f"stopped by {stop.name}")
    right = [report(game, name, best, folder, say, args) for name in game.names]
    folder.draw()
    saved = folder.save_orders(best)
    if not saved:
        for name in game.names:
            say(f"order of {name}, not written: {list(best[name].ids)}")
    folder.close()
    say(f"\nrun folder: {folder.path}  ({time.monotonic() - started:.0f} s)")
    return 0 if all(right) and saved and not failed else 1


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


def report(
    game: Game, name: str, best: BestOrders, folder: RunFolder, say: Any, args: TrainArgs
) -> bool:
    """Shows the table of a graph and proves its best order; True if it is right."""
    index = game.names.index(name)
    record = best.get(name)
    say(f"\n{name}")
    if record is None:
        say(result_table(game.classical[index], None, cost=game.cost))
        say("no episode was played, so there is no order")
        return False
    agent = best.agent
    orders = {folder.order_path(name): record.ids}
    polished = None
    if args.polish is not None:
        ids = polish(game.graphs[index], record.ids, args.polish, game.cost, args.ppo.seed)
        found_by = f"{agent} and a local search of {args.polish} from its best order"
        orders[folder.write_polished(name, ids, found_by)] = ids
        polished = game.graphs[index].cost(ids, game.cost)
    say(result_table(game.classical[index], record.cost, agent, polished, game.cost))
    right = True
    for path, ids in orders.items():
        proof = prove(tasks.get(name), ids)
        for line in verdict(proof):
            say(line)
        say(f"order: {path}")
        right &= proof.passed
    return right
