"""Random play: through the environment itself, with its observations, and by other libraries.

Steps a second are the best of several measurements, in which all that is compared takes turns.
"""

from __future__ import annotations

import importlib
import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from scripts.benchmarks.tables import Table
from veenv.env import VertexEnv, random_action
from veenv.env.adapters import GymnaxEnv, GymVectorEnv, GymVertexEnv, to_jumanji, to_stoa
from veenv.env.factory import make
from veenv.env.observe import mask_of
from veenv.env.random_play import random_episodes
from veenv.graph.linearisation import make_graph
from veenv.tasks import random_function

Part = Literal["play", "observations", "adapters", "growth"]
USUAL: dict[Part, tuple[int, ...]] = {
    "play": (1, 16, 256, 4096), "observations": (256,), "adapters": (256, 2048), "growth": (16,)
}  # fmt: skip
"""Environments that run side by side."""
KINDS = ("none", "packed", "flat", "graph", "adjacency", "filled")
"""Observations; `filled` writes one number into arrays of the size of `adjacency`."""
MAX_EDGES = 256
"""Room for edges in lists of a graph."""

Turn = Callable[[int], int]
"""Plays so many times, and returns how many steps all environments made."""

How = tuple[float, int]
"""Seconds of a measurement, and how many there are."""

Begin = Callable[[jax.Array], Any]
"""From a key to the first carry of all environments."""

Step = Callable[[jax.Array, Any], Any]
"""From a key and a carry to the next."""


def env(
    parts: tuple[Part, ...] = ("play",),
    task: tuple[str, ...] = ("RoeFlux_1d", "Encoder"),
    num_envs: tuple[int, ...] = (),
    sizes: tuple[int, ...] = (50, 100, 200, 500, 1000, 2000),
    seconds: float = 2.0,
    repeats: int = 3,
) -> Iterator[Table]:
    """Steps per second under uniformly random legal actions.

    Args:
        parts: `play` are whole episodes as one compiled program, without observations, with the
            growth of a step's time over that of the number of environments since the row above;
            `observations` writes each kind to memory, with a thread for each core, as XLA gives a
            loop over small arrays to one; `adapters` plays through each interface whose library is
            installed, with observations of kind `graph`; `growth` plays on random functions of
            growing size.
        task: tasks to play.
        num_envs: numbers of environments side by side; by default those of each part.
        sizes: numbers of equations of the functions of `growth`.
        seconds: length of a measurement, about.
        repeats: measurements, of which the fastest counts.
    """
    how = seconds, repeats
    for part in parts:
        counts = num_envs or USUAL[part]
        if part == "play":
            yield from _play(task, counts, how)
        elif part == "observations":
            yield from _observations(task, counts, how)
        elif part == "adapters":
            yield from _adapters(task, counts, how)
        else:
            yield from _growth(sizes, counts[0], how)


def _play(task: Sequence[str], num_envs: Sequence[int], how: How) -> Iterator[Table]:
    table = Table("task", "environments", "steps/s", "µs a step of all", "growth / linear")
    yield table
    for name in task:
        environment, before = make(name), None
        for n in num_envs:
            rate = rates({"": episodes(environment, n)}, *how)[""]
            growth = "" if before is None else f"{before / rate:.2f}"
            table.add(name, n, rate, 1e6 * n / rate, growth)
            before = rate


def _growth(sizes: Sequence[int], num_envs: int, how: How) -> Iterator[Table]:
    kinds = {"scalars": False, "arrays": True}
    heads = (f"{kind}: {head}" for kind in kinds for head in ("vertices", "µs a step of one"))
    yield (table := Table("equations", *heads))
    for size in sizes:
        cells: list[float] = []
        for arrays in kinds.values():
            fun, point = random_function(0, 8, size, 8, arrays=arrays)
            graph = make_graph(fun, tuple(range(len(point))))(*point)
            rate = rates({"": episodes(VertexEnv(graph), num_envs)}, *how)[""]
            cells += [len(graph.eliminable), 1e6 / rate]
        table.add(size, *cells)


def _observations(task: Sequence[str], num_envs: Sequence[int], how: How) -> Iterator[Table]:
    cores = len(os.sched_getaffinity(0))
    table = Table("task", "observation", "steps/s", "bytes of one", "GB/s written")
    yield table
    for name, count in itertools.product(task, num_envs):
        if count % cores:
            raise ValueError(f"{cores} cores cannot share {count} environments evenly")
        turns, sizes = {}, {}
        for kind in KINDS:
            turns[kind], sizes[kind] = _observed(name, kind, count, cores)
        for kind, rate in rates(turns, *how).items():
            table.add(name, kind, rate, sizes[kind], f"{rate * sizes[kind] / 1e9:.2f}")


def _adapters(task: Sequence[str], num_envs: Sequence[int], how: How) -> Iterator[Table]:
    table = Table("task", "interface", "environments", "steps/s", "of veenv's own")
    yield table
    missing: set[str] = set()
    shown: Any = {"observation": "graph", "max_edges": MAX_EDGES}
    for name in task:
        one = rates({"gymnasium": partial(_play_one, GymVertexEnv(name, **shown))}, *how)
        table.add(name, "gymnasium", 1, one["gymnasium"], "")
        env = make(name, **shown)
        for n in num_envs:
            turns: dict[str, Turn] = {}
            for interface, scanned in SCANNED.items():
                try:
                    turns[interface] = _scanned(*scanned(env, n), n, 2 * env.max_steps)
                except ModuleNotFoundError as error:
                    missing.add(f"{interface} ({error})")
            turns["gymnasium.vector"] = partial(_play_vector, GymVectorEnv(n, name, **shown))
            measured = rates(turns, *how)
            for interface, rate in measured.items():
                table.add(name, interface, n, rate, f"{rate / measured['veenv']:.2f}")
    if missing:
        print(f"\nleft out: {', '.join(sorted(missing))}")


