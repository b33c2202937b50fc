"""Several tasks in one environment: params padded to one size and stacked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from veenv.env.core import Observation, State, VertexEnv
from veenv.env.make import task_graph
from veenv.env.params import EnvParams, Spec
from veenv.graph import CostModel, Graph


def stack_params(params: Sequence[EnvParams]) -> EnvParams:
    """Stacks params of one spec along a new first axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)


def pick_params(stacked: EnvParams, index: Int[Array, ""] | int) -> EnvParams:
    """The params at an index of stacked params."""
    return jax.tree.map(lambda leaf: leaf[index], stacked)


@dataclass(frozen=True)
class TaskDistribution:
    """A list of tasks, of which each episode plays one.

    `reset` and `sample` can be jitted and vmapped over keys; the params they return go into
    `VertexEnv.step`, as those of any graph.

    Attributes:
      env: the environment, of a spec that fits every task; its default is the first.
      graphs: the graphs.
      names: a name for each.
      params: their params, every leaf with a first axis over tasks.
    """

    env: VertexEnv
    graphs: tuple[Graph, ...]
    names: tuple[str, ...]
    params: EnvParams

    @classmethod
    def of(
        cls,
        tasks: Sequence[str | Graph],
        cost: CostModel = "multiplications",
        *,
        spec: Spec | None = None,
    ) -> TaskDistribution:
        """Pads tasks to one size.

        Args:
          tasks: names of tasks, or graphs.
          cost: the cost model.
          spec: sizes to pad to; the smallest that fit by default.

        Raises:
          ValueError: if there are no tasks, a name is unknown, or a graph does not fit.
        """
        graphs = tuple(task_graph(task) for task in tasks)
        if spec is None:
            spec = Spec.common([Spec.of(graph, cost) for graph in graphs])
        env = VertexEnv(graphs[0], cost, spec=spec)
        names = (task if isinstance(task, str) else f"graph {k}" for k, task in enumerate(tasks))
        return cls(env, graphs, tuple(names), stack_params([env.encode(g) for g in graphs]))

    def __len__(self) -> int:
        """Number of tasks."""
        return len(self.graphs)

    def index(self, name: str) -> int:
        """The position of a task, whatever the case of its name.

        Raises:
          ValueError: if it is not in the list.
        """
        known = [n.casefold() for n in self.names]
        if name.casefold() not in known:
            raise ValueError(f"task {name!r} is not among those played: {', '.join(self.names)}")
        return known.index(name.casefold())

    def task(self, index: Int[Array, ""] | int) -> EnvParams:
        """The params of one task."""
        return pick_params(self.params, index)

    def sample(self, key: PRNGKeyArray) -> EnvParams:
        """The params of a task drawn uniformly."""
        return self.task(jax.random.randint(key, (), 0, len(self), jnp.int32))

    def reset(self, key: PRNGKeyArray) -> tuple[Observation, State, EnvParams]:
        """Starts an episode of a task drawn uniformly.

        Returns:
          The first observation, the state, and the params to hand to `VertexEnv.step`.
        """
        params = self.sample(key)
        obs, state = self.env.reset(None, params)
        return obs, state, params
