"""Checks of the environment's arguments: actions of any integer type, states and params."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from veenv.env.encode import EnvParams
from veenv.env.state import State


def chosen_params(params: EnvParams | None, default: EnvParams) -> EnvParams:
    """Returns the params to play with: the caller's, or the default.

    Args:
      params: the caller's; None for the environment's own.
      default: the environment's; shaped rewards and their scale may differ, and be there alone.

    Raises:
      ValueError: if they were encoded for another `Spec`, saying what differs, or lack what the
        environment's rewards are made with.
    """
    if params is None or params is default:
        return default
    for option, name in (("shaping", "reference"), ("normalise", "scale")):
        if getattr(params, name) is None and getattr(default, name) is not None:
            raise ValueError(
                f"these params have no {name}, which the environment's rewards need: encode the "
                f"graph with env.encode, or make the environment without {option}"
            )
    actual, expected = (_shapes(replace(p, reference=None, scale=None)) for p in (params, default))
    if params.reference is not None:
        actual["reference"] = params.reference.shape
        expected["reference"] = default.vertex_ids.shape
    if difference := _difference(actual, expected):
        raise ValueError(
            f"these params are of another Spec: {difference}; encode the graph with env.encode, "
            "and pick one task's from stacked params (veenv.env.task_set.pick_params)"
        )
    return params


def check_state(state: State, params: EnvParams) -> None:
    """Checks that a state is of one episode and of the same sizes as the params.

    Raises:
      TypeError: it is no `State`, but an observation for example.
      ValueError: it is of another environment, or of several episodes, saying what differs.
    """
    if not isinstance(state, State):
        raise TypeError(
            f"expected the State that reset and step return beside the observation, got "
            f"{type(state).__name__}"
        )
    if shape := jnp.shape(state.num_steps):
        raise ValueError(
            f"expected the state of one episode, got those of {shape}; use jax.vmap, or pick "
            "episode k with jax.tree.map(lambda x: x[k], states)"
        )
    actual = _shapes((state.core, state.action_mask))
    expected = _shapes((params.initial, params.vertex_ids))
    if difference := _difference(actual, expected):
        number, wanted = len(state.action_mask), len(params.vertex_ids)
        what = "another function or cost model, expected those of this one"
        if number != wanted:
            what = f"{number} actions, expected {wanted}"
        raise ValueError(
            f"this state is of another environment: it has {what} ({difference}); begin with this "
            "environment's reset"
        )


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    """Returns the shape of every array, by its name."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path).lstrip("."): jnp.shape(leaf) for path, leaf in leaves}


def _difference(actual: dict[str, Any], expected: dict[str, Any]) -> str:
    """Describes the first array of another shape than expected; empty where all have theirs."""
    for name in (*expected, *(actual.keys() - expected.keys())):
        if actual.get(name) != expected.get(name):
            return f"{name} has shape {actual.get(name)}, expected {expected.get(name)}"
    return ""


def to_slot(action: Any, num_actions: int) -> Int[Array, ""]:
    """Returns an action as an int32 slot; -1 for an integer that is none, however large.

    What is not on the device is compared on the host: handed to JAX first, an integer of 64
    bits would lose half of them unless 64-bit types are enabled. (A caller's own `jax.jit` or
    `jax.vmap` does just that to NumPy's int64 before this function sees it.)

    Args:
      action: the action.
      num_actions: number of slots.

    Raises:
      TypeError: if it is not an integer.
      ValueError: if it is an array with axes.
    """
    if isinstance(action, jax.Array):
        narrowed = jax.dtypes.canonicalize_dtype(action.dtype) != action.dtype
        if narrowed and not isinstance(action, jax.core.Tracer):
            action = np.asarray(action)
    if not isinstance(action, jax.Array):
        if not hasattr(action, "dtype") and hasattr(action, "__index__"):
            index = None if isinstance(action, bool) else operator.index(action)
        else:
            action = np.asarray(action)
            is_integer = np.issubdtype(action.dtype, np.integer) and not action.ndim
            index = int(action) if is_integer else None
        if index is not None:
            return jnp.asarray(index if 0 <= index < num_actions else -1, jnp.int32)
        action = np.asarray(action)
    if not jnp.issubdtype(action.dtype, jnp.integer):
        raise TypeError(
            f"an action is an integer slot, got dtype {action.dtype}; write int(action)"
        )
    if action.ndim:
        raise ValueError(f"an action is one slot (use jax.vmap for several), got {action.shape}")
    action = jnp.asarray(action)
    action = action if action.dtype.itemsize >= 4 else action.astype(jnp.int32)
    in_range = (action >= 0) & (action < num_actions)
    return jnp.where(in_range, action, 0).astype(jnp.int32) - (~in_range).astype(jnp.int32)
