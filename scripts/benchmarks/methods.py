"""Methods of the leaderboard: each finds an order of a graph in a number of seconds.

A method is a function of a graph, a seed, a number of seconds and a callable
``report(eliminations, cost)``; it returns vertex ids.  `METHODS` has those of the protocol.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import runpy
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # a checkout is not installed

import jax
import numpy as np

from veenv.agents.api import train
from veenv.agents.config.ppo import PPOConfig
from veenv.agents.policy import policy_orders
from veenv.graph.graph import Graph
from veenv.orders.scored import scored_order
from veenv.search.api import search

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"

Report = Callable[..., None]
"""Takes the eliminations so far and the least cost so far."""
Play = Callable[[Graph, int, float, Report], Sequence[int]]
"""From a graph, a seed, a number of seconds and a `Report` to vertex ids."""


def search_by(method: str, graph: Graph, seed: int, seconds: float, report: Report) -> Any:
    """Searches with a method of `veenv.search`."""
    length = len(graph.eliminable)
    result = search(
        graph,
        method,
        budget=f"{seconds}s",
        seed=seed,
        callback=lambda progress: report(progress.evaluations * length, progress.cost),
    )
    report(result.evaluations * length, result.cost)
    return result.order


def from_nothing(agent: Any, graph: Graph, seed: int, seconds: float, report: Report) -> Any:
    """Trains an agent that knows neither an order nor weights; only what it played counts."""
    return _trained(agent, graph, seed, seconds, report, from_nothing=True)


def warm(graph: Graph, seed: int, seconds: float, report: Report) -> Any:
    """Plays 32 games of the shipped policy, then trains PPO in the time that is left."""
    began, played = time.perf_counter(), 32 * len(graph.eliminable)
    best = policy_games(32, graph, seed, seconds, report)
    left = seconds - (time.perf_counter() - began)
    if left <= 0:
        return best
    learned = _trained("ppo", graph, seed, left, lambda n, cost: report(played + n, cost))
    return min(best, learned, key=graph.cost)


def _trained(
    agent: Any, graph: Graph, seed: int, seconds: float, report: Report, **settings: Any
) -> Sequence[int]:
    """Trains an agent with its default settings but for those; returns the cheapest order.

    Raises:
      RuntimeError: an agent from nothing has not ended a game.
    """

    def note(progress: Any) -> None:
        [least] = progress.measured["min_cost" if settings else "best_cost"].values()
        report(progress.steps, float(least))

    config = PPOConfig(seed=seed, **settings)
    run = train(graph, config, agent=agent, time_limit=seconds, callback=note)
    if not settings:
        return run.order.ids
    order = run.best.played(run.order.name)
    if order is None:
        raise RuntimeError("no game was played to its end")
    return order


def one_file(graph: Graph, seed: int, seconds: float, report: Report) -> Any:
    """Trains the PPO of docs/examples/ppo_one_file.py."""
    end, least, best, eliminations = time.perf_counter() + seconds, math.inf, (), 0
    first, rest = jax.random.split(jax.random.key(seed))
    example = runpy.run_path(str(EXAMPLES / "ppo_one_file.py"))
    begin, learn = example["make_train"](graph, updates=1)
    state = jax.jit(begin)(first)
    update = jax.jit(learn).lower(state, rest).compile()
    for k in itertools.count():
        began = time.perf_counter()
        state, episodes = update(state, jax.random.fold_in(rest, k))
        for ids in np.asarray(episodes.order[0]).tolist():
            order = graph.check_order([v for v in ids if v >= 0])
            eliminations += len(order)
            if graph.cost(order) < least:
                least, best = graph.cost(order), order
        report(eliminations, least)
        now = time.perf_counter()
        if now + (now - began) > end:  # another update would end too late
            return best
    raise AssertionError  # the loop has no end of its own


def noisy_markowitz(graph: Graph, seed: int, seconds: float, report: Report) -> Any:
    """Searches as docs/examples/noisy_markowitz.py."""
    example = runpy.run_path(str(EXAMPLES / "noisy_markowitz.py"))
    return example["search"](graph, seed, seconds, report)


def policy_games(number: int, graph: Graph, seed: int, _: float, report: Report) -> Any:
    """Plays the shipped policy without learning: one greedy game, then sampled ones."""
    games: Iterator[Sequence[int]] = policy_orders(graph, "multiplications", seed)
    return _cheapest(itertools.islice(games, number), graph, report)


def rule(name: str, graph: Graph, _: int, __: float, report: Report) -> Any:
    """Builds the order of a rule: ``"scored"``, ``"markowitz"`` or ``"reverse"``."""
    rules = {"markowitz": graph.markowitz, "reverse": graph.reverse}
    order = graph.legal(rules[name]() if name in rules else scored_order(graph))
    return _cheapest([order], graph, report)


def _cheapest(orders: Iterable[Sequence[int]], graph: Graph, report: Report) -> Sequence[int]:
    """Returns the cheapest of some orders, and reports each."""
    best: Sequence[int] = ()
    for number, order in enumerate(orders, 1):
        best = min(best or order, order, key=graph.cost)
        report(number * len(order), graph.cost(best))
    return best


@dataclasses.dataclass(frozen=True)
class Method:
    """One method of the protocol.

    Attributes:
      play: the function.
      start: its knowledge of a function's orders before the run.
      timed: True if it takes the whole budget; it is then run on `core` only.
      seeded: True if its result depends on the seed.
    """

    play: Play
    start: str
    timed: bool = True
    seeded: bool = True


METHODS = {
    "optimize": Method(partial(search_by, "auto"), "the shipped policy"),
    "anneal": Method(partial(search_by, "anneal"), "classical orders"),
    "ppo-warm": Method(warm, "the shipped policy"),
    "ppo-from-nothing": Method(partial(from_nothing, "ppo"), "nothing"),
    "alphazero": Method(partial(from_nothing, "alphazero"), "nothing"),
    "ppo-one-file": Method(one_file, "nothing"),
    "noisy-markowitz": Method(noisy_markowitz, "a classical rule"),
    "policy-32": Method(partial(policy_games, 32), "the shipped policy", timed=False),
    "policy-1": Method(partial(policy_games, 1), "the shipped policy", timed=False, seeded=False),
    "scored": Method(partial(rule, "scored"), "the shipped score", timed=False, seeded=False),
    "markowitz": Method(partial(rule, "markowitz"), "a classical rule", timed=False, seeded=False),
    "reverse": Method(partial(rule, "reverse"), "a classical rule", timed=False, seeded=False),
}
"""The methods that every document has."""


def resolved(method: str) -> str:
    """Returns a method's name, or ``FILE.py:FUNCTION`` with the whole path of the file.

    Raises:
      ValueError: there is no method of this name, or no such file.
    """
    if method in METHODS:
        return method
    path, colon, function = method.rpartition(":")
    if not colon:
        known = ", ".join(METHODS)
        raise ValueError(f"expected one of {known}, or FILE.py:FUNCTION, got {method!r}")
    if not Path(path).is_file():
        raise ValueError(f"there is no file {path}")
    return f"{Path(path).resolve()}:{function}"


def load(method: str) -> Play:
    """Returns the function of a `resolved` method.

    Raises:
      ValueError: the file has no such function.
    """
    if method in METHODS:
        return METHODS[method].play
    path, _, name = method.rpartition(":")
    play: Any = runpy.run_path(path).get(name)
    if not isinstance(play, Callable):
        raise ValueError(f"{path} has no function {name!r}")
    return play
