"""Named sets of functions with which policies and searches are trained and compared.

Two sets never change: ``core`` and ``real`` (`FIXED`), on which the leaderboard compares.  The
others are to train with and to try methods on.

The best order that is known of each function comes with the package, found by the fingerprint of
the graph; every use counts it again.  `scripts/data/refresh_references.py` searches for better ones
and writes which functions are in which set.  A function is in its test set where every classical
order costs at least 3 % more than the best one known.  What is proved to have no cheaper order is
in the set ``solved`` instead.  These two rules are not for the fixed sets.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from veenv.graph.graph import Graph
from veenv.orders.order import fingerprint
from veenv.tasks import hard, rising
from veenv.tasks.random_family import RandomFunctions

TRAIN_SUFFIX = "-train"
"""Suffix of a training set's name."""

FIRST_TEST_SEED = 2**32 + 2**31
"""First seed of test sets; training draws with seeds below 2**32 only."""

LEAST_GAIN = 1.03
"""Least ratio of the best classical order to the best one known in a test set."""

_SMALL = RandomFunctions(vertices=(20, 60))
FAMILIES = {
    "scalar-small": (_SMALL, 50),
    "scalar-large": (RandomFunctions(vertices=(150, 300)), 40),
    "arrays": (dataclasses.replace(_SMALL, arrays=1.0), 20),
}
"""Family and number of functions of each set of random functions."""
CANDIDATES = {
    "named": (
        "RoeFlux_1d",
        "RoeFlux_3d",
        "RobotArm_6DOF",
        "HumanHeartDipole",
        "PropaneCombustion",
        "BlackScholes_Jacobian",
        "KerrMetric_Jacobian",
        "mlp",
        "Encoder",
        "EncoderDecoder",
        "LSTM",
        "LIF",
        "ALIF",
        "DoublePendulum_RK4",
        "VanDerPol_RK4",
        "Lorenz96_RK4",
        "Reprojection",
        "Robertson",
        "HydrogenOxygen",
        "EulerResidual_32",
    ),
    "hard": tuple(task.name for task in hard.TASKS),
    "rising": tuple(task.name for task in rising.TASKS),
}
"""Candidate tasks of each test set that `scripts/data/refresh_references.py` chooses."""
SOLVED = "solved"
"""Name of the set of functions whose known order is proved optimal."""
FIXED = {
    "core": (
        "RobotArm_6DOF",
        "Encoder",
        "RoeFlux_3d",
        "HumanHeartDipole",
        "RoeFlux_1d",
        "LennardJones_Verlet",
        "FermiPastaUlam",
        "HydrogenOxygen",
        "EulerResidual_32",
        "Localisation_EKF",
    ),
    "real": (
        "Lorenz96_RK4",
        "Reprojection",
        "GRU_Unrolled",
        "HighIrradiance_RK4",
        "Satellite_RK4",
        "Brusselator_6",
        "InverseDynamics_7DOF",
        "Schwarzschild_RK4",
    ),
}
"""Functions of the sets that never change; they were drawn once, by these rules.

The draw sorts names by the hexadecimal SHA-256 of ``veenv SET NAME`` in UTF-8.  It knows the
candidates of ``named`` and the 24 functions of ``hard``, without those that JAX's versions trace to
different graphs (`TRACED_DIFFERENTLY`), and without those of which a classical order costs less
than `LEAST_GAIN` times the least cost known: there is little to find.

``core`` has ten functions, in this order: the first five whose counts the paper of AlphaGrad prints
(`PUBLISHED`); the first two of ``hard`` with more than 600 vertices to eliminate; the first two
other ones of ``named`` with arrays, because ``hard`` has scalars only; and the first other one of
``hard``.

``real`` has eight functions, of at least 30 vertices, that are not in ``core`` and resemble neither
one in ``core`` nor each other (`SIMILAR`): the first two with arrays, and then the first six
without.  They are held out: methods are not to be tuned on them.
"""
PUBLISHED = {
    "RoeFlux_1d": (320, 324),
    "RobotArm_6DOF": (231, 245),
    "HumanHeartDipole": (148, 161),
    "PropaneCombustion": (88, 92),
    "BlackScholes_Jacobian": (311, 307),
    "RoeFlux_3d": (784, 877),
    "mlp": (389, 422),
    "Encoder": (4656, 5741),
}
"""Multiplications that the paper of AlphaGrad prints for the best order of AlphaZero and of PPO
(Lohoff and Neftci, 2024)."""
TRACED_DIFFERENTLY = ("BlackScholes_Jacobian", "KerrMetric_Jacobian")
"""Candidates whose graph depends on the version of JAX."""
SIMILAR = (
    ("RoeFlux_1d", "RoeFlux_3d"),
    ("Encoder", "EncoderDecoder", "Attention_TwoLayers"),
    ("LSTM", "GRU_Unrolled"),
    ("LIF", "ALIF"),
    ("Reprojection", "BundleAdjustment_6"),
    ("KalmanSmoother", "Localisation_EKF"),
    ("CircadianClock_RK4", "Repressilator_RK4"),
    ("HighIrradiance_RK4", "Pollution_RK4"),
    ("LennardJones_Verlet", "ThreeBodies_RK4"),
)
"""Groups of functions that resemble each other: ``real`` has at most one of each."""


