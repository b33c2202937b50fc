"""Validates an order on the environment and the engine: its counts, its values, its speed."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from veenv.engine import edge, elimination, evaluation
from veenv.engine.api import jacve
from veenv.env.encode import EnvParams, Spec
from veenv.env.env import VertexEnv
from veenv.env.state import State
from veenv.graph.graph import COST_MODELS, CostModel, Graph, counts_additions
from veenv.graph.linearisation import linearise, make_graph
from veenv.graph.program import trace
from veenv.measure.arithmetic import additions_in, multiplications_in
from veenv.measure.proof import TOLERANCE, Proof, prove
from veenv.measure.timing import USUAL, Timing, measure
from veenv.orders.order import Order
from veenv.tasks import Task


@dataclass(frozen=True)
class Count:
    """The cost of an order under one cost model, counted in four ways.

    Attributes:
      recorded: what the order's record says; None if it says nothing.
      environment: minus the return of the environment's episode.
      engine: what `jacve` reports.
      emitted: multiplications in the jaxpr that the engine emits for the elimination; under
        ``"operations"`` with the additions, where every sum is formed at once.

    Examples:
      >>> Count(recorded=3, environment=3, engine=3, emitted=4).consistent
      False
    """

    recorded: int | None
    environment: int
    engine: int
    emitted: int

    @property
    def consistent(self) -> bool:
        """True if all counts are the same."""
        recorded = self.engine if self.recorded is None else self.recorded
        return recorded == self.environment == self.engine == self.emitted


@dataclass(frozen=True)
class Report:
    """The result of a validation.

    Attributes:
      task: name of the task.
      found_by: how the order was found.
      counts: for each cost model the counts.
      proof: how the Jacobian compares with those of JAX.
      batch: size of the batch that was timed.
      timings: of each method; empty if not asked for.
      problems: what is wrong, one sentence each; empty if the order is valid.

    Examples:
      >>> import veenv
      >>> f = lambda x: jnp.sin(jnp.exp(x)) * x
      >>> task = Task("f", f, lambda: (0.5,), 0, "", "")
      >>> order = veenv.Order.from_graph(make_graph(f)(0.5), [2, 1])
      >>> validate(order, task, points=1, rounds=0).problems
      ()
    """

    task: str
    found_by: str
    counts: Mapping[str, Count]
    proof: Proof
    batch: int
    timings: tuple[Timing, ...]
    problems: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """True if there are no problems."""
        return not self.problems


def validate(
    order: Order,
    task: Task,
    *,
    points: int = 3,
    tolerance: float = TOLERANCE,
    batch: int = 4096,
    rounds: int = 20,
    seed: int = 0,
    beside: Collection[str] = USUAL,
    longest: float | None = None,
) -> Report:
    """Checks an order of a task on the environment and on the engine.

    Args:
      order: the order.
      task: the task it is for.
      points: number of points, the task's own first, then random ones near it.
      tolerance: largest error allowed.
      batch: number of points that are differentiated at once when timed.
      rounds: number of timed calls of each method, in turn; 0 to leave the timing out.
      seed: seed of the random points.
      beside: the usual ways to a Jacobian that are timed too.
      longest: seconds of calls after which a method is timed no more (three calls at least).

    Returns:
      The report.

    Raises:
      ValueError: if the order is for another graph, or an argument is out of range.

    Examples:
      >>> import veenv
      >>> f = lambda x: jnp.sin(jnp.exp(x)) * x
      >>> task = Task("f", f, lambda: (0.5,), 0, "", "")
      >>> order = veenv.Order.from_graph(make_graph(f)(0.5), [2, 1])
      >>> report = validate(order, task, points=1, rounds=0)
      >>> report.counts["multiplications"].emitted, report.problems
      (2, ())
    """
    for name, value, least in (("points", points, 1), ("batch", batch, 1), ("rounds", rounds, 0)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    args = task.example_args()
    graph = make_graph(task.fun, task.argnums)(*args)
    ids = dataclasses.replace(order, counts={}).ids_for(graph)
    counts = count(order.counts, task, graph, ids)
    proof = prove(task, ids, points, seed, tolerance)
    timings = ()
    if rounds:
        timings = measure(task, ids, batch, rounds, seed, beside=beside, longest=longest)
    problems = [
        f"{cost}: recorded {c.recorded}, environment {c.environment}, engine {c.engine}, "
        f"emitted {c.emitted} do not agree"
        for cost, c in counts.items()
        if not c.consistent
    ]
    problems += proof.problems
    return Report(task.name, order.found_by, counts, proof, batch, timings, tuple(problems))


def count(
    recorded: Mapping[str, int], task: Task, graph: Graph, ids: Sequence[int]
) -> dict[str, Count]:
    """Counts the cost of an order in four ways under each cost model.

    Args:
      recorded: what is claimed, by cost model; one may be missing.
      task: the task.
      graph: its graph.
      ids: vertex ids in elimination order.

    Returns:
      For each cost model the counts.

    Examples:
      >>> f = lambda x: jnp.sin(jnp.exp(x)) * x
      >>> task = Task("f", f, lambda: (0.5,), 0, "", "")
      >>> claimed = {"multiplications": 2, "executed": 2}
      >>> count(claimed, task, make_graph(f)(0.5), (2, 1))["executed"]
      Count(recorded=2, environment=2, engine=2, emitted=2)
    """
    args = task.example_args()
    reported: list[Any] = []

    def run(*args: Any) -> Any:
        jacobian, counts = jacve(task.fun, ids, task.argnums, count_ops=True, kernel="xla")(*args)
        reported.append(counts)
        return jacobian

    jax.eval_shape(run, *args)
    lin = linearise(trace(task.fun, args, argnums=task.argnums))
    wanted = (task.argnums,) if isinstance(task.argnums, int) else task.argnums
    values = evaluation.evaluate(
        lin, [jnp.asarray(x) for a in wanted for x in jax.tree.leaves(args[a])]
    )
    result = {}
    for cost in COST_MODELS:
        structures = graph.structures(cost)
        edges = {pair: edge.expand_to(e, structures[pair]) for pair, e in values.edges.items()}
        additions = counts_additions(cost)
        jaxpr = elimination.elimination_jaxpr(lin, edges, ids, keep_sums=not additions)
        emitted = multiplications_in(jaxpr) + (additions_in(jaxpr) if additions else 0)
        played = episode_cost(graph, cost, ids)
        result[cost] = Count(recorded.get(cost), played, getattr(reported[0], cost), emitted)
    return result


def episode_cost(graph: Graph, cost: CostModel, ids: Sequence[int]) -> int:
    """Returns minus the return of the episode that plays an order, before rounding.

    The reward of a step is its exact cost rounded to float32; of what is rounded off, the step's
    info has all of it.

    Args:
      graph: the graph.
      cost: the cost model.
      ids: vertex ids in elimination order.

    Examples:
      >>> graph = make_graph(lambda x, y: jnp.sin(x * y) * x, (0, 1))(1.0, 2.0)
      >>> episode_cost(graph, "multiplications", (1, 2)), graph.cost((1, 2))
      (4, 4)
    """
    alike: list[CostModel] = [
        c for c in COST_MODELS if counts_additions(c) == counts_additions(cost)
    ]
    spec = Spec.common([Spec.of(graph, c) for c in alike])
    env = VertexEnv(graph, cost, spec=spec)
    slot = {int(v): a for a, v in enumerate(np.asarray(env.default_params.vertex_ids))}
    actions = jnp.array([slot[v] for v in ids], jnp.int32)
    rewards, costs = _play(_Episode(spec, env), env.default_params, actions)
    costs = np.asarray(costs)
    differ = np.asarray(rewards, np.float64) + costs.astype(np.float32)
    return int(costs.sum()) - round(float(differ.sum()))


@dataclass(frozen=True)
class _Episode:
    """Static argument of the compiled episode, equal for all graphs of a spec, which share it."""

    spec: Spec
    env: VertexEnv = field(compare=False)


@partial(jax.jit, static_argnums=0)
def _play(
    program: _Episode, params: EnvParams, actions: Int[Array, " T"]
) -> tuple[Float[Array, " T"], Any]:
    """Returns reward and count of every step of an episode."""
    env = program.env

    def step(state: State, action: Int[Array, ""]) -> tuple[State, tuple[Float[Array, ""], Any]]:
        state, reward, info = env.transition(state, action, params)
        return state, (reward, info["cost"])

    return lax.scan(step, env.init(params), actions)[1]
