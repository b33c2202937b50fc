"""Starts a training run: anew, or where an earlier one has left off."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from veenv.agents.cli.signals import PREEMPTED, until_signal
from veenv.agents.config.args import TrainArgs
from veenv.agents.config.ppo import PPOConfig
from veenv.agents.devices import any_process, broadcast
from veenv.agents.files import new_folder
from veenv.agents.nn.custom import Network
from veenv.agents.nn.weights import architecture, load_weights
from veenv.agents.ppo.updates import TrainState
from veenv.agents.run.checkpoints import Checkpoints
from veenv.agents.run.folder import RunFolder, identity_of
from veenv.agents.run.trackers import TensorBoard, Tracker, Trackers, WeightsAndBiases, need
from veenv.agents.training.inputs import AGENTS, Played, first_network, make_trainer
from veenv.agents.training.learner import Learner
from veenv.agents.training.loop import DivergedError, train
from veenv.env import VertexEnv
from veenv.orders.documents import as_path, file_name
from veenv.tasks import Task


@dataclasses.dataclass(frozen=True)
class Session:
    """Everything that a run works with.

    Attributes:
      learner: the agent and what it plays.
      functions: what the best orders are proved with, by name.
      state: where training starts.
      steps: environment steps that led to it.
      seconds: that led to it.
      folder: where results go.
      trackers: TensorBoard and the like.
    """

    learner: Learner
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
    fun = args.own.read()
    return Played.named(args.task or "", args.cost) if fun is None else Played.of(fun, args.cost)


def make_learner(args: TrainArgs, played: Played, *, resumed: bool) -> Learner:
    """Makes the agent that the settings ask for, on tasks.

    The weights of a run that is resumed come from its checkpoint.

    Raises:
      ValueError: as `make_trainer`.
    """
    network, ppo = _start_from(args, args.read("network"), played.tasks.env, resumed=resumed)
    trainer = make_trainer(
        args.agent,
        ppo,
        args.search,
        played.tasks,
        args.scale.devices,
        network,
        loss=args.read("loss"),
    )
    return Learner(trainer, AGENTS[args.agent])


def follow(args: TrainArgs) -> int:
    """Runs every process but the first: the same train steps, and nothing else.

    Returns:
      The exit code: `PREEMPTED` if SIGTERM has ended the run, else 0.

    Raises:
      ValueError: as `open_run`.
      OSError: the weights to start from cannot be read.
    """
    # Where a run is resumed, the first process has its parameters, and the options its network.
    learner = make_learner(args, read_played(args), resumed=args.resume is not None)
    with until_signal() as stop:
        state = broadcast(learner.trainer.init())
        steps = train(learner, state=state, time_limit=args.seconds, should_stop=stop.is_set)
        with contextlib.suppress(DivergedError):
            for _ in steps:
                stop.arm()
        return PREEMPTED if any_process(stop.preempted) else 0


def open_run(args: TrainArgs, write_line: Callable[[str], None]) -> Session:
    """Starts a run in a folder of its own, or goes on with one; `write_line` is a callback.

    Raises:
      ValueError: as `read_played`, `make_learner`, `load_weights`, `RunFolder.resume`
        and `need`; nothing has been written then.
      OSError: the run folder cannot be made or read, or another process uses it.
    """

    def warn(text: str) -> None:
        write_line(f"warning: {text}")

    played = read_played(args)
    resumed = None if args.resume is None else as_path(args.resume)
    known = resumed is not None and Checkpoints(resumed / "checkpoints", {}).numbers()
    learner = make_learner(args, played, resumed=bool(known))
    if args.tensorboard:
        need("tensorboardX", "tensorboard")
    if args.wandb:
        need("wandb", "wandb")
    state, chosen = learner.trainer.init(), played.tasks.chosen
    identity = identity_of(args.agent, args.cost, state.network, played.tasks)
    name = "+".join(identity["task"]) if chosen is None else chosen.name
    if args.folder is not None:
        as_path(args.folder).mkdir(parents=True, exist_ok=True)
    path = resumed or as_path(args.folder or new_folder(as_path(args.out) / file_name(name)))
    folder = RunFolder(path, identity, learner.best, keep=args.keep_checkpoints, warn=warn)
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
        size = {} if args.network is not None else architecture(state.network)
        ppo = dataclasses.replace(args.ppo, **size)
        folder.write_settings(dataclasses.replace(args, ppo=ppo))
        steps = int(before.get("steps", 0))
        trackers = Trackers(open_trackers(args, path, steps, warn), warn)
    except BaseException:
        folder.close()
        raise
    seconds = float(before.get("seconds", 0.0))
    return Session(learner, played.functions, broadcast(state), steps, seconds, folder, trackers)


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
    args: TrainArgs, user_network: Any, env: VertexEnv, *, resumed: bool
) -> tuple[Network | None, PPOConfig]:
    """Returns network and settings; weights of a resumed run are those of its checkpoint."""
    try:
        network, ppo = first_network(user_network, env, args.ppo)
    except TypeError as error:
        raise ValueError(f"--network {args.network}: {error}") from error
    if args.init_from is not None and not resumed:
        network, ppo = first_network(load_weights(args.init_from, network), env, ppo)
    return network, ppo
