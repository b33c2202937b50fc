"""Trains the score of `veenv.agents.policy` by evolution strategies on the costs of whole games.

A train step plays the same functions with weights that a random vector was added to, and with those
that it was taken from, many times; how the costs differ says how the weights should change
(Salimans et al. 2017), Adam by how much.  The cost of a game counts relative to the best classical
order of its graph, as a logarithm.  Every number follows from the seed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

import numpy as np

from veenv.env.rewards import classical_cost
from veenv.graph.graph import Graph
from veenv.graph.linearisation import make_graph
from veenv.search.heuristic.learned import NUM_FEATURES, Player, num_weights
from veenv.search.problem import prepare
from veenv.tasks.random_family import RandomFunctions

Kind = Literal["scalar", "arrays"]
"""Kinds of graphs, each with weights of its own."""

FAMILIES: dict[Kind, tuple[RandomFunctions, ...]] = {
    "scalar": (
        RandomFunctions(vertices=(20, 60)),
        RandomFunctions(vertices=(60, 300)),
        RandomFunctions(vertices=(100, 500), inputs=(8, 64), outputs=(8, 64)),
        RandomFunctions(
            vertices=(100, 500),
            inputs=(4, 32),
            outputs=(4, 32),
            fan_out=(1.4, 1.9),
            windows=(8, 200),
        ),
    ),
    "arrays": (
        RandomFunctions(vertices=(20, 60), arrays=1.0),
        RandomFunctions(vertices=(20, 60), inputs=(4, 16), outputs=(1, 8), arrays=1.0),
        RandomFunctions(vertices=(30, 120), inputs=(2, 12), outputs=(2, 12), arrays=1.0),
    ),
}
"""What functions are drawn from, in turn."""
VALIDATION_SEED = 2**31
"""First seed of the functions that a training is judged by; those it learns from are below."""


@dataclasses.dataclass(frozen=True)
class ScoreConfig:
    """Settings of the training of the score.

    Raises:
      ValueError: a number is not positive.
    """

    kind: Kind = "scalar"
    """Graphs of scalars or of arrays."""
    steps: int = 400
    """Train steps."""
    seed: int = 0
    """Seed of the weights and of the noise."""
    functions: int = 120
    """Random functions to learn from."""
    validation: int = 24
    """Random functions that the training is judged by."""
    hidden: int = 8
    """Hidden units of the network."""
    batch: int = 12
    """Functions that are played in a step."""
    pairs: int = 12
    """Noise vectors of a step, each added and taken away."""
    noise: float = 0.08
    """Standard deviation of the noise."""
    learning_rate: float = 0.03
    """Learning rate at the beginning; it falls to a tenth."""

    def __post_init__(self) -> None:
        """Checks every number."""
        for field in dataclasses.fields(ScoreConfig):
            value = getattr(self, field.name)
            may_be_0 = field.name in ("seed", "hidden", "steps")
            if field.name != "kind" and (value < 0 or (value == 0 and not may_be_0)):
                raise ValueError(f"{field.name} must be a positive number, got {value}")


@dataclasses.dataclass(frozen=True)
class Opponent:
    """A graph to play on, and what its best classical order costs.

    Attributes:
      player: plays on the graph.
      cost: of the best classical order.
    """

    player: Player
    cost: int

    @classmethod
    def of(cls, graph: Graph) -> Opponent:
        """Prepares a graph to be played."""
        return cls(Player(prepare(graph)), classical_cost(graph, "multiplications"))

    def play(self, weights: np.ndarray) -> float:
        """The logarithm of the cost of a game over that of the best classical order."""
        return float(np.log(max(self.player.play(weights)[1], 1) / max(self.cost, 1)))


def draw(kind: Kind, seed: int, number: int) -> list[Opponent]:
    """Graphs of random functions of a kind of `FAMILIES`, from a first seed on."""
    families, opponents = FAMILIES[kind], []
    for i in range(number):
        fun, point = families[i % len(families)].draw(seed + i)
        opponents.append(Opponent.of(make_graph(fun, tuple(range(len(point))))(*point)))
    return opponents


def first_weights(config: ScoreConfig, rng: np.random.Generator) -> np.ndarray:
    """Weights that play by least cost, with hidden units that do nothing yet, float64 [K]."""
    num_features = NUM_FEATURES[config.kind]
    weights = np.zeros(num_weights(config.hidden, num_features))
    weights[0] = 1.0
    for unit in weights[num_features:].reshape(config.hidden, num_features + 2):
        unit[:-1] = 0.3 * rng.normal(size=num_features + 1)
    return weights


def train_score(
    config: ScoreConfig, callback: Callable[[int, float, np.ndarray], None] | None = None
) -> tuple[np.ndarray, tuple[float, ...]]:
    """Trains a score.

    Args:
      config: the settings.
      callback: called after every step with the steps done, the mean logarithm of the costs of its
        games over those of the best classical orders, and the weights.

    Returns:
      The weights, float64 [K], and the mean of the same logarithms of the greedy games on the
      functions of validation, by family.
    """
    rng = np.random.default_rng(config.seed)
    learned = draw(config.kind, 0, config.functions)
    judged = draw(config.kind, VALIDATION_SEED, config.validation)
    weights = first_weights(config, rng)
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, config.steps + 1):
        chosen = rng.choice(len(learned), min(config.batch, len(learned)), replace=False)
        noise = rng.normal(size=(config.pairs, len(weights)))
        games = np.array(
            [
                [
                    [learned[i].play(weights + sign * config.noise * e) for i in chosen]
                    for e in noise
                ]
                for sign in (1, -1)
            ]
        )
        change = np.clip(games[0] - games[1], -0.5, 0.5).mean(1)
        slope = change @ noise / (2 * config.noise * config.pairs)
        mean, square = 0.9 * mean + 0.1 * slope, 0.99 * square + 0.01 * slope**2
        rate = config.learning_rate * (1.0 - 0.9 * step / config.steps)
        weights = weights - rate * (mean / (1 - 0.9**step)) / (
            np.sqrt(square / (1 - 0.99**step)) + 1e-8
        )
        if callback is not None:
            callback(step, float(games.mean()), weights)
    logs = np.array([opponent.play(weights) for opponent in judged])
    number = len(FAMILIES[config.kind])
    first = range(min(number, len(judged)))
    return weights, tuple(float(logs[k::number].mean()) for k in first)
