"""The pretrained policy as a method of `veenv.search`: plays any graph without learning from it.

Found by veenv through the entry point ``policy`` of the group ``veenv.search_methods``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from importlib import resources

import jax

from agents.evaluation import GREEDY, Player
from agents.large import large_orders
from agents.nn.networks import GraphNetwork
from agents.nn.weights import load_weights
from veenv.env import Spec, TaskDistribution
from veenv.graph.graph import CostModel, Graph

SAMPLES_AT_ONCE = 32
"""Episodes that are sampled together."""
MOST_PLAYERS = 8
"""Sizes of graphs whose compiled programs are kept."""
LARGE = 128
"""Vertices above which `agents.large` plays, which sees a vertex's surroundings only."""


@cache
def pretrained() -> GraphNetwork:
    """The network that the package ships; how it was trained is in ``data/generalist.json``.

    Example:
      >>> pretrained() is pretrained()  # read once
      True
    """
    with resources.as_file(resources.files("agents") / "data" / "generalist.eqx") as path:
        return load_weights(path)


def policy_orders(graph: Graph, cost: CostModel, seed: int) -> Iterator[tuple[int, ...] | None]:
    """Orders of a graph that the pretrained policy plays; above `LARGE` vertices that for them.

    Args:
      graph: the graph.
      cost: the cost model.
      seed: seed of the sampling.

    Yields:
      The greedy order, then samples without end; None every few steps of the episodes.

    Raises:
      ValueError: as `veenv.env.VertexEnv`.

    Example:
      >>> import jax.numpy as jnp
      >>> from veenv import make_graph
      >>> graph = make_graph(lambda x: jnp.sin(x) * jnp.cos(x) * x)(1.0)
      >>> orders = policy_orders(graph, "multiplications", 0)
      >>> graph.cost(next(order for order in orders if order is not None))
      3
    """
    if not graph.eliminable:
        yield ()
        return
    if len(graph.eliminable) > LARGE:
        yield from large_orders(graph, cost, seed)
        return
    tasks = TaskDistribution.of([graph], cost)
    player, network, key = _player(tasks), pretrained(), jax.random.key(seed)
    num_samples = SAMPLES_AT_ONCE
    steps = 16
    # The first batch also holds the greedy episode, and so do all others: one program.
    temperatures = [GREEDY] + [1.0] * num_samples
    for batch in itertools.count():
        batch_key = jax.random.fold_in(key, batch)
        params = tasks.task(0)
        for played in player.play_in_parts(network, params, batch_key, temperatures, steps):
            if played is None:
                yield None
                continue
            for slots in played.order if batch == 0 else played.order[1:]:
                yield tasks.vertex_ids(0, slots)


_players: dict[tuple[Spec, CostModel], Player] = {}
"""Players of the last few sizes, whose programs are compiled."""


def _player(tasks: TaskDistribution) -> Player:
    """A player of graphs of the size of a task's."""
    key = tasks.env.spec, tasks.env.cost
    if key not in _players:
        while len(_players) >= MOST_PLAYERS:
            _players.pop(next(iter(_players)), None)
        _players[key] = Player(tasks.env)
    return _players[key]
