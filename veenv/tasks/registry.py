"""Look-up of tasks by name."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from veenv import _gymnasium
from veenv.graph.program import plain_argnums
from veenv.tasks import (
    batched,
    black_scholes,
    dynamics,
    finite_volume,
    hard,
    kinetics,
    minpack,
    networks,
    random,
    recurrent,
    relativity,
    rising,
    robot_arm,
    roe,
    spiking,
    transformer,
    vision,
)
from veenv.tasks.evaluation_sets import set_names
from veenv.tasks.task import Task

_FAMILIES = (
    roe,
    robot_arm,
    minpack,
    black_scholes,
    networks,
    transformer,
    recurrent,
    spiking,
    relativity,
    dynamics,
    vision,
    kinetics,
    finite_volume,
    batched,
    random,
)

_BUILT_IN: Mapping[str, Task] = MappingProxyType(
    {task.name.casefold(): task for family in _FAMILIES for task in family.TASKS}
)
_HARD: Mapping[str, Task] = MappingProxyType(
    {task.name.casefold(): task for family in (hard, rising) for task in family.TASKS}
)
_ALIASES: Mapping[str, str] = MappingProxyType({"roeflux": "RoeFlux_1d"})

# Filled by register_task only, never on import.
_registered: dict[str, Task] = {}


def list_tasks() -> tuple[str, ...]:
    """Returns the names of the built-in tasks, then those registered by the user.

    Tasks of ``hard`` and ``rising`` are left out: `veenv.tasks.evaluation_sets` names them.

    Examples:
      >>> list_tasks()[:2]
      ('RoeFlux_1d', 'RoeFlux_3d')
    """
    return tuple(task.name for task in (*_BUILT_IN.values(), *_registered.values()))


def get(name: str) -> Task:
    """Finds a task.

    Args:
      name: name of a task; case does not matter, and ``RoeFlux`` means ``RoeFlux_1d``.

    Returns:
      The task.

    Raises:
      TypeError: it is no name.
      ValueError: no task has that name; the message suggests the nearest names, those of sets
        among them, or says that it is a set's.

    Examples:
      >>> get("roeflux").name
      'RoeFlux_1d'
    """
    if not isinstance(name, str):
        raise TypeError(
            f"expected a task's name, got {name!r}; for a function of your own, search an "
            "order with veenv.optimize"
        )
    key = name.casefold()
    key = _ALIASES.get(key, key).casefold()
    tasks = {**_BUILT_IN, **_HARD, **_registered}
    if key in tasks:
        return tasks[key]
    if name in set_names():
        raise ValueError(f"{name} is a set of tasks: veenv.sets({name!r})")
    names = {**_ALIASES, **{k: task.name for k, task in tasks.items()}}
    known = names | {name: name for name in set_names()}
    near = [k for k in known if k.startswith(key)][:3] or difflib.get_close_matches(
        key, known, cutoff=0.5
    )
    near = list(dict.fromkeys(known[k] for k in near))
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(list_tasks())}"
    raise ValueError(f"unknown task {name!r}; {hint}")


def register_task(
    name: str,
    fun: Callable[..., Any],
    example_args: Callable[[], tuple[Any, ...]] | tuple[Any, ...],
    argnums: int | Iterable[int] = 0,
    *,
    description: str = "",
    source: str = "",
    replace: bool = False,
) -> Task:
    """Makes a task of a name, a function and its arguments, which ``get`` then finds; returns it.

    Args:
      name: name, unique when case is ignored; of letters, digits, ``-``, ``_`` and ``.`` alone,
        Gymnasium takes it too.
      fun: pure JAX function.
      example_args: the point as a tuple of arguments of ``fun``, or a function that returns it.
      argnums: arguments to differentiate, as in ``jax.jacrev``.
      description: one sentence.
      source: where the equations come from.
      replace: replace an earlier task of the user with this name. Built-in tasks stay.

    Returns:
      The task.

    Raises:
      ValueError: the name is empty or taken, or ``argnums`` names no argument.
      TypeError: ``fun`` is not callable, or the point is not a tuple.

    Examples:
      >>> import numpy as np
      >>> register_task("square", lambda x: x**2, (np.array(3.0),), replace=True).argnums
      0
    """
    key = name.casefold()
    if not key.strip():
        raise ValueError("a task needs a name that is not empty")
    if key in _BUILT_IN or key in _HARD or key in _ALIASES:
        raise ValueError(f"task name {name!r} belongs to a built-in task")
    if key in _registered and not replace:
        raise ValueError(f"task name {name!r} is taken; pass replace=True to replace it")
    if not callable(fun):
        raise TypeError(f"fun of task {name!r} must be callable, got {type(fun).__name__}")

    point = example_args() if callable(example_args) else example_args
    if not isinstance(point, tuple):
        raise TypeError(
            f"example_args of task {name!r} must be (or return) a tuple with one entry for each "
            f"argument, got {type(point).__name__}"
        )
    wanted = plain_argnums(argnums)
    for argnum in (wanted,) if isinstance(wanted, int) else wanted:
        if not -len(point) <= argnum < len(point):
            raise ValueError(
                f"argnums of task {name!r} names argument {argnum}, but there are {len(point)}"
            )
    make_point = example_args if callable(example_args) else lambda: point
    _registered[key] = Task(name, fun, make_point, wanted, description, source)
    _gymnasium.announce(name)
    return _registered[key]
