"""What mechanisms of the agents and of the searches win: each is switched off in one process.

``python -m scripts.benchmarks.ablations_agents costs --variants base one-start --tasks RoeFlux_1d``
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
from veenv.agents.training.curriculum import FixedTasks
from veenv.agents.training.played import Played, make_trainer

from veenv.agents.config.args import say
from veenv.agents.config.ppo import PPOConfig
from veenv.agents.config.search import SearchConfig
from veenv.agents.ppo import exploration, memory, ppo, stretches, trainer
from veenv.agents.training.loop import train
from veenv.env import TaskDistribution
from veenv.search import api
from veenv.search.api import search
from veenv.search.exact import patterns

Switch = tuple[Any, str, Any]
"""An attribute of a module or class, and its value where a mechanism is off."""


def _vmapped(network: Any, inputs: Any) -> Any:
    return jax.vmap(network)(inputs)


def _auto_without_beam(attempt: Any) -> None:
    attempt.anneal()


def _auto_by_regions(attempt: Any) -> None:
    attempt.regions()


def _auto_annealed(attempt: Any) -> None:
    attempt.anneal()


SWITCHES: dict[str, tuple[Switch, ...]] = {
    "base": (),
    "no-phases": ((exploration, "PHASES", 1), (memory, "PHASES", 1)),
    "derived-gradient": ((ppo, "read_steps", _vmapped),),
    "never-by-cost": ((stretches, "BY_COST", 10**6),),
    "always-by-cost": ((stretches, "BY_COST", 1),),
    "whole-episodes": ((stretches, "STRETCH", 10**6),),
    "no-beam": ((api._METHODS, "auto", _auto_without_beam),),
    "regions": ((api._METHODS, "auto", _auto_by_regions),),
    "anneal": ((api._METHODS, "auto", _auto_annealed),),
    "no-subsets": ((api, "MAX_VERTICES", 0),),
    "no-tiny": ((api, "_TINY", 0),),
    "no-tables": ((patterns, "_MOST_VERTICES", 0),),
    "no-closure": ((patterns.Closure, "possible", lambda *_: None),),
}
"""What is switched off, by the name of the variant."""

SETTINGS: dict[str, dict[str, Any]] = {
    "one-start": {"start_updates": 0},
    "restarts": {"restarts": 0.25},
    "temperatures": {"temperatures": 0.25},
    "self-imitation": {"self_imitation": 0.1},
    "hops-0": {"num_hops": 0},
    "hops-2": {"num_hops": 2},
    "hidden-32": {"hidden": 32},
    "hidden-16": {"hidden": 16},
    "messages": {"num_rounds": 1},
    "all-steps": {"learned_share": 1.0},
    "envs-32": {"num_envs": 32},
    "envs-64": {"num_envs": 64},
    "minibatches-2": {"num_minibatches": 2},
    "one-epoch": {"update_epochs": 1},
}
"""Settings that differ, by the name of the variant."""


@contextmanager
def switched(variant: str) -> Iterator[dict[str, Any]]:
    """Within the context a mechanism is off; gives the settings that go with it."""
    trainer._compiled.cache_clear()
    with ExitStack() as stack:
        for owner, name, value in SWITCHES.get(variant, ()):
            if isinstance(owner, dict):
                stack.enter_context(patch.dict(owner, {name: value}))
            else:
                stack.enter_context(patch.object(owner, name, value))
        yield SETTINGS.get(variant, {})


def costs(variants: list[str], tasks: list[str], seeds: int, updates: int) -> None:
    """Cost of the best order after equal updates, from nothing, and processor time of an update."""
    for seed in range(seeds):
        for task in tasks:
            for variant in variants:
                with switched(variant) as settings:
                    played = Played.named(task).tasks
                    config = PPOConfig(seed=seed, from_nothing=True, steps=10**9)
                    config = dataclasses.replace(config, **settings)
                    made = make_trainer("ppo", config, SearchConfig(), played)
                    steps = int(updates * made.steps_per_update)
                    if "envs" in variant:
                        steps = updates * made.steps_per_update * 16 // config.num_envs
                    config = dataclasses.replace(config, steps=steps)
                    made = make_trainer("ppo", config, SearchConfig(), played)
                    curriculum, spent, began = FixedTasks(made), [], time.process_time()
                    measured: Any = {}
                    for progress in train(curriculum):
                        measured = progress.measured
                        now = time.process_time()
                        spent.append(now - began)
                        began = now
                [name] = played.names
                best, [mean] = curriculum.best.cost(name), measured["mean_cost"].values()
                ms = 1e3 * float(np.median(spent[1:] or spent))
                say(
                    f"{variant:16} {name:20} seed {seed}  best {best:7,}  mean {mean:9,.1f}  "
                    f"{ms:8.1f} ms an update, first {spent[0]:.1f} s"
                )


def times(variants: list[str], tasks: list[str], rounds: int) -> None:
    """Seconds of an update, in turn, over those of the first variant."""
    for task in tasks:
        played, steps, first = Played.named(task).tasks, {}, {}
        for variant in variants:
            with switched(variant) as settings:
                config = dataclasses.replace(PPOConfig(from_nothing=True), **settings)
                made = make_trainer("ppo", config, SearchConfig(), played)
                began = time.perf_counter()
                state, _ = jax.block_until_ready(made.step(made.init(), 0.5))
                first[variant] = time.perf_counter() - began
                steps[variant] = [made, state]
        seconds: dict[str, list[float]] = {variant: [] for variant in variants}
        for _ in range(rounds):
            for variant, pair in steps.items():
                began = time.perf_counter()
                pair[1], _ = jax.block_until_ready(pair[0].step(pair[1], 0.5))
                seconds[variant].append(time.perf_counter() - began)
        for variant in variants:
            each = np.array(seconds[variant])
            ratio = float(np.median(each / np.array(seconds[variants[0]])))
            rate = steps[variant][0].steps_per_update / np.median(each)
            say(
                f"{variant:16} {task:20} ratio {ratio:.3f}  {1e3 * np.median(each):8.1f} ms  "
                f"{rate:9,.0f} steps/s  compiled in {first[variant]:.1f} s"
            )


def searches(variants: list[str], on: list[str], seeds: int, budget: str, most: int) -> None:
    """Costs that `auto` finds, over those of the first variant, in turn with equal time."""
    for name in on:
        played = TaskDistribution.of(name)
        found: dict[str, list[int]] = {variant: [] for variant in variants}
        for seed in range(seeds):
            chosen = [g for g in played.graphs if 16 < len(g.eliminable) <= most]
            for graph in chosen:
                for variant in variants:
                    with switched(variant):
                        result = search(graph, "auto", budget=budget, seed=seed)
                    found[variant].append(result.cost)
        base = np.array(found[variants[0]], float)
        for variant in variants:
            ratio = np.array(found[variant]) / base
            mean = np.exp(np.log(ratio).mean())
            say(
                f"{variant:12} {name:14} {len(ratio)} of them: mean {mean:.4f}"
                f"  least {ratio.min():.3f}  largest {ratio.max():.3f}"
            )


def proofs(variants: list[str], budget: str, most: int) -> None:
    """What `exact` proves of the named tasks: cost, bound and seconds."""
    import veenv

    for name in veenv.tasks.list():
        [graph] = Played.named(name).tasks.graphs
        if len(graph.eliminable) > most:
            continue
        for cost in ("multiplications", "executed", "operations"):
            proved = None
            for variant in variants:
                if variant != variants[0] and not proved:
                    continue
                with switched(variant):
                    result = search(graph, "exact", cost=cost, budget=budget)
                proved = result.optimal if proved is None else proved
                say(
                    f"{variant:12} {name:22} {len(graph.eliminable):4} {cost:16} {result.cost:8,} "
                    f"bound {result.lower_bound:8,} {result.optimal!s:6} {result.seconds:6.2f} s "
                    f"{result.evaluations:10,}"
                )


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("what", choices=["costs", "times", "searches", "proofs"])
    asked.add_argument("--variants", nargs="+", default=["base"])
    asked.add_argument("--tasks", nargs="+", default=["RoeFlux_1d"])
    asked.add_argument("--seeds", type=int, default=1)
    asked.add_argument("--updates", type=int, default=60)
    asked.add_argument("--rounds", type=int, default=20)
    asked.add_argument("--budget", default="3s")
    asked.add_argument("--most", type=int, default=110)
    args = asked.parse_args()
    runs: dict[str, Callable[[], None]] = {
        "costs": lambda: costs(args.variants, args.tasks, args.seeds, args.updates),
        "times": lambda: times(args.variants, args.tasks, args.rounds),
        "searches": lambda: searches(args.variants, args.tasks, args.seeds, args.budget, args.most),
        "proofs": lambda: proofs(args.variants, args.budget, args.most),
    }
    runs[args.what]()
