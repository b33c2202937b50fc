"""A training run on random functions from its settings to its exit code: `--task random`."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import TextIO

from tqdm import tqdm

from agents.cli import TrainArgs
from agents.files import new_folder, write_bytes
from agents.finding import is_finding
from agents.generalist import Generalist, GeneralProgress
from agents.metrics import Metrics
from agents.settings import CONFIG_NAME, to_toml
from agents.signals import until_signal
from agents.weights import architecture, load_weights, save_weights

SECONDS_BETWEEN_SAVES = 30.0


def run_pretraining(args: TrainArgs, out: TextIO, *, started: float | None = None) -> int:
    """Trains one policy on random functions and writes its weights to the run folder.

    Args:
      args: the settings.
      out: where to report.
      started: `time.monotonic()` from which the time limit counts; now by default.

    Returns:
      0.

    Raises:
      ValueError: an option does not go with random functions; nothing has been written then.
      OSError: the run folder cannot be written.
    """
    started = time.monotonic() if started is None else started
    refuse(args)

    def say(text: str) -> None:
        tqdm.write(text, file=out)
        out.flush()

    first = None if args.init_from is None else load_weights(args.init_from)
    agent = Generalist(args.ppo, args.random.family, args.random.functions, args.cost)
    state = agent.init(first)
    folder = new_folder(Path(args.out) / "random")
    ppo = dataclasses.replace(args.ppo, **architecture(state.network))
    args = dataclasses.replace(args, ppo=ppo)
    write_bytes(folder / CONFIG_NAME, to_toml(args).encode())
    settings = json.dumps(dataclasses.asdict(args), indent=1) + "\n"
    write_bytes(folder / "config.json", settings.encode())
    metrics = Metrics(folder)
    say(f"random functions: {args.random.family}")
    said = saved = float("-inf")
    with until_signal() as stop:
        for progress in agent.train(
            state=state, time_limit=args.seconds, started=started, should_stop=stop.is_set
        ):
            metrics.add(row_of(progress))
            state = progress.state
            if progress.unseen or progress.seconds - said >= 5.0:
                said = progress.seconds
                say(line_of(progress))
            if progress.seconds - saved >= SECONDS_BETWEEN_SAVES:
                saved = progress.seconds
                save_weights(folder / "weights.eqx", state.network)
    save_weights(folder / "weights.eqx", state.network)
    if stop.is_set():
        say(f"stopped by {stop.name}")
    say(f"\nrun folder: {folder}  ({time.monotonic() - started:.0f} s)")
    say(f"play with it: python scripts/evaluate.py --run {folder} --task random")
    return 0


def refuse(args: TrainArgs) -> None:
    """Checks that no option asks for what training on random functions does not do.

    Raises:
      ValueError: naming the option.
    """
    for given, option in (
        (args.resume is not None, "--resume (go on with --init-from RUN/weights.eqx)"),
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
