"""Checks and conversions of the vector environment: actions, autoreset modes and infos."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from gymnasium.vector import AutoresetMode
from jaxtyping import Bool, Int

from veenv.env.adapters.gymnasium_tasks import Obs, as_slot, mask_of
from veenv.env.state import State
from veenv.env.task_set import TaskDistribution


def final_orders(
    tasks: TaskDistribution,
    indices: Int[np.ndarray, " B"],
    end: State,
    done: Bool[np.ndarray, " B"],
) -> dict[str, np.ndarray]:
    """Returns the vertex ids of the episodes that ended legally, and a flag for each episode."""
    orders, slots = np.full(len(done), None, object), np.asarray(end.order)
    legal = done & ~np.asarray(end.action_mask).any(-1)
    for i in np.flatnonzero(legal):
        ids = np.array(tasks.graphs[indices[i]].eliminable, np.int64)
        orders[i] = ids[slots[i, : len(ids)]]
    return {"order": orders, "_order": legal}


def final_infos(
    tasks: TaskDistribution,
    indices: Int[np.ndarray, " B"],
    obs: Obs,
    end: State,
    infos: dict[str, np.ndarray],
    done: Bool[np.ndarray, " B"],
) -> dict[str, Any]:
    """Returns the infos about episodes that ended: ``final_obs`` and ``final_info``.

    Args:
      tasks: the tasks.
      indices: which of them each environment plays.
      obs: the observations at the end.
      end: the states at the end.
      infos: the infos of the step.
      done: where an episode has ended.
    """
    observations, names = (np.full(len(done), None, object) for _ in range(2))
    for i in np.flatnonzero(done):
        observations[i] = jax.tree.map(lambda value, i=i: value[i].copy(), obs)
        names[i] = tasks.names[indices[i]]
    info: dict[str, Any] = {}
    for name, value in {**infos, "action_mask": mask_of(end)}.items():
        where = done.reshape(-1, *[1] * (value.ndim - 1))
        info |= {name: np.where(where, value, np.zeros_like(value)), f"_{name}": done.copy()}
    info |= {"task": names, "_task": done.copy(), **final_orders(tasks, indices, end, done)}
    return {
        "final_obs": observations,
        "_final_obs": done.copy(),
        "final_info": info,
        "_final_info": done.copy(),
    }


def with_flags(info: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Adds Gymnasium's ``_name`` flags: every environment has every entry."""
    flags = {f"_{name}": np.ones(len(value), bool) for name, value in info.items()}
    return {**info, **flags}


def as_slots(actions: Any, num_envs: int, num_actions: int) -> Int[np.ndarray, " B"]:
    """Returns actions as int32 [B]; those out of range become -1.

    Raises:
      TypeError: they are not integers.
      ValueError: their number is not `num_envs`.
    """
    if isinstance(actions, list | tuple) or getattr(actions, "dtype", None) == np.dtype(object):
        actions = [as_slot(action, num_actions) for action in actions]
    slots = np.asarray(actions)
    if not np.issubdtype(slots.dtype, np.integer):
        raise TypeError(f"actions are integer slots, got dtype {slots.dtype}")
    if slots.shape != (num_envs,):
        raise ValueError(f"expected actions of shape ({num_envs},), got {slots.shape}")
    legal = (slots >= 0) & (slots < num_actions)
    checked = np.full(slots.shape, -1, np.int32)
    checked[legal] = slots[legal]
    return checked


def check_autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """Returns the autoreset mode that a mode or its name stands for.

    Raises:
      ValueError: there is no such mode, or nothing would be reset.
    """
    known = {m.value: m for m in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP)}
    name = mode.value if isinstance(mode, AutoresetMode) else mode
    if name not in known:
        raise ValueError(f"autoreset_mode must be one of {', '.join(known)}, got {mode!r}")
    return known[name]
