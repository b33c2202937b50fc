"""Makes environments from task names, functions and graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from veenv import tasks
from veenv.env.encode import Spec
from veenv.env.env import VertexEnv
from veenv.env.observe import ObservationKind
from veenv.env.rewards import Shaping
from veenv.graph.graph import CostModel, Graph
from veenv.graph.linearisation import make_graph
from veenv.rules.table import named


def make(
    task: str | Callable[..., Any] | Graph,
    *args: Any,
    argnums: int | Sequence[int] = 0,
    cost: CostModel = "multiplications",
    spec: Spec | None = None,
    shaping: Shaping = None,
    normalise: bool = False,
    observation: ObservationKind = "adjacency",
    max_edges: int | None = None,
) -> VertexEnv:
    """Makes the environment of a task, a function or a graph.

    Args:
      task: name of a task (``"RoeFlux"``), a JAX-traceable function, or a graph.
      *args: arguments of the function (arrays or `jax.ShapeDtypeStruct`s); none for a task.
      argnums: arguments of the function to differentiate by; a task has its own.
      cost: the cost model, one of `veenv.graph.COST_MODELS`.
      spec: sizes to pad to; the graph's own by default.
      shaping: reference order that rewards are measured against, as `VertexEnv` takes it.
      normalise: divide rewards by the cost of the cheapest classical order.
      observation: what an agent sees: ``"adjacency"``, ``"flat"``, ``"graph"`` or ``"packed"``
        (`veenv.env.observe`).
      max_edges: room for edges in observations of kind ``"graph"``, as `VertexEnv` takes it.

    Returns:
      The environment.

    Raises:
      TypeError: the task is none of these.
      ValueError: no task has the name (the message suggests near ones); a task or a graph is
        given arguments; there is no vertex to eliminate, saying why; or as `VertexEnv`, which takes
        graphs without a vertex, too.

    Examples:
      >>> env = make("RoeFlux")
      >>> env.num_actions
      98
    """
    graph = task_graph(task, *args, argnums=argnums)
    if not graph.eliminable:
        raise ValueError(
            f"there is no vertex to eliminate, and so no action: {_why_empty(graph)}; see "
            "errors.html#no-vertex-to-eliminate"
        )
    return VertexEnv(
        graph,
        cost,
        spec=spec,
        shaping=shaping,
        normalise=normalise,
        observation=observation,
        max_edges=max_edges,
    )


def _why_empty(graph: Graph) -> str:
    """Explains why a graph has no vertex to eliminate."""
    ends = sorted({graph.primitives[w - graph.num_inputs] for _, w in graph.edges})
    if not ends:
        return (
            "no result depends differentiably on the arguments that the function is differentiated "
            "by (numbers that are integers have no derivative; see argnums)"
        )
    loops = " (a loop is one equation)" if named(form="loop") & {*ends} else ""
    return f"each result comes from the arguments in one equation, {' or '.join(ends)}{loops}"


def task_graph(
    task: str | Callable[..., Any] | Graph, *args: Any, argnums: int | Sequence[int] = 0
) -> Graph:
    """Returns the graph of a task's name, of a function at `args`, or the graph itself.

    Raises:
      TypeError, ValueError: as `make`.
    """
    entry = None
    if isinstance(task, str):
        entry = tasks.get(task)
    elif not isinstance(task, Graph):
        if not callable(task):
            raise TypeError(f"expected a task's name, a function or a graph, got {task!r:.60}")
        return make_graph(task, argnums)(*args)
    if args or argnums != 0:
        raise ValueError(f"{task!r} takes neither arguments nor argnums of its own")
    if isinstance(task, Graph):
        return task
    assert entry is not None
    return make_graph(entry.fun, entry.argnums)(*entry.example_args())
