"""How a training run starts: anew, or where an earlier one has left off."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

from agents.cli.signals import until_signal
from agents.config.args import TrainArgs
from agents.config.random_functions import RandomConfig
from agents.devices import broadcast
from agents.files import new_folder
from agents.nn.networks import GraphNetwork
from agents.nn.weights import architecture, load_weights
from agents.ppo.exploration import explores
from agents.ppo.updates import TrainState
from agents.run.checkpoints import Checkpoints
from agents.run.folder import RunFolder, identity_of
from agents.run.trackers import TensorBoard, Tracker, Trackers, WeightsAndBiases, need
from agents.training.curriculum import Curriculum, FixedTasks, RandomPools
from agents.training.loop import DivergedError, train
from agents.training.played import AGENTS, Played, make_trainer
from veenv.orders.documents import file_name
from veenv.tasks import Task


@dataclasses.dataclass(frozen=True)
class Run:
    """Everything that a run works with.

    Attributes:
      curriculum: the agent and what it plays.
      functions: what the best orders are proved with, by name.
      state: where training starts.
      steps: environment steps that led to it.
      seconds: that led to it.
      folder: where results go.
      trackers: TensorBoard and the like.
    """

    curriculum: Curriculum
    functions: Mapping[str, Task]
    state: TrainState
    steps: int
    seconds: float
    folder: RunFolder
    trackers: Trackers


def read_played(args: TrainArgs) -> Played:
    """The tasks, or the function, that the settings name.

    Raises:
      ValueError: as `Played.named` and `FunctionConfig.read`, or the function cannot be traced.
    """
    own = args.own.read()
    return Played.named(args.task or "", args.cost) if own is None else Played.of(own, args.cost)


def make_curriculum(args: TrainArgs, played: Played | None) -> Curriculum:
    """The agent that the settings ask for, on tasks, or on random functions without them.

    Raises:
      ValueError: as `make_trainer`.
    """
    if played is None:
        return RandomPools(args.ppo, args.random.family, args.random.functions, args.cost)
    # Weights to start from are not given up for fresh ones.
    ppo = args.ppo if args.init_from is None else dataclasses.replace(args.ppo, start_updates=0)
    trainer = make_trainer(args.agent, ppo, args.search, played.tasks, args.scale.devices)
    return FixedTasks(trainer, AGENTS[args.agent])


def check_options(args: TrainArgs) -> None:
    """Checks that no option asks for what this training does not do.

    Raises:
      ValueError: naming the option.
    """
    for given, option in (
        (args.agent != "ppo", f"--agent {args.agent}"),
        (args.scale.several, "several processes"),
        (args.polish is not None, "--polish"),
        (args.report, "--report"),
        (args.tensorboard, "--tensorboard"),
        (explores(args.ppo), "--self-imitation, --restarts or --temperatures"),
        (args.wandb, "--wandb"),
    ):
        if given and args.task == "random":
            raise ValueError(f"--task random does not go with {option}")
    if args.task != "random" and args.random != RandomConfig():
        raise ValueError(
            "the options of random functions, such as --functions, go with --task random"
        )


def follow(args: TrainArgs) -> None:
    """What every process but the first does: the same train steps, and nothing else.

    Raises:
      ValueError: as `open_run`.
      OSError: the weights to start from cannot be read.
    """
    curriculum = make_curriculum(args, None if args.task == "random" else read_played(args))
    # Where a run is resumed, the first process has its parameters, and the options its network.
    first = _first_weights(args, resumed=args.resume is not None)
    with until_signal() as stop, contextlib.suppress(DivergedError):
        state = broadcast(curriculum.init(first))
        for _ in train(curriculum, state=state, time_limit=args.seconds):
            stop.arm()


def open_run(args: TrainArgs, write_line: Callable[[str], None]) -> Run:
    """Starts a run in a folder of its own, or goes on with one; `write_line` is a callback.

    Raises:
      ValueError: as `read_played`, `make_curriculum`, `load_weights`, `RunFolder.resume`
        and `need`; nothing has been written then.
      OSError: the run folder cannot be made or read, or another process uses it.
    """

    def warn(text: str) -> None:
        write_line(f"warning: {text}")

    played = None if args.task == "random" else read_played(args)
    curriculum = make_curriculum(args, played)
    if args.tensorboard:
        need("tensorboardX", "tensorboard")
    if args.wandb:
        need("wandb", "wandb")
    resumed = None if args.resume is None else Path(args.resume)
    known = resumed is not None and Checkpoints(resumed / "checkpoints", {}).numbers()
    state = curriculum.init(_first_weights(args, resumed=bool(known)))
    best = curriculum.best if isinstance(curriculum, FixedTasks) else None
    shown = args.random if played is None else played.tasks
    identity = identity_of(args.agent, args.cost, state.network, shown)
    chosen = None if played is None else played.tasks.chosen
    name = "+".join(identity["task"]) if chosen is None else chosen.name
    path = resumed or new_folder(Path(args.out) / file_name(name))
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
    functions = {} if played is None else played.functions
    return Run(curriculum, functions, broadcast(state), steps, seconds, folder, trackers)


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