@dataclasses.dataclass(frozen=True)
class EvaluationSet:
    """A named set of functions.

    Attributes:
      name: of the set.
      seed: seed of the draws of random functions.
      family: where random functions come from; None for named tasks.
      tasks: names of tasks, and of random functions of other sets, such as ``"arrays 3"``.
      draws: numbers of the draws of the family, where there is one.
    """

    name: str
    seed: int
    family: RandomFunctions | None
    tasks: tuple[str, ...] = ()
    draws: tuple[int, ...] = ()

    @property
    def number(self) -> int:
        """Number of functions."""
        return len(self.functions)

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of the functions, as in tables."""
        return self.tasks or tuple(f"{self.name} {draw}" for draw in self.draws)


@dataclasses.dataclass(frozen=True)
class Known:
    """Known costs of a function, in multiplications: classical, best and proved bound.

    Attributes:
      task: its name, or set and draw of a random function.
      classical: cost of the cheapest of forward, reverse, Markowitz' rule and the greedy one by
        cost.
      rule: which of them that is.
      cost: of the cheapest order known.
      bound: proved: no order costs less.
      order: vertex ids of the cheapest order.
      first: what the first search found, with nothing to start from.
      pieces: how many searches there were.
      tried: time of the longest attempt at a proof.
      seconds: processor time of all of them.
      found_by: what found the order.
      jax: the version that traced the graph.
    """

    task: str
    classical: int
    rule: str
    cost: int
    bound: int
    order: tuple[int, ...]
    first: int | None = None
    pieces: int = 0
    tried: str = ""
    seconds: float = 0.0
    found_by: str = ""
    jax: str = ""

    @property
    def gain(self) -> float:
        """Ratio of the best classical order's cost to that of the best known order."""
        return self.classical / max(self.cost, 1)

    @property
    def solved(self) -> bool:
        """True if it is proved that no order is cheaper."""
        return self.cost == self.bound


def known_of(graph: Graph) -> Known | None:
    """Returns the known costs of a function of any set, with its order counted on this graph.

    Args:
      graph: the function's graph.

    Returns:
      None if no set has this very graph, or this version of JAX traces the function to another one.

    Raises:
      ValueError: the order that comes with the package is none of this graph.

    Examples:
      >>> from veenv.env.factory import task_graph
      >>> known = known_of(task_graph("RobotArm_6DOF"))
      >>> known.cost, known.solved, f"{known.gain:.2f}"
      (221, True, '1.30')
    """
    known = _all_known().get(fingerprint(graph))
    if known is None:
        return None
    return dataclasses.replace(known, cost=graph.cost(graph.check_order(known.order)))


def reference(graph: Graph) -> int | None:
    """Returns the least known cost of a function of any set, in multiplications.

    Args:
      graph: the function's graph.

    Returns:
      None where `known_of` knows nothing.
    """
    known = known_of(graph)
    return None if known is None else known.cost


def set_names() -> tuple[str, ...]:
    """Returns the names of the sets.

    Examples:
      >>> set_names()[:4]
      ('core', 'real', 'scalar-small', 'scalar-small-train')
    """
    random = [name + suffix for name in FAMILIES for suffix in ("", TRAIN_SUFFIX)]
    return (*FIXED, *random, *CANDIDATES, SOLVED)


def evaluation_set(name: str) -> EvaluationSet:
    """Finds a set by its name.

    Args:
      name: one of `set_names()`: a test set, or, ending in ``-train``, functions of the same
        family to train with. Sets of tasks have none: they are held out.

    Raises:
      ValueError: there is no such set.

    Examples:
      >>> evaluation_set("arrays").number, evaluation_set("core").tasks[0]
      (20, 'RobotArm_6DOF')
    """
    if name in FIXED:
        return EvaluationSet(name, 0, None, FIXED[name])
    if name in CANDIDATES or name == SOLVED:
        return EvaluationSet(name, 0, None, tuple(_document()["sets"].get(name, ())))
    base = name.removesuffix(TRAIN_SUFFIX)
    if base not in FAMILIES:
        raise ValueError(f"unknown set {name!r}; known: {', '.join(set_names())}")
    family, number = FAMILIES[base]
    position = tuple(FAMILIES).index(base)
    if name != base:
        return EvaluationSet(name, position, family, draws=tuple(range(number)))
    draws = tuple(int(task.split()[1]) for task in _document()["sets"].get(name, ()))
    return EvaluationSet(name, FIRST_TEST_SEED + position, family, draws=draws)


def drawn_from(name: str) -> EvaluationSet | None:
    """Returns the one-function set of a name like ``"arrays 3"``; None for a task's name.

    Examples:
      >>> drawn_from("arrays 3").draws, drawn_from("mlp")
      ((3,), None)
    """
    base, _, draw = name.partition(" ")
    if base not in FAMILIES or not draw.isdecimal():
        return None
    return dataclasses.replace(evaluation_set(base), draws=(int(draw),))


def read_known(document: Mapping[str, Any]) -> dict[str, Known]:
    """Returns the known costs in a file of references, by fingerprint.

    Raises:
      TypeError: it holds something else.
    """
    return {
        key: Known(**{**one, "order": tuple(one["order"])})
        for key, one in document["known"].items()
    }


@cache
def _all_known() -> Mapping[str, Known]:
    """Returns the known costs that come with the package."""
    return read_known(_document())


@cache
def _document() -> Mapping[str, Mapping[str, Any]]:
    """Reads the functions of every test set, and their known costs by fingerprint."""
    path = resources.files("veenv.tasks") / "data" / "references.json"
    return json.loads(path.read_text(encoding="utf-8"))
