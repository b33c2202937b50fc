"""Measures veenv's speed on this machine: ``python scripts/benchmark.py --help``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import tyro
from benchmark_engine import engine
from benchmark_machine import machine
from benchmark_scaling import memory, tracing
from benchmark_search import evaluations, search

from veenv.env import make
from veenv.env.rollout import random_episodes
from veenv.graph import CostModel


def env(
    task: tuple[str, ...] = ("RoeFlux_1d",),
    num_envs: tuple[int, ...] = (1, 16, 256, 4096),
    cost: CostModel = "multiplications",
    steps: int = 500_000,
    repeats: int = 3,
) -> None:
    """Steps per second of the environment under uniformly random legal actions.

    Whole episodes run as one compiled program, the random numbers included; observations are not
    built.  The best of several repeats is shown.

    Args:
        task: tasks to play.
        num_envs: numbers of environments that run side by side.
        cost: the cost model.
        steps: least number of steps in each measurement.
        repeats: measurements, of which the fastest counts.
    """
    print(machine())
    print(f"{'task':<20} {'envs':>6} {'steps/s':>12} {'mean cost':>10}")
    for name in task:
        environment = make(name, cost=cost)
        for n in num_envs:
            episodes = max(1, -(-steps // (n * environment.max_steps)))
            run = _episodes(environment, n, episodes)
            mean = float(run(jax.random.key(0)))
            seconds = fastest(run, repeats)
            speed = episodes * n * environment.max_steps / seconds
            print(f"{name:<20} {n:>6} {speed:>12,.0f} {mean:>10.1f}", flush=True)


def _episodes(environment: Any, num_envs: int, episodes: int) -> Callable[[jax.Array], jax.Array]:
    def one(total: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
        states = random_episodes(environment, key, num_envs)
        return total + states.cost.mean() / episodes, None

    return jax.jit(
        lambda key: jax.lax.scan(one, jax.numpy.zeros(()), jax.random.split(key, episodes))[0]
    )


def fastest(run: Callable[[jax.Array], Any], repeats: int) -> float:
    """Seconds of the fastest of several calls with different keys."""
    times = []
    for key in jax.random.split(jax.random.key(1), repeats):
        start = time.perf_counter()
        jax.block_until_ready(run(key))
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict(
        {
            "env": env,
            "engine": engine,
            "search": search,
            "evaluations": evaluations,
            "memory": memory,
            "tracing": tracing,
        }
    )
