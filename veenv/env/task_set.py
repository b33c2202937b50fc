"""Several tasks in one environment: params padded to one size and stacked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from veenv.env.encode import EnvParams, Spec
from veenv.env.env import VertexEnv
from veenv.env.factory import task_graph
from veenv.env.graph_view import most_edges, room_for
from veenv.env.observe import ObservationKind
from veenv.env.rewards import Shaping, classical_costs
from veenv.env.state import Observation, State
from veenv.graph.graph import CostModel, Graph, counts_additions, labelling_of
from veenv.graph.linearisation import make_graph
from veenv.tasks import RandomFunctions
from veenv.tasks.evaluation_sets import (
    EvaluationSet,
    drawn_from,
    evaluation_set,
    reference,
    set_names,
)

RANDOM_RANK = 3
"""Most axes of a variable of a random function; functions with more are drawn again."""

MAX_DRAWS = 100
"""Draws for one function of a pool before giving up."""


def stack_params(params: Sequence[EnvParams]) -> EnvParams:
    """Stacks params of one spec along a new first axis.

    Args:
      params: at least one; of one spec.

    Examples:
      >>> env = VertexEnv(task_graph(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0))
      >>> stack_params([env.default_params, env.default_params]).vertex_ids.shape
      (2, 2)
    """
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)


def pick_params(stacked: EnvParams, index: Int[Array, ""] | int) -> EnvParams:
    """Returns the params at an index of stacked params.

    Args:
      stacked: params with a first axis over tasks.
      index: int32 [], or several of them, [...].

    Examples:
      >>> env = VertexEnv(task_graph(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0))
      >>> pick_params(stack_params([env.default_params]), 0).vertex_ids.tolist()
      [1, 2]
    """
    if stacked.vertex_ids.shape[0] == 1 and jnp.ndim(index) == 0:
        index = 0  # so that vmap shares one copy, too
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
      family: where random functions come from; None for a fixed list.
      chosen: the named set that these are; None for others.

    Examples:
      >>> import jax
      >>> tasks = TaskDistribution.of(["RoeFlux_1d", "RobotArm_6DOF"])
      >>> len(tasks), tasks.env.num_actions
      (2, 108)
      >>> tasks.sample(jax.random.key(0)).vertex_ids.shape
      (108,)
    """

    env: VertexEnv
    graphs: tuple[Graph, ...]
    names: tuple[str, ...]
    params: EnvParams
    family: RandomFunctions | None = None
    chosen: EvaluationSet | None = None

    @classmethod
    def of(
        cls,
        tasks: str | EvaluationSet | Sequence[str | Graph] | Mapping[str, Graph],
        cost: CostModel = "multiplications",
        *,
        spec: Spec | None = None,
        shaping: Shaping = None,
        normalise: bool = False,
    ) -> TaskDistribution:
        """Pads tasks to one size and stacks them.

        Args:
          tasks: a set (`veenv.tasks.evaluation_sets`) or its name, or that of a task; names of
            tasks, or graphs; or graphs by the names that they get.
          cost: the cost model.
          spec: sizes to pad to; the smallest that fit by default.
          shaping: name of the reference order that each task's rewards are measured against, as
            `VertexEnv` takes it.
          normalise: divide each task's rewards by the cost of its cheapest classical order.

        Raises:
          TypeError: if one is neither a name nor a graph, a function for example, or there is no
            list of them.
          ValueError: if there are no tasks, a name is unknown, or a graph does not fit.
        """
        if isinstance(tasks, str):
            tasks = evaluation_set(tasks) if tasks in set_names() else [tasks]
        chosen = tasks if isinstance(tasks, EvaluationSet) else None
        if isinstance(tasks, EvaluationSet):
            tasks = graphs_of(tasks, cost)
        if isinstance(tasks, Mapping):
            names, tasks = tuple(tasks), tuple(tasks.values())
        elif isinstance(tasks, Iterable):
            tasks = tuple(tasks)
            names = tuple(t if isinstance(t, str) else f"graph {k}" for k, t in enumerate(tasks))
        else:
            raise TypeError(f"expected a name, or a list of names and graphs, got {tasks!r:.60}")
        if not tasks:
            raise ValueError("expected at least one graph or task, got none")
        for task in tasks:
            _check_task(task)
        graphs = tuple(task_graph(task) for task in tasks)
        if spec is None:
            spec = Spec.common([Spec.of(graph, cost) for graph in graphs])
        env = VertexEnv(graphs[0], cost, spec=spec, shaping=shaping, normalise=normalise)
        return cls(env, graphs, names, stack_params([env.encode(g) for g in graphs]), chosen=chosen)

    @classmethod
    def random(
        cls,
        seed: int,
        num: int,
        cost: CostModel = "multiplications",
        *,
        spec: Spec | None = None,
        shaping: Shaping = None,
        normalise: bool = False,
        **ranges: Any,
    ) -> TaskDistribution:
        """Draws and traces a pool of random functions on the host.

        The sizes are those of the largest function that the ranges allow, whatever was drawn, so
        that every pool of the same ranges shares its compiled programs with the others.

        Args:
          seed: seeds the draws.
          num: number of functions.
          cost: the cost model.
          spec: sizes to pad to; those of the ranges by default.
          shaping: as `of`.
          normalise: as `of`.
          **ranges: ``vertices``, ``inputs``, ``outputs``, ``fan_out``, ``windows`` and ``arrays``,
            as `veenv.tasks.RandomFunctions` explains them.

        Raises:
          TypeError: if there is no such range.
          ValueError: if `num` is not positive, the ranges are impossible, or hardly a function of
            them can be played.

        Examples:
          >>> pool = TaskDistribution.random(0, 3, vertices=(5, 9), inputs=(1, 3), arrays=0.5)
          >>> len(pool), pool.renewed(1).env is pool.env
          (3, True)
        """
        known = [field.name for field in fields(RandomFunctions)]
        if unknown := ranges.keys() - {*known}:
            raise TypeError(f"random functions have {', '.join(known)}, got {sorted(unknown)}")
        family = RandomFunctions(**ranges)
        spec = _spec_of_family(family, cost) if spec is None else spec
        graphs, names = _draw(family, seed, num, cost, spec)
        env = VertexEnv(graphs[0], cost, spec=spec, shaping=shaping, normalise=normalise)
        return cls(env, graphs, names, stack_params([env.encode(g) for g in graphs]), family)

    def renewed(self, seed: int) -> TaskDistribution:
        """Draws as many new functions from the same ranges, for the same compiled programs.

        Args:
          seed: seeds the draws.

        Raises:
          ValueError: if these are not random functions.
        """
        if self.family is None:
            raise ValueError("only a pool of random functions can be renewed")
        graphs, names = _draw(self.family, seed, len(self), self.env.cost, self.env.spec)
        params = stack_params([self.env.encode(g) for g in graphs])
        return replace(self, graphs=graphs, names=names, params=params)

    def observing(self, observation: ObservationKind, max_edges: int | None = None) -> Self:
        """Returns the same tasks with another kind of observations, as `VertexEnv.observing`."""
        if max_edges is None and observation == "graph":
            max_edges = max(room_for(graph, self.env.spec) for graph in self.graphs)
            max_edges = max_edges if self.family is None else most_edges(self.env.spec)
        return replace(self, env=self.env.observing(observation, max_edges))

    def alone(self, index: int) -> TaskDistribution:
        """Returns one of the tasks in an environment of its own size."""
        graph, env = self.graphs[index], self.env
        options: Any = {"shaping": env.shaping, "normalise": env.normalise}
        single = VertexEnv(graph, env.cost, observation=env.observation, **options)
        return replace(
            self, env=single, graphs=(graph,), names=(self.names[index],),
            params=stack_params([single.default_params]), chosen=None,
        )  # fmt: skip

    @cached_property
    def classical(self) -> tuple[dict[str, int], ...]:
        """Costs of the orders forward, reverse and Markowitz by name, one dictionary a task."""
        return tuple(classical_costs(graph, self.env.cost) for graph in self.graphs)

    @cached_property
    def references(self) -> tuple[int | None, ...]:
        """Least known cost of each task in multiplications; None if unknown."""
        if self.env.cost != "multiplications":
            return (None,) * len(self)
        return tuple(map(reference, self.graphs))

    @property
    def title(self) -> str:
        """Name of the set or of the only task, else the number of tasks."""
        if self.chosen is not None:
            return self.chosen.name
        return self.names[0] if len(self) == 1 else f"{len(self)} tasks"

    def vertex_ids(self, index: int, slots: Iterable[Any]) -> tuple[int, ...]:
        """Returns the vertex ids of slots of a task; padding (-1) is left out."""
        ids = self.graphs[index].eliminable
        return tuple(ids[int(slot)] for slot in slots if slot >= 0)

    def __len__(self) -> int:
        """Returns the number of tasks."""
        return len(self.graphs)

    def index(self, name: str) -> int:
        """Returns the position of a task, whatever the case of its name.

        Raises:
          ValueError: if it is not in the list.
        """
        known = [n.casefold() for n in self.names]
        if name.casefold() not in known:
            raise ValueError(f"task {name!r} is not among those played: {', '.join(self.names)}")
        return known.index(name.casefold())

    def task(self, index: Int[Array, ""] | int) -> EnvParams:
        """Returns the params of one task."""
        return pick_params(self.params, index)

    def sample(self, key: PRNGKeyArray, params: EnvParams | None = None) -> EnvParams:
        """Draws the params of a task uniformly.

        Args:
          key: a key.
          params: stacked params to draw from, those of a renewed pool for example; the
            distribution's own by default.
        """
        params = self.params if params is None else params
        num = params.vertex_ids.shape[0]
        return pick_params(params, jax.random.randint(key, (), 0, num, jnp.int32))

    def reset(
        self, key: PRNGKeyArray, params: EnvParams | None = None
    ) -> tuple[Observation, State, EnvParams]:
        """Starts an episode of a task that `sample` draws.

        Returns:
          The first observation, the state, and the params to hand to `VertexEnv.step`.
        """
        drawn = self.sample(key, params)
        obs, state = self.env.reset(None, drawn)
        return obs, state, drawn