def rates(turns: Mapping[str, Turn], seconds: float, repeats: int) -> dict[str, float]:
    """Returns steps per second, the best of some measurements of about so long, by turns."""
    counts = {}
    for name, turn in turns.items():
        turn(1)  # compiles
        began = time.perf_counter()
        turn(1)
        counts[name] = max(1, round(seconds / max(time.perf_counter() - began, 1e-6)))
    best = dict.fromkeys(turns, 0.0)
    for _ in range(repeats):
        for name, turn in turns.items():
            start = time.perf_counter()
            steps = turn(counts[name])
            best[name] = max(best[name], steps / (time.perf_counter() - start))
    return best


def episodes(environment: VertexEnv, num_envs: int) -> Turn:
    """Random episodes of all environments, as one program, which sums their mean costs."""

    def one(i: jax.Array, total: jax.Array) -> jax.Array:
        states = random_episodes(environment, jax.random.fold_in(jax.random.key(0), i), num_envs)
        return total + states.cost.astype(jnp.float32).mean()

    @jax.jit
    def run(episodes: int) -> jax.Array:
        return jax.lax.fori_loop(0, episodes, one, jnp.zeros(()))

    def turn(count: int) -> int:
        jax.block_until_ready(run(count))
        return count * num_envs * environment.max_steps

    return turn


def _observed(name: str, kind: str, num_envs: int, cores: int) -> tuple[Turn, int]:
    """Compiled random play with observations, and the bytes of one."""
    env = make(name)
    if kind not in ("none", "filled"):
        env = env.observing(kind, MAX_EDGES if kind == "graph" else None)  # type: ignore[arg-type]
    shown = jax.eval_shape(lambda: _look(env, kind, env.init()))
    own_envs = num_envs // cores

    def step(state_and_obs: Any, key: jax.Array) -> tuple[Any, None]:
        state, _ = state_and_obs
        state = jax.vmap(env.transition)(state, random_action(key, state.action_mask))[0]
        return (state, jax.vmap(lambda s: _look(env, kind, s))(state)), None

    def episode(index: jax.Array, carry: Any) -> Any:
        keys = jax.random.split(jax.random.fold_in(carry[0], index), env.max_steps)
        state, obs = jax.lax.scan(step, first(), keys)[0]
        return carry[0], state, obs, carry[3] + state.cost.astype(jnp.float32).mean()

    def first() -> Any:
        start = jax.tree.map(lambda x: jnp.broadcast_to(x, (own_envs, *x.shape)), env.init())
        return start, jax.tree.map(lambda x: jnp.zeros((own_envs, *x.shape), x.dtype), shown)

    @jax.jit
    def play(key: jax.Array, episodes: jax.Array) -> Any:
        """Plays the episodes of one core."""
        return jax.lax.fori_loop(0, episodes, episode, (key, *first(), jnp.zeros(())))

    def turn(count: int) -> int:
        keys = jax.random.split(jax.random.key(0), cores)
        with ThreadPoolExecutor(cores) as pool:
            list(pool.map(lambda key: jax.block_until_ready(play(key, count)), keys))
        return count * num_envs * env.max_steps

    return turn, sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(shown))


def _look(env: VertexEnv, kind: str, state: Any) -> Any:
    if kind == "none":
        return ()
    if kind == "filled":  # with what the step leaves, so that it is written anew
        shapes = jax.eval_shape(env.observe, state)
        return jax.tree.map(lambda x: jnp.full(x.shape, state.num_steps, x.dtype), shapes)
    return env.observe(state)


def _play_one(env: GymVertexEnv, count: int) -> int:
    """Episodes of random actions."""
    random, steps = np.random.default_rng(0), 0
    for _ in range(count):
        over = False
        env.reset(seed=0)
        while not over:
            _, _, over, _, _ = env.step(random.choice(np.flatnonzero(env.action_masks())))
            steps += 1
    return steps


def _play_vector(envs: GymVectorEnv, count: int) -> int:
    """Episodes of random actions in every environment."""
    random, length = np.random.default_rng(0), envs.env.max_steps
    for _ in range(count):
        _, infos = envs.reset(seed=0)
        for _ in range(length):
            ranks = random.random(infos["action_mask"].shape, np.float32)
            *_, infos = envs.step(np.argmax(ranks * infos["action_mask"], axis=1))
    return count * length * envs.num_envs


def _scanned(begin: Begin, step: Step, n: int, length: int) -> Turn:
    """So many steps of `n` environments as one program."""

    @jax.jit
    def play(key: jax.Array) -> Any:
        first, rest = jax.random.split(key)
        keys = jax.random.split(rest, length)
        return jax.lax.scan(lambda carry, key: (step(key, carry), None), begin(first), keys)[0]

    def turn(count: int) -> int:
        for _ in range(count):
            jax.block_until_ready(play(jax.random.key(0)))
        return count * n * length

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
    """Begin and step of an interface whose state comes with a time step."""

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
