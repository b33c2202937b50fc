"""How a training run starts: anew, or where an earlier one has left off."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from veenv.agents.cli.signals import PREEMPTED, until_signal
from veenv.agents.config.args import TrainArgs
from veenv.agents.config.ppo import PPOConfig
from veenv.agents.config.random_functions import RandomConfig
from veenv.agents.devices import any_process, broadcast
from veenv.agents.files import new_folder
from veenv.agents.nn.own import Network
from veenv.agents.nn.weights import architecture, load_weights
from veenv.agents.ppo.exploration import explores
from veenv.agents.ppo.trainer import Trainer
from veenv.agents.ppo.updates import TrainState
from veenv.agents.run.checkpoints import Checkpoints
from veenv.agents.run.folder import RunFolder, identity_of
from veenv.agents.run.trackers import TensorBoard, Tracker, Trackers, WeightsAndBiases, need
from veenv.agents.training.curriculum import Curriculum, FixedTasks, RandomPools
from veenv.agents.training.loop import DivergedError, train
from veenv.agents.training.played import AGENTS, Played, first_network, make_trainer
from veenv.agents.training.seeds import SideBySide
from veenv.env import TaskDistribution, VertexEnv
from veenv.orders.documents import as_path, file_name
from veenv.tasks import Task


@dataclasses.dataclass(frozen=True)
class Session:
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


def make_curriculum(args: TrainArgs, played: Played | None, *, resumed: bool) -> Curriculum:
    """The agent that the settings ask for, on tasks, or on random functions without them.

    The weights of a run that is resumed come from its checkpoint.

    Raises:
      ValueError: as `make_trainer`.
    """
    own, loss = args.read("network"), args.read("loss")

    def make(tasks: TaskDistribution) -> Trainer:
        network, ppo = _start_from(args, own, tasks.env, resumed=resumed)
        return make_trainer(
            args.agent,
            ppo,
            args.search,
            tasks,
            args.scale.devices,
            network,
            stay=played is not None,
            loss=loss,
        )

    if played is None:
        family, number = args.random.family, args.random.functions
        return RandomPools(args.ppo, family, number, args.cost, make)
    trainer, agent = make(played.tasks), AGENTS[args.agent]
    if args.seeds == 1:
        return FixedTasks(trainer, agent)
    return SideBySide(trainer.beside(range(args.ppo.seed, args.ppo.seed + args.seeds)), agent)


def check_options(args: TrainArgs) -> None:
    """Checks that no option asks for what this training does not do.

    Raises:
      ValueError: naming the option.
    """
    orders = (
        (args.polish is not None, "--polish"),
        (args.rank_by_time is not None, "--rank-by-time"),
        (args.report, "--report"),
    )
    stays = (
        (args.seeds > 1, "--seeds"),
        (explores(args.ppo), "--self-imitation, --restarts or --temperatures"),
    )
    for chosen, what, excluded in (
        (args.task == "random", "--task random", orders + stays),
        (args.seeds > 1, "--seeds", ((args.scale.several, "several processes"),)),
    ):
        for given, option in excluded:
            if chosen and given:
                raise ValueError(f"{what} does not go with {option}")
    if args.task != "random" and args.random != RandomConfig():
        raise ValueError(
            "the options of random functions, such as --functions, go with --task random"
        )


def follow(args: TrainArgs) -> int:
    """What every process but the first does: the same train steps, and nothing else.

    Returns:
      The exit code: `PREEMPTED` if SIGTERM has ended the run, else 0.

    Raises:
      ValueError: as `open_run`.
      OSError: the weights to start from cannot be read.
    """
    played = None if args.task == "random" else read_played(args)
    # Where a run is resumed, the first process has its parameters, and the options its network.
    curriculum = make_curriculum(args, played, resumed=args.resume is not None)
    with until_signal() as stop:
        state = broadcast(curriculum.init())
        steps = train(curriculum, state=state, time_limit=args.seconds, should_stop=stop.is_set)
        with contextlib.suppress(DivergedError):
            for _ in steps:
                stop.arm()
        return PREEMPTED if any_process(stop.preempted) else 0


def open_run(args: TrainArgs, write_line: Callable[[str], None]) -> Session:
    """Starts a run in a folder of its own, or goes on with one; `write_line` is a callback.

    Raises:
      ValueError: as `read_played`, `make_curriculum`, `load_weights`, `RunFolder.resume`
        and `need`; nothing has been written then.
      OSError: the run folder cannot be made or read, or another process uses it.
    """

    def warn(text: str) -> None:
        write_line(f"warning: {text}")

    played = None if args.task == "random" else read_played(args)
    resumed = None if args.resume is None else as_path(args.resume)
    known = resumed is not None and Checkpoints(resumed / "checkpoints", {}).numbers()
    curriculum = make_curriculum(args, played, resumed=bool(known))
    if args.tensorboard:
        need("tensorboardX", "tensorboard")
    if args.wandb:
        need("wandb", "wandb")
    state = curriculum.init()
    best = curriculum.best if isinstance(curriculum, FixedTasks) else None
    shown = args.random if played is None else played.tasks
    network = curriculum.networks(state.network)["weights"]
    seeds = tuple(curriculum.each) if isinstance(curriculum, SideBySide) else ()
    identity = identity_of(args.agent, args.cost, network, shown, seeds)
    chosen = None if played is None else played.tasks.chosen
    name = "+".join(identity["task"]) if chosen is None else chosen.name
    if args.folder is not None:
        as_path(args.folder).mkdir(parents=True, exist_ok=True)
    path = resumed or as_path(args.folder or new_folder(as_path(args.out) / file_name(name)))
    folder = RunFolder(path, identity, best, keep=args.keep_checkpoints, warn=warn)
    try:
        before = {}
        if resumed is not None:
            restored = folder.resume(state)
            state, before = restored.state, restored.run
            beginning = "the beginning: it has no checkpoint"
            where = f"train step {restored.number}" if before else beginning
            write_line(f"going on in {path} from {where}")
        folder.save_orders()
        # What was read from --init-from has decided the network.
        size = {} if args.network is not None else architecture(network)
        ppo = dataclasses.replace(args.ppo, **size)
        folder.write_settings(dataclasses.replace(args, ppo=ppo))
        steps = before.get("steps", curriculum.steps_until(state))
        trackers = Trackers(open_trackers(args, path, steps, warn), warn)
    except BaseException:
        folder.close()
        raise
    seconds = float(before.get("seconds", 0.0))
    functions = {} if played is None else played.functions
    return Session(curriculum, functions, broadcast(state), steps, seconds, folder, trackers)


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


def _start_from(
    args: TrainArgs, own: Any, env: VertexEnv, *, resumed: bool
) -> tuple[Network | None, PPOConfig]:
    """As `first_network`; weights of a run that is resumed are those of its checkpoint."""
    try:
        network, ppo = first_network(own, env, args.ppo)
    except TypeError as error:
        raise ValueError(f"--network {args.network}: {error}") from error
    if args.init_from is not None:
        ppo = dataclasses.replace(ppo, start_updates=0)
        if not resumed:
            network, ppo = first_network(load_weights(args.init_from, network), env, ppo)
    return network, ppo