def sets(name: str, cost: CostModel = "multiplications") -> TaskDistribution:
    """A named set of tasks: its graphs, reference costs, classical costs and environment.

    Args:
      name: one of `veenv.tasks.evaluation_sets.set_names()`, such as ``"core"``; a name that
        ends in ``-train`` has functions of the same family to train with.
      cost: the cost model; references are multiplications.

    Returns:
      The tasks, to train on (`veenv.agents.train`) or to play (`veenv.evaluate`).

    Raises:
      ValueError: if there is no such set.

    Examples:
      >>> core = sets("core")
      >>> core.names[0], core.references[0], core.classical[0]["Markowitz"]
      ('RobotArm_6DOF', 221, 288)
    """
    return TaskDistribution.of(evaluation_set(name), cost)


def graphs_of(chosen: EvaluationSet, cost: CostModel) -> dict[str, Graph]:
    """Makes the graphs of a named set.

    Args:
      chosen: the set.
      cost: the cost model for which random functions are drawn.

    Returns:
      The graphs by name, in the order of the set.

    Examples:
      >>> from veenv.tasks.evaluation_sets import evaluation_set
      >>> len(graphs_of(evaluation_set("hard"), "multiplications"))
      24
    """
    family = chosen.family
    if family is None:
        return {name: _graph_named(name, cost) for name in chosen.tasks}
    spec = _spec_of_family(family, cost)
    return {
        f"{chosen.name} {k}": _draw_one(family, chosen.seed, k, cost, spec) for k in chosen.draws
    }


