"""The policy for large graphs: greedy games by a score that a small network was trained to give.

The score (`veenv.search.heuristic.learned`) sees the surroundings of a vertex only, so a game takes
about as long as its eliminations, on 10,000 vertices as on 100.  The weights that the package ships
are in ``data/large.json``, with how they were made: `train`, by evolution strategies on the costs
of whole games, relative to the best classical order of each graph.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib import resources

import numpy as np

from veenv.graph.graph import CostModel, Graph
from veenv.search.heuristic.learned import Player
from veenv.search.problem import prepare

_SPREAD = (0.05, 0.1, 0.2)
"""Standard deviations of the noise on the weights of sampled games, in turn."""


@cache
def pretrained_score() -> np.ndarray:
    """The weights that the package ships, float64 [K].

    Example:
      >>> pretrained_score().ndim
      1
    """
    text = (resources.files("agents") / "data" / "large.json").read_text(encoding="utf-8")
    return np.asarray(json.loads(text)["weights"], np.float64)


def large_orders(
    graph: Graph, cost: CostModel, seed: int, weights: np.ndarray | None = None
) -> Iterator[tuple[int, ...]]:
    """Orders of a graph of any size: the greedy game, then games of weights with noise on them.

    Args:
      graph: the graph.
      cost: the cost model.
      seed: seed of the noise.
      weights: float64 [K]; those that the package ships by default.

    Yields:
      Vertex ids, without end.

    Raises:
      ValueError: as `veenv.search.problem.prepare`.

    Example:
      >>> import jax.numpy as jnp
      >>> from veenv import make_graph
      >>> graph = make_graph(lambda x: jnp.sin(x) * jnp.cos(x) * x)(1.0)
      >>> graph.cost(next(large_orders(graph, "multiplications", 0)))
      3
    """
    weights = pretrained_score() if weights is None else weights
    problem, rng = prepare(graph, cost), np.random.default_rng(seed)
    player = Player.of(problem)
    yield problem.to_ids(player.play(weights)[0])
    game = 0
    while True:
        noise = _SPREAD[game % len(_SPREAD)] * rng.normal(size=weights.shape)
        yield problem.to_ids(player.play(weights + noise)[0])
        game += 1
