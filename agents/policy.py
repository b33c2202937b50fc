"""The pretrained policy, a small network, as a method of `veenv.search`: plays without learning.

Greedy games by a score that a small network was trained to give
(`veenv.search.heuristic.learned`): it sees the surroundings of a vertex only, so a game takes about
as long as its eliminations, on 10,000 vertices as on 100.  The weights that the package ships, of
graphs of scalars and of arrays, are in ``data``, with how they were made
(`veenv.agents.training.score`).

Found by veenv through the entry point ``policy`` of the group ``veenv.search_methods``.
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

SPREAD = (0.1, 0.2, 0.3)
"""Standard deviations of the noise on the weights of sampled games, in turn."""


@cache
def pretrained(kind: str) -> np.ndarray:
    """The weights that the package ships, float64 [K].

    Args:
      kind: of graphs, ``"scalar"`` or ``"arrays"``.

    Examples:
      >>> pretrained("scalar") is pretrained("scalar")  # read once
      True
    """
    path = resources.files("veenv.agents") / "data" / f"policy-{kind}.json"
    return np.asarray(json.loads(path.read_text(encoding="utf-8"))["weights"], np.float64)


def policy_orders(
    graph: Graph, cost: CostModel, seed: int, weights: np.ndarray | None = None
) -> Iterator[tuple[int, ...]]:
    """Yields orders without end: the greedy game's, then those of games with noise on the weights.

    Args:
      graph: the graph.
      cost: the cost model.
      seed: seed of the noise.
      weights: float64 [K]; those that the package ships by default.

    Yields:
      Vertex ids, without end.

    Raises:
      ValueError: as `veenv.search.problem.prepare`.

    Examples:
      >>> import jax.numpy as jnp
      >>> from veenv import make_graph
      >>> graph = make_graph(lambda x: jnp.sin(x) * jnp.cos(x) * x)(1.0)
      >>> graph.cost(next(policy_orders(graph, "multiplications", 0)))
      3
    """
    if not graph.eliminable:
        yield ()
        return
    problem, rng = prepare(graph, cost), np.random.default_rng(seed)
    if weights is None:
        weights = pretrained("scalar" if problem.tables is None else "arrays")
    player = Player(problem)
    yield problem.to_ids(player.play(weights)[0])
    game = 0
    while True:
        noise = SPREAD[game % len(SPREAD)] * rng.normal(size=weights.shape)
        yield problem.to_ids(player.play(weights + noise)[0])
        game += 1