def _graph_named(name: str, cost: CostModel) -> Graph:
    """Returns the graph of a task, or of a random function of a set."""
    one = drawn_from(name)
    return task_graph(name) if one is None else graphs_of(one, cost)[name]


def _check_task(task: Any) -> None:
    """Checks that a task is a name or a graph.

    Raises:
      TypeError: if it is not, saying what to pass instead.
    """
    if isinstance(task, str | Graph):
        return
    what = getattr(task, "__name__", None) if callable(task) else None
    if what is not None:
        raise TypeError(
            f"expected a task's name or a graph, got the function {what}; pass its graph at a "
            f"point, veenv.make_graph({what if what.isidentifier() else 'fun'})(*args)"
        )
    raise TypeError(f"expected a task's name or a graph, got {type(task).__name__}: {task!r:.60}")


def _spec_of_family(family: RandomFunctions, cost: CostModel) -> Spec:
    """Returns a spec that fits every function of a family."""
    scalar = family.arrays == 0.0
    return Spec(
        num_inputs=family.inputs[1],
        num_actions=max(1, family.vertices[1] - family.outputs[0]),
        num_outputs=family.outputs[1],
        scalar=scalar,
        unit_edges=scalar and labelling_of(cost) == "executed",
        rank=0 if scalar else RANDOM_RANK,
        links=not scalar,
        additions=counts_additions(cost),
    )


def _draw(
    family: RandomFunctions, seed: int, num: int, cost: CostModel, spec: Spec
) -> tuple[tuple[Graph, ...], tuple[str, ...]]:
    """Draws functions that can be played; returns their graphs and names."""
    if num < 1:
        raise ValueError(f"a pool needs at least one function, got num={num}")
    drawn = [_draw_one(family, seed, k, cost, spec) for k in range(num)]
    return tuple(drawn), tuple(f"random {seed}/{k}" for k in range(num))


def _draw_one(family: RandomFunctions, seed: int, k: int, cost: CostModel, spec: Spec) -> Graph:
    reason: ValueError | None = None
    for attempt in range(MAX_DRAWS):
        fun, point = family.draw((seed, k, attempt))
        graph = make_graph(fun, tuple(range(len(point))))(*point)
        try:
            spec.check_fits(graph, cost)
        except ValueError as error:  # too many axes, or possibly more multiplications than int32
            reason = error
        else:
            return graph
    raise ValueError(f"none of {MAX_DRAWS} functions of {family} can be played: {reason}")
