"""What observations cost: random play with each kind, written out at every step."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp

from scripts.benchmarks.env import CLOCKS, Clock
from scripts.benchmarks.machine import machine
from veenv.env import VertexEnv, random_action
from veenv.env.factory import make

KINDS = ("none", "packed", "flat", "graph", "adjacency", "filled")


def observations(
    task: tuple[str, ...] = ("RoeFlux_1d", "Encoder"),
    num_envs: int = 256,
    kinds: tuple[str, ...] = KINDS,
    max_edges: int | None = 256,
    seconds: float = 2.0,
    repeats: int = 3,
    clock: Clock = "wall",
    cores: int | None = None,
) -> None:
    """Steps per second under uniformly random legal actions, by kind of observation, as a table.

    Whole episodes run as one compiled program. XLA gives a loop over small arrays to one thread,
    so a thread for each core calls it for its share of the environments. Each step draws its
    actions from the mask and writes its observations to memory. The kinds are timed by turns, the
    best of several repeats counts.

    Args:
        task: tasks to play.
        num_envs: environments that run side by side.
        kinds: kinds of observations; none for no observation, filled for arrays of the size of
            adjacency that are filled with one number: the speed of writing memory.
        max_edges: room for edges in lists of a graph; without it, enough for every order.
        seconds: length of a measurement, about.
        repeats: measurements, of which the fastest counts.
        clock: wall, or CPU time of all threads together, for a machine that is busy.
        cores: of the CPU that share the environments evenly, by default all; 1 for one thread.

    Raises:
        ValueError: they cannot be shared evenly.
    """
    cores = len(os.sched_getaffinity(0)) if cores is None else cores
    if num_envs % cores:
        raise ValueError(f"{cores} cores cannot share {num_envs} environments evenly")
    print(machine() + "\n")
    print("| task | observation | steps/s | bytes of one | GB/s written |")
    print("| --- | --- | --- | --- | --- |")
    for name in task:
        runs = {kind: _run(name, kind, num_envs, max_edges, cores) for kind in kinds}
        fastest = dict.fromkeys(kinds, float("inf"))
        for turn in range(repeats + 1):
            for kind, (play, _) in runs.items():
                took = _step_seconds(play, turn, seconds, clock)
                if turn:  # the first turn compiles
                    fastest[kind] = min(fastest[kind], took)
        for kind, (_, size) in runs.items():
            rate = num_envs / fastest[kind]
            print(
                f"| {name} | {kind} | {rate:,.0f} | {size:,} | {rate * size / 1e9:.2f} |",
                flush=True,
            )


def _run(
    name: str, kind: str, num_envs: int, max_edges: int | None, cores: int
) -> tuple[tuple[Callable[..., Any], int], int]:
    """Compiled random play of so many episodes, their length, and the bytes of an observation."""
    env = make(name)
    if kind not in ("none", "filled"):
        env = env.observing(kind, max_edges if kind == "graph" else None)  # type: ignore[arg-type]
    shown = jax.eval_shape(lambda: _look(env, kind, env.init()))
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(shown))
    own_envs = num_envs // cores

    def episode(index: int, carry: Any) -> Any:
        del index
        key, _, _, total = carry
        key, own = jax.random.split(key)
        first = jax.tree.map(lambda x: jnp.broadcast_to(x, (own_envs, *x.shape)), env.init())

        def step(state_and_obs: Any, key: jax.Array) -> tuple[Any, None]:
            state, _ = state_and_obs
            action = random_action(key, state.action_mask)
            state = jax.vmap(env.transition)(state, action)[0]
            return (state, jax.vmap(lambda s: _look(env, kind, s))(state)), None

        zeros = jax.tree.map(lambda x: jnp.zeros((own_envs, *x.shape), x.dtype), shown)
        (state, obs), _ = jax.lax.scan(step, (first, zeros), jax.random.split(own, env.max_steps))
        return key, state, obs, total + state.cost.astype(jnp.float32).mean()

    @jax.jit
    def play(key: jax.Array, episodes: jax.Array) -> Any:
        """What one core plays."""
        states = jax.tree.map(lambda x: jnp.broadcast_to(x, (own_envs, *x.shape)), env.init())
        zeros = jax.tree.map(lambda x: jnp.zeros((own_envs, *x.shape), x.dtype), shown)
        return jax.lax.fori_loop(0, episodes, episode, (key, states, zeros, jnp.zeros(())))

    def run(key: jax.Array, episodes: int) -> Any:
        with ThreadPoolExecutor(cores) as pool:
            return list(
                pool.map(lambda own: _finished(play, own, episodes), jax.random.split(key, cores))
            )

    return (run, env.max_steps), size


def _finished(play: Callable[..., Any], key: jax.Array, episodes: int) -> Any:
    return jax.block_until_ready(play(key, episodes))


def _look(env: VertexEnv, kind: str, state: Any) -> Any:
    if kind == "none":
        return ()
    if kind == "filled":  # with what the step leaves, so that it is written anew
        shapes = jax.eval_shape(env.observe, state)
        return jax.tree.map(lambda x: jnp.full(x.shape, state.num_steps, x.dtype), shapes)
    return env.observe(state)


def _step_seconds(
    play: tuple[Callable[..., Any], int], seed: int, seconds: float, clock: Clock
) -> float:
    """Seconds of one step of all environments, in a measurement of about so many seconds."""
    run, length = play
    jax.block_until_ready(run(jax.random.key(seed), 1))
    start = time.perf_counter()
    jax.block_until_ready(run(jax.random.key(seed), 1))
    episodes = max(1, round(seconds / (time.perf_counter() - start)))
    start = CLOCKS[clock]()
    jax.block_until_ready(run(jax.random.key(seed + 1), episodes))
    return (CLOCKS[clock]() - start) / (episodes * length)
