"""How a training run starts: anew, or where an earlier one has left off."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path

from agents.cli.signals import until_signal
from agents.config.args import TrainArgs, task_names
from agents.devices import broadcast
from agents.files import new_folder
from agents.nn.networks import GraphNetwork
from agents.nn.weights import architecture, load_weights
from agents.ppo.exploration import explores
from agents.ppo.trainer import Trainer
from agents.ppo.updates import TrainState
from agents.run.checkpoints import Checkpoints
from agents.run.folder import RunFolder, identity_of
from agents.run.trackers import TensorBoard, Tracker, Trackers, WeightsAndBiases, need
from agents.train.curriculum import Curriculum, FixedTasks, RandomPools
from agents.train.training import DivergedError, train
from veenv import tasks
from veenv.env import TaskDistribution
from veenv.graph.graph import CostModel

AGENTS = {"ppo": "PPO", "alphazero": "AlphaZero"}
"""Names of the agents, as they are written."""


@dataclasses.dataclass(frozen=True)
class Run:
    """Everything that a run works with.

    Attributes:
      curriculum: the agent and what it plays.
      state: where training starts.
      steps: environment steps that led to it.
      seconds: that led to it.
      folder: where results go.
      trackers: TensorBoard and the like.
    """

    curriculum: Curriculum
    state: TrainState
    steps: int
    seconds: float
    folder: RunFolder
    trackers: Trackers


def make_tasks(task: str, cost: CostModel) -> TaskDistribution:
    """Tasks named with commas between them, as an agent plays them.

    Raises:
      ValueError: a task is unknown (the message names the nearest ones) or named twice.
    """
    names = [tasks.get(name).name for name in task_names(task)]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"task names {name} twice")
    return TaskDistribution.of(names, cost, normalise=True)


def make_curriculum(args: TrainArgs) -> Curriculum:
    """The agent that the settings ask for, and what it plays.

    Raises:
      ValueError: as `make_tasks` and `make_trainer`.
    """
    if args.task == "random":
        return RandomPools(args.ppo, args.random.family, args.random.functions, args.cost)
    trainer = make_trainer(args, make_tasks(args.task, args.cost))
    return FixedTasks(trainer, AGENTS[args.agent])


def check_options(args: TrainArgs) -> None:
    """Checks that no option asks for what training on random functions does not do.

    Raises:
      ValueError: naming the option.
    """
    for given, option in (
        (args.agent != "ppo", f"--agent {args.agent}"),
        (args.scale.several, "several processes"),
        (args.polish is not None, "--polish"),
        (args.tensorboard, "--tensorboard"),
        (explores(args.ppo), "--self-imitation, --restarts or --temperatures"),
        (args.wandb, "--wandb"),
    ):
        if given and args.task == "random":
            raise ValueError(f"--task random does not go with {option}")


def make_trainer(args: TrainArgs, played: TaskDistribution) -> Trainer:
    """The agent that the settings ask for, on tasks.

    Raises:
      ValueError: as `Trainer` and `agents.alphazero.make_trainer`, or mctx is not installed.
    """
    if args.agent == "ppo":
        return Trainer(args.ppo, played, args.scale.devices)
    try:
        from agents.alphazero import alphazero
    except ImportError as error:
        raise ValueError(
            f"--agent alphazero needs mctx ({error}); pip install 'veenv[mctx]'"
        ) from None
    return alphazero.make_trainer(args.ppo, args.search, played, args.scale.devices)


def follow(args: TrainArgs) -> None:
    """What every process but the first does: the same train steps, and nothing else.

    Raises:
      ValueError: as `open_run`.
      OSError: the weights to start from cannot be read.
    """
    curriculum = make_curriculum(args)
    # Where a run is resumed, the first process has its parameters, and the options its network.
    first = _first_weights(args, resumed=args.resume is not None)
    with until_signal() as stop, contextlib.suppress(DivergedError):
        state = broadcast(curriculum.init(first))
        for _ in train(curriculum, state=state, time_limit=args.seconds):
            stop.arm()


def open_run(args: TrainArgs, write_line: Callable[[str], None]) -> Run:
    """Starts a run in a folder of its own, or goes on with one; `write_line` is a callback.

    Raises:
      ValueError: as `make_curriculum`, `load_weights`, `RunFolder.resume` and `need`; nothing
        has been written then.
      OSError: the run folder cannot be made or read, or another process uses it.
    """

    def warn(text: str) -> None:
        write_line(f"warning: {text}")

    curriculum = make_curriculum(args)
    if args.tensorboard:
        need("tensorboardX", "tensorboard")
    if args.wandb:
        need("wandb", "wandb")
    resumed = None if args.resume is None else Path(args.resume)
    known = resumed is not None and Checkpoints(resumed / "checkpoints", {}).numbers()
    state = curriculum.init(_first_weights(args, resumed=bool(known)))
    is_fixed = isinstance(curriculum, FixedTasks)
    best, played = (curriculum.best, curriculum.tasks) if is_fixed else (None, args.random)
    identity = identity_of(args.agent, args.cost, state.network, played)
    path = resumed or new_folder(Path(args.out) / "+".join(identity["task"]))
    folder = RunFolder(path, identity, best, keep=args.keep_checkpoints, warn=warn)
    try:
        before = {}
        if resumed is not None:
            restored = folder.resume(state)
            state, before = restored.state, restored.run
            beginning = "the beginning: it has no checkpoint"
            where = f"train step {restored.number}" if before else beginning
            write_line(f"going on in {path} from {where}")
        # What was read from --init-from has decided the network.
        ppo = dataclasses.replace(args.ppo, **architecture(state.network))
        folder.write_settings(dataclasses.replace(args, ppo=ppo))
        steps = before.get("steps", curriculum.steps_until(state))
        trackers = Trackers(open_trackers(args, path, steps, warn), warn)
    except BaseException:
        folder.close()
        raise
    seconds = float(before.get("seconds", 0.0))
    return Run(curriculum, broadcast(state), steps, seconds, folder, trackers)


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


def _first_weights(args: TrainArgs, *, resumed: bool) -> GraphNetwork | None:
    """The weights to start from; None for fresh ones or those of a checkpoint."""
    return None if args.init_from is None or resumed else load_weights(args.init_from)
