"""Training from Python: `train` and what it returns."""

from __future__ import annotations

import contextlib
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
from veenv.agents.nn.custom import Network
from veenv.agents.ppo.ppo import StepsLoss
from veenv.agents.ppo.updates import TrainState
from veenv.agents.run.checkpoints import Schedule
from veenv.agents.run.folder import RunFolder, identity_of
from veenv.agents.training.best import BestOrders
from veenv.agents.training.inputs import (
    AGENTS,
    AgentName,
    Playable,
    Played,
    first_network,
    make_trainer,
)
from veenv.agents.training.learner import Learner
from veenv.agents.training.loop import DivergedError, TrainProgress
from veenv.agents.training.loop import train as rounds
from veenv.env import TaskDistribution
from veenv.graph.graph import CostModel
from veenv.measure.proof import Proof, prove
from veenv.orders.documents import as_path
from veenv.orders.order import Order
from veenv.search.evaluation import Evaluation, evaluate


@dataclasses.dataclass(frozen=True)
class Run:
    """The result of a training: best orders, network, history.

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
        best = {name: self.best.get(name) for name in self.played.tasks.names}
        return {name: order for name, order in best.items() if order is not None}

    @property
    def classical(self) -> dict[str, Order]:
        """The cheapest classical order of each task where it costs less than the best one found."""
        cheaper = {name: self.best.classical(name) for name in self.orders}
        return {name: pair[1] for name, pair in cheaper.items() if pair is not None}

    def __repr__(self) -> str:
        """Shows what the best orders cost, and where a classical order costs less."""
        cost = self.played.tasks.env.cost
        lines = [f"Run of {self.steps:,} steps in {self.seconds:,.1f} s, {cost}:"]
        for name in self.orders:
            cheaper = self.best.classical(name)
            less = ""
            if cheaper is not None:
                less = f"; {cheaper[0]} takes fewer: {cheaper[1].counts[cost]:,} (see classical)"
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
      what: a function (with `args`), a task or its name, a graph, a list of these, an environment,
        or a `TaskDistribution` with ``normalise=True``. An environment is played as it is; only its
        rewards are normalised. A `GraphNetwork` reads observations of kind ``"adjacency"``.
      config: the settings.
      args: the arguments at which a function is traced.
      argnums: what it is differentiated by; by default all floating-point arguments.
      agent: ``"ppo"`` or ``"alphazero"`` (needs mctx).
      search: settings of AlphaZero's search.
      cost: the cost model, ``"multiplications"`` by default; an environment and a task set have
        their own.
      time_limit: seconds, or a text such as ``"10m"``; 100 if `config` has no number of steps
        either. Compilation counts, but the first update of a new run is always played.
      folder: run folder to write to, or an address such as ``gs://bucket/run``, made if need be; a
        run that it holds is gone on with, and the steps and seconds that it took count.
      network: what is trained; by default a `GraphNetwork` of fresh weights as `config` says.
        Pass weights of a `GraphNetwork` (they decide its size), or your own network:
        ``init(key, observation)`` and ``apply(weights, observation)``, as an object or a tuple, or
        a pytree that is called with an observation.
      loss: in place of `ppo_loss`, of the same form; it returns the loss, or that and a dict of
        numbers for the metrics. It may call `ppo_loss` and add to it.
      callback: called after every train step with a `TrainProgress`; its result is ignored.

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
    started = time.monotonic()
    config = PPOConfig() if config is None else config
    search = SearchConfig() if search is None else search
    limit = _limit(time_limit, config)
    played = Played.of(what, cost, args, argnums)
    first, config = first_network(network, played.tasks.env, config)
    trainer = make_trainer(agent, config, search, played.tasks, network=first, loss=loss)
    learner = Learner(trainer, AGENTS[agent])
    settings = TrainArgs(
        ",".join(played.tasks.names),
        agent,
        played.tasks.env.cost,
        None if limit is None else f"{limit:f}",
        ppo=config,
        search=search,
    )
    with _run_folder(folder, learner, trainer.init(), settings) as (files, state, before):
        return _play(played, learner, state, files, before, limit, started, callback)


@contextlib.contextmanager
def _run_folder(
    folder: str | os.PathLike[str] | None,
    learner: Learner,
    state: TrainState,
    settings: TrainArgs,
) -> Iterator[tuple[RunFolder | None, TrainState, Mapping[str, Any]]]:
    """Opens a run folder: with it the state where training goes on, and what led to that."""
    if folder is None:
        yield None, state, {}
        return
    path = as_path(folder)
    path.mkdir(parents=True, exist_ok=True)
    identity = identity_of(settings.agent, settings.cost, state.network, learner.tasks)
    files = RunFolder(path, identity, learner.best, warn=partial(warnings.warn, stacklevel=5))
    try:
        restored = files.resume(state)
        files.write_settings(settings)
        yield files, restored.state, restored.run
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
    learner: Learner,
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
            learner, state=state, steps=steps, time_limit=limit, started=started - seconds
        ):
            history.append(progress.row)
            if files is not None:
                files.log(progress.row)
                if schedule.is_due(progress.update):
                    files.checkpoint(progress, learner)
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
            files.checkpoint(progress, learner)
    if files is not None:
        for name in learner.tasks.names:
            files.write_classical(name)
        if progress is not None or not steps:  # what a run has written that is used up stays
            files.write_weights(state.network)
        files.draw()
    path = None if files is None else files.path
    return Run(played, learner.best, state.network, tuple(history), steps, seconds, path)
