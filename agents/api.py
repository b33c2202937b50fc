"""Training from Python: `train` and what it returns."""

from __future__ import annotations

import dataclasses
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from veenv.agents.config.args import DEFAULT_TIME_LIMIT, TrainArgs, parse_duration
from veenv.agents.config.ppo import PPOConfig
from veenv.agents.config.search import SearchConfig
from veenv.agents.nn.own import Network
from veenv.agents.ppo.ppo import StepsLoss
from veenv.agents.ppo.updates import TrainState
from veenv.agents.run.checkpoints import Schedule
from veenv.agents.run.folder import RunFolder, identity_of
from veenv.agents.training.best import BestOrders
from veenv.agents.training.curriculum import FixedTasks
from veenv.agents.training.loop import DivergedError, TrainProgress
from veenv.agents.training.loop import train as rounds
from veenv.agents.training.played import (
    AGENTS,
    AgentName,
    Playable,
    Played,
    first_network,
    make_trainer,
)
from veenv.agents.training.seeds import SideBySide, seeds_table
from veenv.env import TaskDistribution
from veenv.graph.graph import CostModel
from veenv.measure.proof import Proof, prove
from veenv.orders.documents import as_path
from veenv.orders.order import Order
from veenv.search.evaluation import Evaluation, evaluate


@dataclasses.dataclass(frozen=True)
class Run:
    """What a training has found.

    Attributes:
      played: what was played, and the functions that orders are proved with.
      best: the best order of every task over all episodes.
      network: the network at the end.
      history: a row for each train step of this call: steps, seconds, costs, losses and so on.
      steps: environment steps, those of earlier calls included.
      seconds: the same in seconds.
      folder: the run folder; None if nothing was written.

    Examples:
      >>> run = train("RoeFlux_1d", time_limit="2m", folder="runs/roe")  # doctest: +SKIP
      >>> run.order.save("order.json")  # doctest: +SKIP
    """

    played: Played
    best: BestOrders
    network: Network
    history: tuple[Mapping[str, Any], ...]
    steps: int
    seconds: float
    folder: Path | None

    @property
    def orders(self) -> dict[str, Order]:
        """The best order of each task that an episode was played of, by name."""
        found = {name: self.best.get(name) for name in self.played.tasks.names}
        return {name: order for name, order in found.items() if order is not None}

    @property
    def classical(self) -> dict[str, Order]:
        """The cheapest classical order of each task where it costs less than the best one found."""
        found = {name: self.best.classical(name) for name in self.orders}
        return {name: pair[1] for name, pair in found.items() if pair is not None}

    def __repr__(self) -> str:
        """What the best orders cost, and where a classical order costs less."""
        cost = self.played.tasks.env.cost
        lines = [f"Run of {self.steps:,} steps in {self.seconds:,.1f} s, {cost}:"]
        for name in self.orders:
            found = self.best.classical(name)
            less = ""
            if found is not None:
                less = f"; {found[0]} takes fewer: {found[1].counts[cost]:,} (see classical)"
            lines.append(f"  {name}: {self.best.cost(name):,}{less}")
        return "\n".join(lines)

    @property
    def order(self) -> Order:
        """The best order of the only task.

        Raises:
          ValueError: there are several, or no episode was played.
        """
        if len(self.played.tasks) > 1:
            raise ValueError(f"several tasks were played; orders has {', '.join(self.orders)}")
        if not self.orders:
            raise ValueError("no episode was played, so there is no order")
        return next(iter(self.orders.values()))

    def prove(self, points: int = 3) -> dict[str, Proof]:
        """Compares the Jacobian under each best order with those of JAX, in float64.

        Args:
          points: number of points, as `veenv.measure.proof.prove`.

        Raises:
          ValueError: a graph, an environment or a task set was played, which has no function.
        """
        if not self.played.functions:
            raise ValueError("a graph has no function to prove an order with; train on functions")
        functions = self.played.functions
        return {
            name: prove(functions[name], order.ids, points)
            for name, order in self.orders.items()
            if name in functions
        }

    def evaluate(self, samples: int = 32, *, seed: int = 0) -> Evaluation:
        """Plays the tasks with the network, without learning, as `veenv.evaluate`.

        Args:
          samples: number of sampled episodes on each task.
          seed: of the sampling.
        """
        return evaluate(self.network, self.played.tasks, samples=samples, seed=seed)


