"""Named sets of functions with which policies and searches are trained and compared.

A test set comes with reference costs: those of long annealing, for the graphs that JAX traced when
they were found; `scripts/data/refresh_references.py` makes them.  Random functions are left out
on which long annealing finds nothing below the best classical order: there a policy and a search
cannot show anything.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from veenv.graph.graph import Graph
from veenv.orders.order import fingerprint
from veenv.tasks import hard
from veenv.tasks.random_family import RandomFunctions

TRAIN_SUFFIX = "-train"
"""What the name of a training set ends with."""

FIRST_TEST_SEED = 2**32 + 2**31
"""Test sets are drawn with seeds from here on; no training draws with one above 2**32."""

_SMALL = RandomFunctions(vertices=(20, 60))
_FAMILIES = {
    "scalar-small": (_SMALL, 50),
    "scalar-large": (RandomFunctions(vertices=(150, 300)), 10),
    "arrays": (dataclasses.replace(_SMALL, arrays=1.0), 20),
}
_NAMED = {
    "real": (
        "RoeFlux_1d",
        "RobotArm_6DOF",
        "HumanHeartDipole",
        "PropaneCombustion",
        "BlackScholes_Jacobian",
        "KerrMetric_Jacobian",
        "mlp",
        "LSTM",
    ),
    "hard": tuple(task.name for task in hard.TASKS),
}
BUDGETS = {"hard": ("1m", "10m", 1_000_000, 10_000_000)}
"""After what learners and searches are compared on a set: times, and environment steps."""


@dataclasses.dataclass(frozen=True)
class EvaluationSet:
    """A fixed set of functions.

    Attributes:
      name: of the set.
      seed: seed of the draws of random functions.
      number: how many functions.
      family: where random functions come from; None for named tasks.
      tasks: names of tasks; none for random functions.
      left_out: draws of the family that are not in the set.
    """

    name: str
    seed: int
    number: int
    family: RandomFunctions | None
    tasks: tuple[str, ...] = ()
    left_out: tuple[int, ...] = ()

    @property
    def draws(self) -> tuple[int, ...]:
        """Which draws of the family are in the set, from 0 on, in order."""
        drawn = (k for k in itertools.count() if k not in self.left_out)
        return tuple(itertools.islice(drawn, self.number))

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of the functions: of tasks, or the numbers of draws."""
        return self.tasks or tuple(map(str, self.draws))


def reference(graph: Graph) -> int | None:
    """The cost that long annealing found for a function of any set, in multiplications.

    Args:
      graph: the function's graph.

    Returns:
      None if no test set has this very graph, or this version of JAX traces the function to
      another one.
    """
    return _references().get(fingerprint(graph))


def set_names() -> tuple[str, ...]:
    """Names of the sets.

    Examples:
      >>> set_names()[:2]
      ('scalar-small', 'scalar-small-train')
    """
    random = [name + suffix for name in _FAMILIES for suffix in ("", TRAIN_SUFFIX)]
    return (*random, *_NAMED)


def evaluation_set(name: str) -> EvaluationSet:
    """Finds a set.

    Args:
      name: one of `set_names`: a test set, or, ending in ``-train``, functions of the same
        family to train with. ``real`` and ``hard`` have none: their tasks are held out.

    Raises:
      ValueError: there is no such set.

    Examples:
      >>> evaluation_set("arrays").number, evaluation_set("real").tasks[0]
      (20, 'RoeFlux_1d')
    """
    if name in _NAMED:
        return EvaluationSet(name, 0, len(_NAMED[name]), None, _NAMED[name])
    base = name.removesuffix(TRAIN_SUFFIX)
    if base not in _FAMILIES:
        raise ValueError(f"unknown set {name!r}; known: {', '.join(set_names())}")
    family, number = _FAMILIES[base]
    position = tuple(_FAMILIES).index(base)
    if name != base:
        return EvaluationSet(name, position, number, family)
    left_out = tuple(_document()["left_out"].get(name, ()))
    return EvaluationSet(name, FIRST_TEST_SEED + position, number, family, left_out=left_out)


@cache
def _references() -> dict[str, int]:
    """Reference costs by fingerprint."""
    known = (one for functions in _document()["sets"].values() for one in functions.values())
    return {one["fingerprint"]: int(one["cost"]) for one in known}


@cache
def _document() -> Mapping[str, Mapping[str, Any]]:
    """Reference costs by set and function, and the draws that are left out by set."""
    path = resources.files("veenv.tasks") / "data" / "references.json"
    return json.loads(path.read_text(encoding="utf-8"))
