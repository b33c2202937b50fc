"""Random play through the interfaces of other libraries, beside the environment's own."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.benchmarks.env import CLOCKS, Clock
from scripts.benchmarks.machine import machine
from veenv.env import VertexEnv, random_action
from veenv.env.adapters import GymnaxEnv, GymVectorEnv, GymVertexEnv, to_jumanji, to_stoa
from veenv.env.factory import make
from veenv.env.observe import ObservationKind, mask_of

Turn = Callable[[], int]
"""Plays for a while, and says how many steps all environments made."""

Begin = Callable[[jax.Array], Any]
"""From a key to the first carry of all environments."""

Step = Callable[[jax.Array, Any], Any]
"""From a key and a carry to the next."""


def adapters(
    task: tuple[str, ...] = ("RoeFlux_1d",),
    num_envs: tuple[int, ...] = (256, 2048),
    observation: ObservationKind = "graph",
    max_edges: int | None = 256,
    seconds: float = 2.0,
    repeats: int = 3,
    clock: Clock = "wall",
) -> None:
    """Steps per second through each interface under random legal actions, as a table.

    Those of JAX are one compiled scan of two episodes, which resets and writes observations.
    Gymnasium's are called from Python, with arrays of NumPy. All are timed by turns, the best of
    several repeats counts. Interfaces whose library is not installed are left out.

    Args:
        task: tasks to play.
        num_envs: numbers of environments that run side by side.
        observation: the kind of observations.
        max_edges: room for edges in lists of a graph; without it, enough for every order.
        seconds: length of a measurement, about.
        repeats: measurements, of which the fastest counts.
        clock: wall, or CPU time of all threads together, for a machine that is busy.
    """
    print(machine() + "\n")
    print("| task | interface | environments | steps/s | of veenv's own |")
    print("| --- | --- | ---: | ---: | ---: |")
    missing: set[str] = set()
    shown: Any = {"observation": observation}
    if observation == "graph":
        shown["max_edges"] = max_edges
    for name in task:
        one = GymVertexEnv(name, **shown)
        _report(name, 1, {"gymnasium": partial(_play_one, one)}, seconds, repeats, clock)
        env = make(name, **shown)
        for n in num_envs:
            vector = GymVectorEnv(n, name, **shown)
            turns: dict[str, Turn] = {}
            for interface, scanned in SCANNED.items():
                try:
                    turns[interface] = _compiled(*scanned(env, n), n, 2 * env.max_steps)
                except ModuleNotFoundError as error:
                    missing.add(f"{interface} ({error})")
            turns["gymnasium.vector"] = partial(_play_vector, vector)
            _report(name, n, turns, seconds, repeats, clock)
    if missing:
        print(f"\nleft out: {', '.join(sorted(missing))}")


def _report(
    name: str, n: int, turns: dict[str, Turn], seconds: float, repeats: int, clock: Clock
) -> None:
    """Times the interfaces by turns and prints their rows."""
    rates: dict[str, float] = {}
    for turn in turns.values():
        turn()  # compiles
    for _ in range(repeats):
        for interface, turn in turns.items():
            steps, begun, start = 0, time.perf_counter(), CLOCKS[clock]()
            while time.perf_counter() < begun + seconds:
                steps += turn()
            rate = steps / (CLOCKS[clock]() - start)
            rates[interface] = max(rate, rates.get(interface, 0.0))
    for interface, rate in rates.items():
        ratio = f"{rate / rates['veenv']:.2f}" if "veenv" in rates else ""
        print(f"| {name} | {interface} | {n:,} | {rate:,.0f} | {ratio} |", flush=True)


def _play_one(env: GymVertexEnv) -> int:
    """An episode of random actions."""
    random, steps, over = np.random.default_rng(0), 0, False
    env.reset(seed=0)
    while not over:
        _, _, over, _, _ = env.step(random.choice(np.flatnonzero(env.action_masks())))
        steps += 1
    return steps


def _play_vector(envs: GymVectorEnv) -> int:
    """An episode of random actions in every environment."""
    random, length = np.random.default_rng(0), envs.env.max_steps
    _, infos = envs.reset(seed=0)
    for _ in range(length):
        ranks = random.random(infos["action_mask"].shape, np.float32)
        *_, infos = envs.step(np.argmax(ranks * infos["action_mask"], axis=1))
    return length * envs.num_envs


def _compiled(begin: Begin, step: Step, n: int, length: int) -> Turn:
    """So many steps of `n` environments as one program."""

    @jax.jit
    def play(key: jax.Array) -> Any:
        first, rest = jax.random.split(key)
        keys = jax.random.split(rest, length)
        return jax.lax.scan(lambda carry, key: (step(key, carry), None), begin(first), keys)[0]

    def turn() -> int:
        jax.block_until_ready(play(jax.random.key(0)))
        return n * length

    return turn


def _own(env: VertexEnv, n: int) -> tuple[Begin, Step]:
    """The environment's own calls, reset where an episode ends."""

    def one(state: Any, action: jax.Array) -> tuple[Any, Any]:
        state = env.transition(state, action)[0]
        now = jax.tree.map(partial(jnp.where, state.terminated), env.init(), state)
        return env.observe(now), now

    def begin(key: jax.Array) -> Any:
        return jax.vmap(lambda _: env.reset())(jnp.arange(n))

    def step(key: jax.Array, carry: Any) -> Any:
        obs, state = carry
        return jax.vmap(one)(state, random_action(key, mask_of(obs, env.num_actions) > 0))

    return begin, step


def _gymnax(env: VertexEnv, n: int) -> tuple[Begin, Step]:
    wrapped = GymnaxEnv(env)

    def begin(key: jax.Array) -> Any:
        return jax.vmap(wrapped.reset)(jax.random.split(key, n))

    def step(key: jax.Array, carry: Any) -> Any:
        obs, state = carry
        action = random_action(key, mask_of(obs, env.num_actions) > 0)
        return jax.vmap(wrapped.step)(jax.random.split(key, n), state, action)[:2]

    return begin, step


def _jumanji(env: VertexEnv, n: int) -> tuple[Begin, Step]:
    wrappers = importlib.import_module("jumanji.wrappers")
    return _timed_steps(wrappers.VmapAutoResetWrapper(to_jumanji(env)), env.num_actions, n)


def _stoa(env: VertexEnv, n: int) -> tuple[Begin, Step]:
    resets = importlib.import_module("stoa.core_wrappers.auto_reset")
    batches = importlib.import_module("stoa.core_wrappers.vmap")
    inner = resets.AutoResetWrapper(to_stoa(env))
    return _timed_steps(batches.VmapWrapper(inner), env.num_actions, n)


def _timed_steps(wrapped: Any, num_actions: int, n: int) -> tuple[Begin, Step]:
    """Those of an interface whose state comes with a time step."""

    def begin(key: jax.Array) -> Any:
        return wrapped.reset(jax.random.split(key, n))

    def step(key: jax.Array, carry: Any) -> Any:
        state, shown = carry
        mask = mask_of(shown.observation, num_actions) > 0
        return wrapped.step(state, random_action(key, mask))

    return begin, step


SCANNED: dict[str, Callable[[VertexEnv, int], tuple[Begin, Step]]] = {
    "veenv": _own,
    "gymnax": _gymnax,
    "jumanji": _jumanji,
    "stoa": _stoa,
}
"""Interfaces that run in a compiled scan."""
