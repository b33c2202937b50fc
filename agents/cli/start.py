"""How a training run starts: anew, or where an earlier one has left off."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path

from agents.cli.signals import until_signal
from agents.config.args import TrainArgs, task_names
from agents.devices import share
from agents.games import Game, make_game
from agents.nn.weights import architecture, load_weights
from agents.ppo.ppo import Trainer, TrainState
from agents.run.checkpoints import Checkpoints
from agents.run.runs import RunFolder, identity
from agents.run.trackers import TensorBoard, Tracker, Trackers, WeightsAndBiases, need
from agents.train.best import BestOrders
from agents.train.training import DivergedError, train
from veenv import tasks
from veenv.env.factory import task_graph
from veenv.graph.graph import CostModel

AGENTS = {"ppo": "PPO", "alphazero": "AlphaZero"}
"""Names of the agents, as they are written."""


@dataclasses.dataclass(frozen=True)
class Run:
    """Everything that a run works with.

    Attributes:
      trainer: the agent on its game.
      state: where training starts.
      seconds: that were spent before, in a run that is taken up.
      best: the best orders so far.
      folder: where results go.
      checkpoints: those of this run.
      trackers: TensorBoard and the like.
    """

    trainer: Trainer
    state: TrainState
    seconds: float
    best: BestOrders
    folder: RunFolder
    checkpoints: Checkpoints
    trackers: Trackers


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


def make_trainer(args: TrainArgs, game: Game) -> Trainer:
    """The agent that the settings ask for, on a game.

    Raises:
      ValueError: as `Trainer` and `agents.alphazero.make_trainer`, or mctx is not installed.
    """
    if args.agent == "ppo":
        return Trainer(args.ppo, game, args.scale.devices)
    try:
        from agents.alphazero import alphazero
    except ImportError as error:
        raise ValueError(
            f"--agent alphazero needs mctx ({error}); pip install 'veenv[mctx]'"
        ) from None
    return alphazero.make_trainer(args.ppo, args.search, game, args.scale.devices)


def follow(args: TrainArgs) -> None:
    """What every process but the first does: the same train steps, and nothing else.

    Raises:
      ValueError: as `open_run`.
      OSError: the weights to start from cannot be read.
    """
    game = make_task_game(args.task, args.cost)
    trainer = make_trainer(args, game)
    # Where a run is taken up, the first process has its parameters, and the options its network.
    again = args.resume is not None
    first = None if args.init_from is None or again else load_weights(args.init_from)
    with until_signal() as stop, contextlib.suppress(DivergedError):
        for _ in train(
            trainer,
            BestOrders(game),
            state=share(trainer.init(first)),
            time_limit=args.seconds,
        ):
            stop.arm()


def open_run(args: TrainArgs, say: Callable[[str], None]) -> Run:
    """Starts a run in a folder of its own, or goes on with one.

    Args:
      args: the settings.
      say: told of what is worth a line.

    Raises:
      ValueError: as `make_task_game`, `load_weights`, `Checkpoints.restore` and `need`; nothing
        has been written then.
      OSError: the run folder cannot be made or read, or another process uses it.
    """

    def warn(text: str) -> None:
        say(f"warning: {text}")

    for wanted, module, extra in (
        (args.tensorboard, "tensorboardX", "tensorboard"),
        (args.wandb, "wandb", "wandb"),
    ):
        if wanted:
            need(module, extra)
    game = make_task_game(args.task, args.cost)
    resumed = None if args.resume is None else Path(args.resume)
    taken_up = resumed is not None and Checkpoints(resumed / "checkpoints", {}).numbers()
    first = None if args.init_from is None or taken_up else load_weights(args.init_from)
    trainer = make_trainer(args, game)
    state = trainer.init(first)
    best, seconds = BestOrders(game, AGENTS[args.agent]), 0.0
    if resumed is None:
        folder = RunFolder.create(args.out, game, warn)
    else:
        folder = RunFolder(resumed, game, warn)
    checkpoints = Checkpoints(
        folder.path / "checkpoints",
        identity(args.agent, game, state.network),
        keep=args.keep_checkpoints,
        warn=warn,
    )
    try:
        if resumed is not None:
            state, seconds = take_up(folder, checkpoints, state, best, say)
        # What was read from --init-from has decided the network.
        ppo = dataclasses.replace(args.ppo, **architecture(state.network))
        folder.write_settings(dataclasses.replace(args, ppo=ppo))
        steps = int(state.num_updates) * trainer.steps_per_update
        trackers = Trackers(open_trackers(args, folder.path, steps, warn), warn)
    except BaseException:
        folder.close()
        raise
    return Run(trainer, share(state), seconds, best, folder, checkpoints, trackers)


def take_up(
    folder: RunFolder,
    checkpoints: Checkpoints,
    state: TrainState,
    best: BestOrders,
    say: Callable[[str], None],
) -> tuple[TrainState, float]:
    """Goes on from the newest checkpoint that is whole; where there is none, from the beginning.

    Args:
      folder: of the run.
      checkpoints: of the run.
      state: the state at the beginning.
      best: told of the orders in checkpoint and folder.
      say: told where the run goes on.

    Returns:
      The state to go on from, and the seconds that led to it.

    Raises:
      ValueError: as `Checkpoints.restore`; nothing has been changed then.
      OSError: the folder cannot be read or written.
    """
    restored = checkpoints.restore(state)
    checkpoints.delete_after(-1 if restored is None else restored.number)
    if restored is None:
        folder.take_up(0, best)
        say(f"going on in {folder.path} from the beginning: it has no checkpoint")
        return state, 0.0
    best.merge(restored.run["best"])
    folder.take_up(restored.run["num_rows"], best)
    say(f"going on in {folder.path} from train step {restored.number}")
    return restored.state, float(restored.run["seconds"])


def open_trackers(
    args: TrainArgs, folder: Path, steps: int, warn: Callable[[str], None]
) -> list[Tracker]:
    """The trackers that the settings ask for, in a run that has played some steps."""
    trackers: list[Tracker] = []
    if args.tensorboard:
        trackers.append(TensorBoard(folder, steps))
    if args.wandb:
        trackers.append(WeightsAndBiases(folder, dataclasses.asdict(args), warn))
    return trackers
