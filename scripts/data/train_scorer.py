"""Weights of `veenv.orders.scored`: ``python scripts/data/train_scorer.py``, ten minutes or so.

First the score imitates good orders of training sets: of the vertices that are left, the one that
the order takes is to be likelier than the others (Luce's choice model).  Then a cross-entropy
method lowers what its own orders cost.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import tyro
from jaxtyping import Float

from veenv.env import TaskDistribution
from veenv.env.rewards import classical_cost
from veenv.graph.graph import CostModel, Graph
from veenv.graph.tableau import Tableau
from veenv.orders.scored import NUM_FEATURES, features, places, scored_order
from veenv.search import search

COST: CostModel = "operations"
SETS = {"scalar-small-train": 50, "scalar-large-train": 14}

Choice = tuple[Float[np.ndarray, "n F"], int]
"""The features of the vertices that are left, and which of them an order takes."""


def choices(graph: Graph, order: Sequence[int], draw: random.Random) -> list[Choice]:
    """Twelve choices of an order, drawn by chance."""
    where, left, drawn = places(graph), {graph.node(v) for v in order}, []
    wanted = set(draw.sample(range(len(order)), min(12, len(order))))

    edges = [(u, v, not s.unit) for (u, v), s in graph.structures(COST).items()]
    tableau: Tableau[bool] = Tableau(graph.num_nodes, edges)
    for step, vertex in enumerate(order):
        node = graph.node(vertex)
        if step in wanted and len(left) > 1:
            nodes = sorted(left)
            seen = np.array([features(tableau, other, where[other]) for other in nodes])
            drawn.append((seen, nodes.index(node)))
        left.discard(node)
        tableau.eliminate(
            node, lambda a, b: a or b, lambda a, b: True, keep=node in graph.output_nodes
        )
    return drawn


def imitate(data: Sequence[Choice], steps: int = 400) -> Float[np.ndarray, " F"]:
    """The likeliest weights, by Adam; the least score is taken."""
    weights, mean, square = np.zeros(NUM_FEATURES), np.zeros(NUM_FEATURES), np.zeros(NUM_FEATURES)
    for _ in range(steps):
        slope = 1e-3 * weights
        for seen, pick in data:
            odds = np.exp(np.min(seen @ weights) - seen @ weights)
            slope = slope + (seen[pick] - odds @ seen / odds.sum()) / len(data)
        mean, square = 0.9 * mean + 0.1 * slope, 0.99 * square + 0.01 * slope**2
        weights = weights - 0.05 * mean / (np.sqrt(square) + 1e-8)
    return weights


def evolve(
    graphs: Sequence[Graph], first: Float[np.ndarray, " F"], generations: int
) -> Float[np.ndarray, " F"]:
    """Weights of cheaper orders: what is saved next to the classical orders counts ten times."""
    classical = [classical_cost(graph, COST) for graph in graphs]

    def loss(weights: Float[np.ndarray, " F"]) -> float:
        orders = (scored_order(graph, weights.tolist()) for graph in graphs)
        costs = [graph.cost(order, COST) for graph, order in zip(graphs, orders, strict=True)]
        ratio = np.log(np.array(costs) / classical)
        return float((np.minimum(ratio, 0) + 0.1 * ratio).mean())

    draw, best = np.random.default_rng(0), (loss(first), first)
    mean, spread = first, np.full(NUM_FEATURES, 0.3)
    for generation in range(generations):
        tried = [mean + spread * draw.normal(size=NUM_FEATURES) for _ in range(12)]
        ranked = sorted([(loss(one), k, one) for k, one in enumerate(tried)])[:4]
        best = min(best, (ranked[0][0], ranked[0][2]), key=lambda pair: pair[0])
        elite = np.array([one for _, _, one in ranked] + [best[1]])
        mean, spread = elite.mean(0), 0.7 * spread + 0.3 * (elite.std(0) + 0.02)
        print(f"{generation}: {best[0]:.4f} {np.round(best[1], 3).tolist()}", flush=True)
    return best[1]


def main(generations: int = 40, seconds: str = "0.3s") -> None:
    """Prints the weights.

    Args:
      generations: of twelve weights each.
      seconds: budget of the search for an order to imitate.
    """
    draw, graphs, data = random.Random(0), [], []
    for name, number in SETS.items():
        graphs += TaskDistribution.of(name).graphs[:number]
    for graph in graphs:
        data += choices(graph, search(graph, cost=COST, budget=seconds, seed=0).order, draw)
    evolve(graphs, imitate(data), generations)


if __name__ == "__main__":
    tyro.cli(main)
