"""Checks how much memory a train step takes, before it is tried."""

from __future__ import annotations

import math
import os
from typing import Any

import jax
import jax.numpy as jnp

from veenv.agents.config.ppo import PPOConfig
from veenv.agents.nn.custom import Network
from veenv.agents.ppo.phases import PHASES, Phase, phases_of
from veenv.env import TaskDistribution


def bytes_of_episodes(
    tasks: TaskDistribution, network: Network, num_envs: int, window: int = 0
) -> int:
    """Bytes that one train step's episodes take at least: states, and what the network saw.

    Args:
      tasks: the graphs.
      network: what plays, or its shapes.
      num_envs: environments that play.
      window: slots that are read in each step; 0 for all.

    Examples:
      >>> import jax.numpy as jnp, veenv
      >>> from veenv.agents import GraphNetwork
      >>> network = GraphNetwork(key=jax.random.key(0))
      >>> graph = veenv.make_graph(lambda x: jnp.sin(jnp.exp(x)) * x)(1.0)
      >>> tasks = TaskDistribution.of({"f": graph})
      >>> one, two = (bytes_of_episodes(tasks, network, n) for n in (1, 2))
      >>> two == 2 * one > 0
      True
    """
    env, params = tasks.env, tasks.task(0)

    phases = phases_of(env.num_actions, PHASES)
    if window:
        phases = (Phase(0, env.num_actions, window),)

    def play() -> tuple[Any, Any]:
        state = env.init(params)
        slots = [jnp.arange(phase.num_slots, dtype=jnp.int32) for phase in phases]
        return state, [network.read(env, state, params, numbers) for numbers in slots]

    state, inputs = jax.eval_shape(play)
    seen = sum((p.stop - p.start) * _size(x) for p, x in zip(phases, inputs, strict=True))
    return num_envs * (_size(params) + _size(state) + seen)


def check_memory(
    tasks: TaskDistribution, network: Network, config: PPOConfig, num_envs: int, num_devices: int
) -> None:
    """Checks that the network and the episodes of a train step fit into memory.

    Args:
      tasks: the graphs.
      network: what plays, or its shapes.
      config: the settings.
      num_envs: environments that play.
      num_devices: devices that share them.

    Raises:
      ValueError: if they do not, with the bytes that they would take.
    """
    have = _memory(num_devices)
    # Parameters, their gradients, and the two moments of Adam.
    weights = 4 * _size([x for x in jax.tree.leaves(network) if hasattr(x, "dtype")])
    if have is not None and weights > have:
        raise ValueError(
            f"hidden={config.hidden}: the network and its gradients would take at least "
            f"{weights:,} bytes ({weights / 2**30:,.0f} GiB), more than the {have:,} bytes of "
            "memory here"
        )
    needed = bytes_of_episodes(tasks, network, num_envs, config.window or 0)
    if have is not None and needed > have:
        raise ValueError(
            f"num_envs={config.num_envs}: the episodes of one train step would take at least "
            f"{needed:,} bytes ({needed / 2**30:,.0f} GiB), more than the {have:,} bytes of memory "
            f"here; the largest num_envs that could fit is {have * num_envs // needed:,}"
        )


def _memory(num_devices: int) -> int | None:
    """Bytes of memory of the devices, or of the machine; None if the system does not say."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"]) * num_devices
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _size(tree: Any) -> int:
    """Bytes of arrays."""
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(tree))