def train(
    what: Playable | Sequence[Playable] | TaskDistribution,
    config: PPOConfig | None = None,
    *,
    args: tuple[Any, ...] | None = None,
    argnums: int | Iterable[int] | None = None,
    agent: AgentName = "ppo",
    search: SearchConfig | None = None,
    cost: CostModel | None = None,
    time_limit: float | str | None = None,
    folder: str | os.PathLike[str] | None = None,
    network: Any = None,
    loss: StepsLoss | None = None,
    callback: Callable[[TrainProgress], object] | None = None,
) -> Run:
    """Trains an agent to find cheap elimination orders.

    Nothing is printed, and nothing written without a folder.  Ctrl-C ends the training, not the
    program: what was found so far is returned.

    Args:
      what: a function (with `args`), a task or its name, a graph, a list of these; an environment,
        played as it is but for normalised rewards; or a `TaskDistribution` with
        ``normalise=True``. A `GraphNetwork` reads observations of kind ``"adjacency"``.
      config: the settings.
      args: the arguments at which a function is traced.
      argnums: what it is differentiated by; by default all floating-point arguments.
      agent: ``"ppo"`` or ``"alphazero"`` (needs mctx).
      search: settings of AlphaZero's search.
      cost: the cost model, ``"multiplications"`` by default; an environment and a task set have
        their own.
      time_limit: seconds, or a text such as ``"10m"``; 100 if `config` has no number of steps
        either.
      folder: run folder to write to, or an address such as ``gs://bucket/run``, made if need be; a
        run that it holds is gone on with, and the steps and seconds that it took count.
      network: what is trained; by default a `GraphNetwork` of fresh weights as `config` says.
        Given are weights, which decide its size, or a network of your own that reads what the
        environment shows: ``init(key, observation)`` and ``apply(weights, observation)``, as an
        object or a tuple, or a pytree that is called with an observation.
      loss: in place of `ppo_loss`, of the same form; it returns the loss, or that and a dict of
        numbers for the metrics. It may call `ppo_loss` and add to it.
      callback: called after every train step.

    Returns:
      What was found.

    Raises:
      TypeError: there is nothing to play in `what`, as `Played.of`, or no network in `network`.
      ValueError: as `Played.of`; a setting is out of range; or the folder holds another run.
      OSError: the folder cannot be made, read or locked.

    Examples:
      >>> import jax.numpy as jnp
      >>> config = PPOConfig(num_envs=2, steps=8)
      >>> run = train(lambda x: jnp.sin(jnp.exp(x)) * x, config, args=(1.0,))
      >>> sorted(run.order.ids), run.order.counts["multiplications"], len(run.history)
      ([1, 2], 2, 2)
    """
    _, found = _train(
        _Asked(what, args, argnums, cost, agent, search, network, loss),
        config,
        None,
        time_limit,
        folder,
        callback,
    )
    return found


@dataclasses.dataclass(frozen=True)
class SeedRuns:
    """What `train_seeds` has found; `print` shows the table.

    Attributes:
      seeds: the seeds.
      runs: the run of each.
    """

    seeds: tuple[int, ...]
    runs: tuple[Run, ...]

    def __str__(self) -> str:
        """The table: a line for each task."""
        return seeds_table([run.best for run in self.runs], self.seeds)


def train_seeds(
    what: Playable | Sequence[Playable] | TaskDistribution,
    config: PPOConfig | None = None,
    *,
    seeds: int | Sequence[int] = 8,
    args: tuple[Any, ...] | None = None,
    argnums: int | Iterable[int] | None = None,
    agent: AgentName = "ppo",
    search: SearchConfig | None = None,
    cost: CostModel | None = None,
    time_limit: float | str | None = None,
    folder: str | os.PathLike[str] | None = None,
    network: Any = None,
    loss: StepsLoss | None = None,
    callback: Callable[[TrainProgress], object] | None = None,
) -> SeedRuns:
    """Trains with several seeds side by side, in one compiled program.

    Every seed plays as many environments and steps as the settings say, and has one start.

    Args:
      what: as `train`, and so are all others but `seeds`.
      config: the settings; the seed counts from its own on.
      seeds: how many, or which.
      args: the arguments at which a function is traced.
      argnums: what it is differentiated by.
      agent: ``"ppo"`` or ``"alphazero"``.
      search: settings of AlphaZero's search.
      cost: the cost model.
      time_limit: seconds, or a text such as ``"10m"``, of all seeds together.
      folder: one run folder for all seeds: their metrics, best orders and weights; a run of the
        same seeds that it holds is gone on with (``--resume`` takes only consecutive ones).
      network: what is trained.
      loss: in place of PPO's.
      callback: called after every train step of all seeds; `measured` has each under ``"seeds"``.

    Raises:
      TypeError: as `train`.
      ValueError: as `train`, or there is no seed, or one twice.

    Examples:
      >>> import jax.numpy as jnp
      >>> config = PPOConfig(num_envs=2, steps=8)
      >>> found = train_seeds(lambda x: jnp.sin(jnp.exp(x)) * x, config, seeds=2, args=(1.0,))
      >>> [run.order.counts["multiplications"] for run in found.runs]
      [2, 2]
    """
    config = PPOConfig() if config is None else config
    chosen = tuple(range(config.seed, config.seed + seeds) if isinstance(seeds, int) else seeds)
    if not chosen or len(set(chosen)) < len(chosen):
        raise ValueError(
            f"seeds must be an integer of at least 1, or several different seeds, got {seeds}"
        )
    asked = _Asked(what, args, argnums, cost, agent, search, network, loss)
    curriculum, whole = _train(asked, config, chosen, time_limit, folder, callback)
    assert isinstance(curriculum, SideBySide)
    networks, shared = curriculum.networks(whole.network), ("update", "steps", "seconds")

    def history(seed: int) -> Iterator[dict[str, Any]]:
        for row in whole.history:
            yield {name: row[name] for name in shared} | row["seeds"][str(seed)]

    runs = [
        dataclasses.replace(
            whole,
            best=one.best,
            network=networks[f"weights-{seed}"],
            history=tuple(history(seed)),
        )
        for seed, one in curriculum.each.items()
    ]
    return SeedRuns(chosen, tuple(runs))


