"""A training run from its settings to its exit code: what `scripts/train.py` does."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import TextIO

from tqdm import tqdm

from veenv import Graph, Order
from veenv.agents.cli.progress import ProgressDisplay
from veenv.agents.cli.report import optimality, result_table, verdict
from veenv.agents.cli.signals import PREEMPTED, until_signal
from veenv.agents.cli.start import Session, follow, open_run
from veenv.agents.config.args import TrainArgs, called, printable
from veenv.agents.devices import any_process, connect, is_main
from veenv.agents.run.checkpoints import Schedule
from veenv.agents.run.folder import RunFolder
from veenv.agents.training.best import BestOrders
from veenv.agents.training.inputs import AGENTS
from veenv.agents.training.loop import CompilingError, DivergedError, Limits, train
from veenv.env import TaskDistribution
from veenv.measure.comparison import compare
from veenv.measure.proof import prove
from veenv.tasks import Task


def run_training(args: TrainArgs, out: TextIO, *, started: float | None = None) -> int:
    """Trains, writes the run folder and reports.

    Args:
      args: the settings.
      out: where to report.
      started: `time.monotonic()` from which the time limit counts; now by default.

    Returns:
      0 if every order found is proved right and written, 1 otherwise; `PREEMPTED` if SIGTERM has
      ended it before that.

    Raises:
      ValueError: as `open_run`; nothing has been written then.
      OSError: the run folder cannot be made, or another process uses it.
    """
    started = time.monotonic() if started is None else started

    def write_line(text: str = "") -> None:
        tqdm.write(printable(text), file=out)
        out.flush()

    connect(args.scale)
    if not is_main():
        return follow(args)
    run = open_run(args, write_line)
    folder, best = run.folder, run.learner.best
    for line in header(best.tasks):
        write_line(line)
    code = play(run, args, out, write_line, started)
    if code == PREEMPTED:
        folder.close()
        write_line(f"go on with it: {called('train')} --resume {folder.path}")
        return PREEMPTED
    reports = [report(best, task, folder, args, write_line) for task in run.functions.values()]
    right = code == 0 and all(reports)
    folder.draw()
    if not folder.save_orders():
        right = False
        for name in best.tasks.names:
            write_line(f"order of {name}, not written: {list(best[name].ids)}")
    folder.close()
    if args.report:
        right &= write_pages(folder.path, args, run.functions, write_line)
    write_line(f"\nrun folder: {folder.path}  ({time.monotonic() - started:.0f} s)")
    chosen = best.tasks.chosen
    if args.network is None and chosen is not None:
        write_line(f"play with it: {called('evaluate')} --run {folder.path} --set {chosen.name}")
    return 0 if right else 1


def write_pages(
    path: Path,
    args: TrainArgs,
    functions: Mapping[str, Task],
    write_line: Callable[[str], None],
) -> bool:
    """Writes the report of each task of a run folder; True if all are written."""
    from veenv.measure.report import page_path, read_subjects, write_report

    [user_function] = functions.values() if args.own.function else [None]
    try:
        subjects = read_subjects(path, task=user_function)
        for subject in subjects:
            page = page_path(path, subject.task.name, len(subjects) > 1)
            write_report(page, dataclasses.replace(subject, imports=args.own.imports))
            write_line(f"report: {page}")
    except (ValueError, OSError) as error:
        write_line(f"warning: no report: {error}")
        return False
    return True


def play(
    run: Session, args: TrainArgs, out: TextIO, write_line: Callable[[str], None], started: float
) -> int:
    """Trains until the budget is spent or a signal comes.

    Metrics, orders and checkpoints are written on the way, weights and a last checkpoint at the
    end.

    Returns:
      0, 1 if training has diverged, or `PREEMPTED`.
    """
    folder, learner, state = run.folder, run.learner, run.state
    budget = Limits(args.ppo.steps, args.seconds, started - run.seconds)
    spent = run.steps > 0 and budget.spent(run.steps, time.monotonic() - started + run.seconds)
    write_line(
        f"this run has used its {spent}: give a larger --time-limit or --steps"
        if spent
        else "compiling the train step …"
    )
    progress, code = None, 0
    schedule = Schedule(args.checkpoint_seconds, args.checkpoint_updates)
    with until_signal() as stop, ProgressDisplay(out, learner) as display, run.trackers:
        try:
            for progress in train(
                learner,
                state=state,
                steps=run.steps,
                time_limit=args.seconds,
                started=started - run.seconds,
                should_stop=stop.is_set,
                patient=args.scale.several or args.time_limit is None,
            ):
                stop.arm()
                folder.log(progress.row)
                run.trackers.log(progress.row)
                display.show(progress)
                state = progress.state
                if schedule.is_due(progress.update):
                    folder.checkpoint(progress, learner)
        except DivergedError as error:
            write_line(f"training has ended: {error}")
            code = 1
        except CompilingError as error:
            write_line(str(error))
            learner.settle()
        code = PREEMPTED if any_process(stop.preempted) else code
    if progress is not None:
        folder.checkpoint(progress, learner)
    if progress is not None or not run.steps:  # what a run has written that is used up stays
        folder.write_weights(state.network)
    if stop.is_set() or code == PREEMPTED:
        write_line(f"stopped by {stop.name or 'SIGTERM'}")
    return code


def header(played: TaskDistribution) -> list[str]:
    """Lines that say what is trained on."""
    lines = []
    for name, graph, classical in zip(played.names, played.graphs, played.classical, strict=True):
        counts = ", ".join(f"{order} {cost:,}" for order, cost in classical.items())
        lines.append(
            f"{name}: {graph.num_inputs} inputs, {graph.num_outputs} outputs, "
            f"{len(graph.eliminable)} vertices to eliminate, {len(graph.edges)} edges"
        )
        lines.append(f"{played.env.cost}: {counts}")
    return lines


def report(
    best: BestOrders,
    task: Task,
    folder: RunFolder,
    args: TrainArgs,
    write_line: Callable[[str], None],
) -> bool:
    """Shows the table of a task and proves its best order; True if it is right."""
    name = task.name
    agent, index = AGENTS[args.agent], best.tasks.names.index(name)
    classical = best.tasks.classical[index]
    write_line(f"\n{name}")
    if best.get(name) is None:
        write_line(result_table(classical, None, cost=args.cost))
        write_line("no episode was played, so there is no order")
        return False
    orders, polished = {folder.order_path(name): best[name]}, None
    if args.polish is not None:
        order = polish(best[name], best.tasks.graphs[index], args)
        orders[folder.write_beside(name, "polished", order)] = order
        polished = order.counts[args.cost]
    learned = best[name].steps is not None
    cost = best.cost(name) if learned else None
    write_line(result_table(classical, cost, agent, polished, args.cost))
    graph, least = best.tasks.graphs[index], min(best.cost(name), polished or inf)
    write_line(optimality(graph, int(least), args.cost))
    if not learned:
        write_line(f"training found no cheaper order than {best[name].found_by or 'the known one'}")
    beside = folder.write_classical(name)
    if beside is not None:
        write_line(f"the cheapest classical order: {beside}")
    right = True
    for path, order in orders.items():
        proof = prove(task, order.ids)
        for line in verdict(proof):
            write_line(line)
        write_line(f"order: {path}")
        right &= proof.passed
    limit = min(args.timing, (args.seconds or inf) / 4)  # of a short run not most of its time
    if limit > 0 and (learned or polished):
        last = list(orders.values())[-1].ids
        write_line(compare(task, last, limit=limit).text())
    return right


def polish(order: Order, graph: Graph, args: TrainArgs) -> Order:
    """Anneals from a task's best order, and from no other."""
    from veenv.search import search  # numba takes a second to import

    budget, seed = args.polish, args.ppo.seed
    assert budget is not None
    result = search(graph, "anneal", cost=args.cost, budget=budget, seed=seed, start=order.ids)
    found_by = f"{AGENTS[args.agent]} and a local search of {budget} from its best order"
    return Order.from_graph(graph, result.order, order.name, found_by)
