"""The pretrained policy as a method of `veenv.search`: plays any graph without learning from it.

Found by veenv through the entry point ``policy`` of the group ``veenv.search_methods``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import resources

import jax

from agents.evaluation import GREEDY, Player
from agents.nn.networks import GraphNetwork
from agents.nn.weights import load_weights
from veenv.env import TaskDistribution
from veenv.graph.graph import CostModel, Graph

SAMPLES_AT_ONCE = 32


@cache
def pretrained() -> GraphNetwork:
    """The network that the package ships; how it was trained is in ``data/generalist.json``.

    Example:
      >>> pretrained() is pretrained()  # read once
      True
    """
    with resources.as_file(resources.files("agents") / "data" / "generalist.eqx") as path:
        return load_weights(path)


def policy_orders(graph: Graph, cost: CostModel, seed: int) -> Iterator[tuple[int, ...]]:
    """Orders of a graph that the pretrained policy plays.

    Args:
      graph: the graph.
      cost: the cost model.
      seed: seed of the sampling.

    Yields:
      The greedy order, then samples without end.

    Raises:
      ValueError: as `veenv.env.VertexEnv`.

    Example:
      >>> import jax.numpy as jnp
      >>> from veenv import make_graph
      >>> graph = make_graph(lambda x: jnp.sin(x) * jnp.cos(x) * x)(1.0)
      >>> graph.cost(next(policy_orders(graph, "multiplications", 0)))
      3
    """
    if not graph.eliminable:
        yield ()
        return
    tasks = TaskDistribution.of([graph], cost)
    player, network, key = Player(tasks.env), pretrained(), jax.random.key(seed)
    # The first batch also holds the greedy episode, and so do all others: one program.
    temperatures = [GREEDY] + [1.0] * SAMPLES_AT_ONCE
    batch = 0
    while True:
        batch_key = jax.random.fold_in(key, batch)
        played = player.play(network, tasks.task(0), batch_key, temperatures)
        for slots in played.order if batch == 0 else played.order[1:]:
            yield tasks.vertex_ids(0, slots)
        batch += 1
