"""What the agent trains on: one or several graphs in one padded environment."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from veenv.env import EnvParams, Spec, VertexEnv
from veenv.env.task_set import TaskDistribution
from veenv.graph.graph import CostModel, Graph


@dataclasses.dataclass(frozen=True)
class Game:
    """The graphs, and the environment that plays all of them.

    Attributes:
      names: name of each graph (K of them).
      graphs: the graphs.
      cost: the cost model.
      env: the environment, padded to the largest graph.
      params: the graphs as data, every array with a leading axis [K].
      classical: for each graph the cost of the orders forward, reverse and Markowitz, by name.

    Example:
      >>> import veenv
      >>> game = make_game({"f": veenv.make_graph(lambda x: jnp.sin(jnp.exp(x)) * x)(1.0)})
      >>> game.vertex_ids(0, [1, 0, -1])
      (2, 1)
    """

    names: tuple[str, ...]
    graphs: tuple[Graph, ...]
    cost: CostModel
    env: VertexEnv
    params: EnvParams
    classical: tuple[Mapping[str, int], ...]

    @property
    def scales(self) -> Float[Array, " K"]:
        """What rewards are divided by: each graph's best classical cost, float32 [K]."""
        return jnp.asarray([max(1, min(c.values())) for c in self.classical], jnp.float32)

    def params_of(self, index: int) -> EnvParams:
        """The params of one graph."""
        return jax.tree.map(lambda x: x[index], self.params)

    def vertex_ids(self, index: int, slots: Any) -> tuple[int, ...]:
        """The vertex ids of a sequence of slots of one graph; padding (-1) is left out."""
        ids = self.graphs[index].eliminable
        return tuple(ids[int(slot)] for slot in slots if slot >= 0)


def make_game(
    graphs: Mapping[str, Graph] | Sequence[tuple[str, Graph]], cost: CostModel = "multiplications"
) -> Game:
    """Puts graphs into one environment.

    Args:
      graphs: the graphs by name.
      cost: the cost model.

    Returns:
      The game.

    Raises:
      ValueError: there are none, one has nothing to eliminate, or as `VertexEnv`.

    Example:
      >>> import veenv
      >>> game = make_game({"f": veenv.make_graph(lambda x: jnp.sin(jnp.exp(x)) * x)(1.0)})
      >>> game.names, game.classical
      (('f',), ({'forward': 2, 'reverse': 2, 'Markowitz': 2},))
    """
    pairs = list(graphs.items() if isinstance(graphs, Mapping) else graphs)
    if not pairs:
        raise ValueError("a game needs at least one graph")
    for name, graph in pairs:
        if not graph.eliminable:
            raise ValueError(f"{name} has no vertex to eliminate, so there is nothing to learn")
    spec = Spec.common([Spec.of(graph, cost) for _, graph in pairs])
    env = VertexEnv(pairs[0][1], cost, spec=spec)
    encoded = [env.encode(graph) for _, graph in pairs]
    return Game(
        names=tuple(name for name, _ in pairs),
        graphs=tuple(graph for _, graph in pairs),
        cost=cost,
        env=env,
        params=jax.tree.map(lambda *xs: jnp.stack(xs), *encoded),
        classical=tuple(classical_costs(graph, cost) for _, graph in pairs),
    )


def pool_game(pool: TaskDistribution) -> Game:
    """The game of a task distribution, such as a pool of random functions.

    Args:
      pool: the tasks.

    Example:
      >>> pool = TaskDistribution.random(0, 3, vertices=(5, 9), inputs=(2, 3))
      >>> len(pool_game(pool).graphs)
      3
    """
    cost = pool.env.cost
    classical = tuple(classical_costs(graph, cost) for graph in pool.graphs)
    return Game(pool.names, pool.graphs, cost, pool.env, pool.params, classical)


def classical_costs(graph: Graph, cost: CostModel = "multiplications") -> dict[str, int]:
    """Costs of the forward, reverse and Markowitz orders, by name.

    Args:
      graph: the graph.
      cost: the cost model.

    Example:
      >>> import veenv
      >>> task = veenv.tasks.get("RoeFlux_1d")
      >>> classical_costs(veenv.make_graph(task.fun, task.argnums)(*task.example_args()))
      {'forward': 620, 'reverse': 364, 'Markowitz': 407}
    """
    orders = {
        "forward": graph.forward(),
        "reverse": graph.reverse(),
        "Markowitz": graph.markowitz(),
    }
    return {name: graph.cost(order, cost) for name, order in orders.items()}