@dataclasses.dataclass(frozen=True)
class _Asked:
    """What is trained on and by whom, as `train` is told."""

    what: Any
    args: tuple[Any, ...] | None
    argnums: int | Iterable[int] | None
    cost: CostModel | None
    agent: AgentName
    search: SearchConfig | None
    network: Any
    loss: StepsLoss | None

    def curriculum(
        self, config: PPOConfig, seeds: Sequence[int] | None
    ) -> tuple[Played, FixedTasks, PPOConfig]:
        """What is played, the agent on it, and the settings that go with its network."""
        played = Played.of(self.what, self.cost, self.args, self.argnums)
        first, config = first_network(self.network, played.tasks.env, config)
        search = self.search or SearchConfig()
        trainer = make_trainer(
            self.agent, config, search, played.tasks, network=first, loss=self.loss
        )
        name = AGENTS[self.agent]
        if seeds is None:
            return played, FixedTasks(trainer, name), config
        return played, SideBySide(trainer.beside(seeds), name), config


def _train(
    asked: _Asked,
    config: PPOConfig | None,
    seeds: Sequence[int] | None,
    time_limit: float | str | None,
    folder: str | os.PathLike[str] | None,
    callback: Callable[[TrainProgress], object] | None,
) -> tuple[FixedTasks, Run]:
    """Trains, with one seed or with several side by side."""
    started = time.monotonic()
    config = PPOConfig() if config is None else config
    limit = _limit(time_limit, config)
    played, curriculum, config = asked.curriculum(config, seeds)
    state = curriculum.init()
    if folder is None:
        return curriculum, _play(played, curriculum, state, None, {}, limit, started, callback)
    path = as_path(folder)
    path.mkdir(parents=True, exist_ok=True)
    network, cost = curriculum.networks(state.network)["weights"], played.tasks.env.cost
    identity = identity_of(asked.agent, cost, network, played.tasks, seeds or ())
    files = RunFolder(path, identity, curriculum.best, warn=partial(warnings.warn, stacklevel=4))
    try:
        restored = files.resume(state)
        settings = TrainArgs(
            ",".join(played.tasks.names),
            asked.agent,
            cost,
            None if limit is None else f"{limit:f}",
            seeds=len(seeds or (0,)),
            ppo=config if seeds is None else dataclasses.replace(config, seed=seeds[0]),
            search=asked.search or SearchConfig(),
        )
        files.write_settings(settings)
        return curriculum, _play(
            played, curriculum, restored.state, files, restored.run, limit, started, callback
        )
    finally:
        files.close()


def _limit(time_limit: float | str | None, config: PPOConfig) -> float | None:
    """Seconds that training may take; None where only steps limit it."""
    limit = parse_duration(time_limit) if isinstance(time_limit, str) else time_limit
    if limit is not None and not 0 < limit < float("inf"):
        raise ValueError(f"time_limit must be a positive number of seconds, got {time_limit!r}")
    return DEFAULT_TIME_LIMIT if limit is None and config.steps is None else limit


def _play(
    played: Played,
    curriculum: FixedTasks,
    state: TrainState,
    files: RunFolder | None,
    before: Mapping[str, Any],
    limit: float | None,
    started: float,
    callback: Callable[[TrainProgress], object] | None,
) -> Run:
    """Trains until the budget is spent or Ctrl-C comes; what a folder holds is in `before`."""
    steps, seconds = int(before.get("steps", 0)), float(before.get("seconds", 0.0))
    history: list[dict[str, Any]] = []
    progress, schedule = None, Schedule(TrainArgs.checkpoint_seconds)
    try:
        for progress in rounds(
            curriculum, state=state, steps=steps, time_limit=limit, started=started - seconds
        ):
            history.append(progress.row)
            if files is not None:
                files.log(progress.row)
                if schedule.is_due(progress.update):
                    files.checkpoint(progress, curriculum)
            if callback is not None:
                callback(progress)
    except KeyboardInterrupt:
        pass
    except DivergedError:
        if not history:
            raise
    if progress is not None:
        state, steps, seconds = progress.state, progress.steps, progress.seconds
        if files is not None:
            files.checkpoint(progress, curriculum)
    if files is not None:
        for name in curriculum.best.tasks.names:
            files.write_classical(name)
        if progress is not None or not steps:  # what a run has written that is used up stays
            for name, network in curriculum.networks(state.network).items():
                files.write_weights(network, name)
        files.draw()
    path = None if files is None else files.path
    return Run(played, curriculum.best, state.network, tuple(history), steps, seconds, path)
