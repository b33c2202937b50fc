"""A training run on random functions from its settings to its exit code: `--task random`."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

from agents.cli.signals import until_signal
from agents.config.args import TrainArgs
from agents.files import new_folder
from agents.nn.weights import architecture, load_weights
from agents.ppo.exploration import is_finding
from agents.ppo.ppo import TrainState
from agents.run.checkpoints import Checkpoints, Schedule
from agents.run.folder import Folder
from agents.train.generalist import Generalist, GeneralProgress


def run_pretraining(args: TrainArgs, out: TextIO, *, started: float | None = None) -> int:
    """Trains one policy on random functions and writes its weights to the run folder.

    Args:
      args: the settings.
      out: where to report.
      started: `time.monotonic()` from which the time limit counts; now by default.

    Returns:
      0.

    Raises:
      ValueError: an option does not go with random functions, or as `load_weights` and
        `Checkpoints.restore`; nothing has been written then.
      OSError: the run folder cannot be made or read, or another process uses it.
    """
    started = time.monotonic() if started is None else started
    refuse(args)

    def say(text: str) -> None:
        tqdm.write(text, file=out)
        out.flush()

    agent, state, before, folder, checkpoints = open_pretraining(args, say)
    say(f"random functions: {args.random.family}")
    said, schedule = float("-inf"), Schedule(args.checkpoint_seconds, args.checkpoint_updates)
    progress = None
    with until_signal() as stop:
        for progress in agent.train(
            state=state,
            steps=before["steps"],
            time_limit=args.seconds,
            started=started - before["seconds"],
            should_stop=stop.is_set,
        ):
            stop.arm()
            folder.add_row(row_of(progress))
            state = progress.state
            if progress.unseen or progress.seconds - said >= 5.0:
                said = progress.seconds
                say(line_of(progress))
            if schedule.is_due(progress.update):
                save(folder, checkpoints, progress)
    if progress is not None:
        save(folder, checkpoints, progress)
    folder.write_weights(state.network)
    if stop.is_set():
        say(f"stopped by {stop.name}")
    folder.close()
    say(f"\nrun folder: {folder.path}  ({time.monotonic() - started:.0f} s)")
    say(f"play with it: python scripts/evaluate.py --run {folder.path} --task random")
    return 0


def open_pretraining(
    args: TrainArgs, say: Callable[[str], None]
) -> tuple[Generalist, TrainState, dict[str, Any], Folder, Checkpoints]:
    """Starts a run in a folder of its own, or goes on with one.

    Args:
      args: the settings.
      say: told of what is worth a line.

    Returns:
      The agent, where it starts, the steps and seconds that led there, folder and checkpoints.

    Raises:
      ValueError: as `load_weights` and `Checkpoints.restore`; nothing has been written then.
      OSError: the run folder cannot be made or read, or another process uses it.
    """

    def warn(text: str) -> None:
        say(f"warning: {text}")

    resumed = None if args.resume is None else Path(args.resume)
    taken_up = resumed is not None and Checkpoints(resumed / "checkpoints", {}).numbers()
    first = None if args.init_from is None or taken_up else load_weights(args.init_from)
    agent = Generalist(args.ppo, args.random.family, args.random.functions, args.cost)
    state, before = agent.init(first), {"seconds": 0.0, "steps": 0}
    folder = Folder(resumed or new_folder(Path(args.out) / "random"), warn)
    checkpoints = Checkpoints(
        folder.path / "checkpoints", identity(args, state), keep=args.keep_checkpoints, warn=warn
    )
    try:
        if resumed is not None:
            restored = checkpoints.restore(state)
            checkpoints.delete_after(-1 if restored is None else restored.number)
            folder.drop_after(0 if restored is None else restored.run["num_rows"])
            if restored is not None:
                state, before = restored.state, restored.run
            say(f"going on in {folder.path} from train step {int(state.num_updates)}")
        ppo = dataclasses.replace(args.ppo, **architecture(state.network))
        folder.write_config(dataclasses.replace(args, ppo=ppo), {})
    except BaseException:
        folder.close()
        raise
    return agent, state, before, folder, checkpoints


def save(folder: Folder, checkpoints: Checkpoints, progress: GeneralProgress) -> None:
    """Writes a checkpoint; the best one is that with the lowest mean of the ratios."""
    run = {"seconds": progress.seconds, "steps": progress.steps}
    score = math.fsum(progress.ratio.values()) / len(progress.ratio)
    folder.write_checkpoint(checkpoints, progress.update, progress.state, run, score)


def identity(args: TrainArgs, state: TrainState) -> dict[str, object]:
    """What a checkpoint must agree in with the run that goes on from it."""
    return {
        "agent": args.agent,
        "task": ["random"],
        "cost model": args.cost,
        "network": architecture(state.network),
        "family": dataclasses.asdict(args.random),
    }


def refuse(args: TrainArgs) -> None:
    """Checks that no option asks for what training on random functions does not do.

    Raises:
      ValueError: naming the option.
    """
    for given, option in (
        (args.agent != "ppo", f"--agent {args.agent}"),
        (args.scale.several, "several processes"),
        (args.polish is not None, "--polish"),
        (args.tensorboard, "--tensorboard"),
        (is_finding(args.ppo), "--self-imitation, --restarts or --temperatures"),
        (args.wandb, "--wandb"),
    ):
        if given:
            raise ValueError(f"--task random does not go with {option}")


def row_of(progress: GeneralProgress) -> dict[str, object]:
    """The row of the metrics."""
    row = {f.name: getattr(progress, f.name) for f in dataclasses.fields(progress)}
    del row["state"]
    return row


def line_of(progress: GeneralProgress) -> str:
    """A line for people."""
    ratios = ", ".join(f"{name} {ratio:.3f}" for name, ratio in progress.ratio.items())
    new = " (unseen functions)" if progress.unseen else ""
    return (
        f"{progress.fraction:4.0%}  {progress.seconds:6.1f} s  steps {progress.steps:,}  "
        f"mean cost / Markowitz: {ratios}{new}"
    )
