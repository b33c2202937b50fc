"""Evaluates any policy or search on a set of tasks; the result is one table and one file."""

from __future__ import annotations

import inspect
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from importlib.metadata import entry_points
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from veenv.env.env import VertexEnv
from veenv.env.factory import task_graph
from veenv.env.rewards import classical_cost
from veenv.env.task_set import TaskDistribution, graphs_of
from veenv.graph.graph import CostModel, Graph
from veenv.orders.documents import as_path, parse_object, write_bytes
from veenv.orders.fields import read_field
from veenv.orders.order import fingerprint
from veenv.rules.base import merge_leaves, split_leaves
from veenv.search.api import parse_method, search
from veenv.tasks.evaluation_sets import evaluation_set, reference, set_names

Policy = Callable[..., Any]
"""From a key, observations [B, ...] and masks of legal actions [B, A] to actions [B].

One with parameters `state` or `params` is given the states [B, ...] and the graph's params, too.
"""
POLICIES = "veenv.policies"
"""Entry-point group in which an installed package reads policies from files and folders."""
SAMPLES, BUDGET = 32, "10s"
_RESAMPLES = 2000  # of the bootstrap: its quantiles then vary by about one part in a hundred


@dataclass(frozen=True)
class Row:
    """The results on one task.

    Attributes:
      task: its name.
      fingerprint: of its graph.
      classical: cost of the cheapest of the orders forward, reverse and Markowitz.
      reference: cost that long annealing found; None where that is not known.
      costs: for each seed the cost of the cheapest order.
      mean: mean cost of all sampled episodes, or of the searches.
      steps: eliminations that were played, or orders that a search evaluated, of all seeds.
      seconds: all that it took, compiling included.
      orders: for each seed the vertex ids of that order.
    """

    task: str
    fingerprint: str
    classical: int
    reference: int | None
    costs: tuple[int, ...]
    mean: float
    steps: int
    seconds: float
    orders: tuple[tuple[int, ...], ...]

    @property
    def order(self) -> tuple[int, ...]:
        """Vertex ids of the cheapest order of all seeds."""
        return self.orders[self.costs.index(min(self.costs))]

    def recounted(self, graph: Graph, cost: CostModel) -> Row:
        """Returns the row with the package's figures of the graph: classical costs and reference.

        Raises:
          ValueError: an order of the row does not cost what it says, or is none.
        """
        costs = tuple(graph.cost(graph.check_order(order), cost) for order in self.orders)
        if costs != self.costs:
            raise ValueError(f"{self.task}: its orders cost {costs}, not {self.costs}")
        known = reference(graph) if cost == "multiplications" else None
        return replace(self, classical=classical_cost(graph, cost), reference=known)


@dataclass(frozen=True)
class Summary:
    """Ratios of costs to a baseline, over all tasks that have both.

    Attributes:
      tasks: how many tasks these are.
      mean: geometric mean of the ratios.
      middle: interquartile mean of the ratios of all tasks and seeds.
      low: lower end of the 95 % interval of `middle`, by a stratified bootstrap: the seeds of each
        task are resampled (Agarwal et al., NeurIPS 2021). Equal to `middle` where there is one.
      high: its upper end.
      below: share of tasks and seeds with a ratio below 1.
      equal: share with a ratio of 1.
    """

    tasks: int
    mean: float
    middle: float
    low: float
    high: float
    below: float
    equal: float

    def __str__(self) -> str:
        """Returns the summary as one line."""
        return (
            f"{self.middle:.3f} ({self.low:.3f} to {self.high:.3f}); below on "
            f"{100 * self.below:.0f} %, equal on {100 * self.equal:.0f} % of {self.tasks} tasks"
        )


@dataclass(frozen=True)
class Evaluation:
    """The results of a policy on a set of tasks; `print` shows the table.

    Attributes:
      policy: its name.
      tasks: name of the set, or how many tasks.
      cost: the cost model.
      seeds: the seeds.
      samples: episodes for each task and seed; 1 for a search.
      budget: of each search; None for a policy.
      jax: version of JAX that traced the tasks.
      rows: a row for each task.
    """

    policy: str
    tasks: str
    cost: CostModel
    seeds: tuple[int, ...]
    samples: int
    budget: str | None
    jax: str
    rows: tuple[Row, ...]

    def compared(self, other: str | Evaluation = "reference") -> Summary | None:
        """Summarises costs relative to references, classical orders or another evaluation.

        Args:
          other: ``"reference"``, ``"classical"``, or an evaluation on the same tasks: then ratios
            are to its means over seeds, which are resampled, too.

        Returns:
          None if no task has what it is compared with.

        Raises:
          ValueError: if the other evaluation is of other tasks, or it is none of these.
        """
        if isinstance(other, Evaluation):
            if [row.fingerprint for row in other.rows] != [row.fingerprint for row in self.rows]:
                raise ValueError(f"{other.policy} was evaluated on other tasks than {self.policy}")
            baselines = [row.costs for row in other.rows]
        elif other in ("reference", "classical"):
            baselines = [(getattr(row, other),) for row in self.rows]
        else:
            raise ValueError(f"expected 'reference', 'classical' or an evaluation, got {other!r}")
        pairs = [(x.costs, y) for x, y in zip(self.rows, baselines, strict=True) if y != (None,)]
        if not pairs:
            return None
        ours, theirs = (np.maximum(costs, 1.0) for costs in zip(*pairs, strict=True))
        ratios, rng = _ratios(ours, theirs), np.random.default_rng(0)
        drawn = (_resampled(rng, costs) for costs in (ours, theirs))
        low, high = np.quantile(_middle(_ratios(*drawn)), (0.025, 0.975))
        return Summary(
            len(pairs),
            float(np.exp(np.log(ratios).mean())),
            float(_middle(ratios[None])[0]),
            float(low),
            float(high),
            float((ratios < 1).mean()),
            float((ratios == 1).mean()),
        )

    def recounted(self) -> Evaluation:
        """Returns the evaluation with every cost recounted, for orders on graphs traced here.

        Classical costs and references are the package's own, too. Names, means, steps and seconds
        stay as they are.

        Raises:
          ValueError: an order does not cost what its row says, or is none; a function is not of
            the set, or another version of JAX traced it to another graph.
        """
        whole = self.tasks in set_names()
        graphs = graphs_of(evaluation_set(self.tasks), self.cost) if whole else {}
        return replace(self, rows=tuple(self._recounted(row, graphs, whole) for row in self.rows))

    def _recounted(self, row: Row, graphs: dict[str, Graph], whole: bool) -> Row:
        if whole and row.task not in graphs:
            raise ValueError(f"{row.task!r:.60} is no function of {self.tasks}")
        graph = graphs[row.task] if whole else task_graph(row.task)
        if fingerprint(graph) != row.fingerprint:
            raise ValueError(
                f"{row.task}: jax {jax.__version__} traces another graph than jax {self.jax} did"
            )
        return row.recounted(graph, self.cost)

    def __str__(self) -> str:
        """Returns the table: a line for each task, then the summaries."""
        rows = [("task", "classical", "reference", "mean", "best", "ratio", "steps", "seconds")]
        for row in self.rows:
            best, known = min(row.costs), row.reference
            rows.append((
                row.task,
                f"{row.classical:,}",
                "-" if known is None else f"{known:,}",
                f"{row.mean:,.1f}",
                f"{best:,}",
                "-" if known is None else f"{best / max(known, 1):.3f}",
                f"{row.steps:,}",
                f"{row.seconds:.2f}",
            ))  # fmt: skip
        first, *widths = (max(map(len, column)) for column in zip(*rows, strict=True))
        lines = [
            f"{name:<{first}}" + "".join(f"  {x:>{n}}" for x, n in zip(cells, widths, strict=True))
            for name, *cells in rows
        ]
        for other in ("reference", "classical"):
            summary = self.compared(other)
            if summary is not None:
                lines.append(f"{self.policy} to {other}: {summary}")
        return "\n".join(lines)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a JSON file, which `load` reads, completely or not at all."""
        text = json.dumps(asdict(self), indent=1, sort_keys=True)
        write_bytes(path, (text + "\n").encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Evaluation:
        """Reads a file that `save` wrote.

        Raises:
          ValueError: it holds something else.
          OSError: it cannot be read.
        """
        try:
            document = parse_object(as_path(path).read_bytes())
            return read_field("", cls, document)
        except ValueError as error:
            raise ValueError(f"{path} is no evaluation: {error}") from None


def evaluate(
    policy: Policy | str | Any,
    tasks: str | TaskDistribution | Sequence[str | Graph],
    *,
    samples: int | None = None,
    seed: int | Sequence[int] = 0,
    budget: str | int | None = None,
    cost: CostModel = "multiplications",
    name: str | None = None,
) -> Evaluation:
    """Plays or searches every task of a set.

    Args:
      policy: a function of a key, observations [B, ...] and masks of legal actions (bool [B, A])
        that returns actions (int [B]), traceable by JAX, and is given `state` and `params`, too, if
        it has parameters of these names; an object with a method ``as_policy`` that
        makes one for an environment, such as `veenv.agents.GraphNetwork`; the name of a method of
        `veenv.search.search`; or the path of a run folder or a file of weights.
      tasks: name of a set (`veenv.sets`), of a task, a list of tasks, or a
        `TaskDistribution`, whose environment decides what is observed.
      samples: episodes of each task and seed, of which the cheapest counts; 32 by default. Only
        for policies.
      seed: a seed, or several different ones.
      budget: of each search, ``"10s"`` by default. Only for methods of search.
      cost: the cost model; a `TaskDistribution` has its own.
      name: what the result is to be called; by default what the policy is called.

    Returns:
      The costs by task, and how they compare with references and classical orders.

    Raises:
      TypeError: if there is no policy in `policy`.
      ValueError: if a set, task, method or folder is unknown, an option belongs to the other kind
        of policy, or the policy takes actions that are not legal.

    Examples:
      >>> from veenv.env import random_action
      >>> result = evaluate(lambda key, obs, mask: random_action(key, mask), "Robertson", samples=4)
      >>> result.rows[0].task, result.rows[0].classical <= min(result.rows[0].costs)
      ('Robertson', True)
    """
    played = tasks if isinstance(tasks, TaskDistribution) else TaskDistribution.of(tasks, cost)
    if cost not in ("multiplications", played.env.cost):
        raise ValueError(f"the tasks have a cost model of their own, {played.env.cost}")
    seeds = tuple(seed) if isinstance(seed, Sequence) else (seed,)
    valid = all(isinstance(s, int) and 0 <= s < 2**32 for s in seeds)
    if not seeds or not valid or len({*seeds}) < len(seeds):
        raise ValueError(
            f"seed must be an integer from 0 to 2**32 - 1, or several different ones, got {seed!r}"
        )
    method = _method_of(policy)
    if method is not None:
        if samples is not None:
            raise ValueError(f"samples is for a policy, which {policy!r:.60} is not")
        budget = BUDGET if budget is None else budget
        play, samples, limit = partial(_searched, method, budget), 1, str(budget)
    else:
        if budget is not None:
            raise ValueError(f"budget is for a method of search, which {policy!r:.60} is not")
        limit = None
        samples = SAMPLES if samples is None else samples
        if samples < 1:
            raise ValueError(f"samples must be an integer of at least 1, got {samples}")
        play = partial(_sampled, _policy_for(policy, played.env), samples)
    # Named tasks differ greatly in size; a `TaskDistribution` keeps its environment.
    resized = played.chosen is not None and played.chosen.family is None and played is not tasks
    rows = tuple(_row(played, index, seeds, play, resized=resized) for index in range(len(played)))
    name = name or _name_of(policy)
    return Evaluation(
        name, played.title, played.env.cost, seeds, samples, limit, jax.__version__, rows
    )


def _row(
    played: TaskDistribution,
    index: int,
    seeds: Sequence[int],
    play: Callable[..., Any],
    *,
    resized: bool,
) -> Row:
    """Evaluates one task with every seed; padded to its own size if asked for."""
    graph, began = played.graphs[index], time.perf_counter()
    where = (played.alone(index), 0) if resized else (played, index)
    results = [play(*where, seed) for seed in seeds]
    costs, means, steps, orders = zip(*results, strict=True)
    for order, cost in zip(orders, costs, strict=True):
        if graph.cost(order, played.env.cost) != cost:
            raise RuntimeError(f"{played.names[index]}: environment and graph disagree on a cost")
    return Row(
        played.names[index],
        fingerprint(graph),
        min(played.classical[index].values()),
        played.references[index],
        costs,
        float(np.mean(means)),
        sum(steps),
        time.perf_counter() - began,
        orders,
    )


def _searched(
    method: str, budget: str | int, played: TaskDistribution, index: int, seed: int
) -> tuple[int, float, int, tuple[int, ...]]:
    result = search(played.graphs[index], method, cost=played.env.cost, budget=budget, seed=seed)
    return result.cost, result.cost, result.evaluations, result.order


def _sampled(
    policy: Policy, samples: int, played: TaskDistribution, index: int, seed: int
) -> tuple[int, float, int, tuple[int, ...]]:
    env, graph = played.env, played.graphs[index]
    key = jax.random.fold_in(jax.random.key(seed), index)
    leaves, tree = jax.tree.flatten(policy)
    fixed, arrays = split_leaves(leaves, (jax.Array, np.ndarray))
    games = _games_of(env, samples, tree, tuple(fixed.items()))
    cost, order, complete = jax.device_get(games(arrays, key, played.task(index)))
    if not complete.all():
        raise ValueError(
            f"{played.names[index]}: {int((~complete).sum())} of {samples} episodes did not end, "
            "as the policy takes actions that its mask does not allow: set the logits to -inf "
            "where the mask is False"
        )
    costs = np.asarray(cost)
    best = int(costs.argmin())
    steps = samples * len(graph.eliminable)
    return int(costs[best]), float(costs.mean()), steps, played.vertex_ids(index, order[best])


@lru_cache(maxsize=8)
def _games_of(env: VertexEnv, samples: int, tree: Any, fixed: tuple[tuple[int, Any], ...]) -> Any:
    """Compiles whole episodes side by side: costs, orders and whether each has ended.

    A policy comes as a pytree without its arrays, which are an argument of what is returned.
    """

    def games(arrays: Sequence[Any], key: Any, params: Any) -> Any:
        policy = jax.tree.unflatten(tree, merge_leaves(dict(fixed), arrays))
        asked = inspect.signature(policy).parameters
        first = env.init(params)
        state = jax.tree.map(lambda x: jnp.broadcast_to(x, (samples, *jnp.shape(x))), first)

        def step(state: Any, key: Any) -> tuple[Any, None]:
            seen = jax.vmap(env.observe, (0, None))(state, params)
            more = {name: x for name, x in (("state", state), ("params", params)) if name in asked}
            action = jnp.asarray(policy(key, seen, state.action_mask, **more))
            if action.shape != (samples,):
                raise ValueError(
                    f"a policy returns an action for each of {samples} observations, int "
                    f"[{samples}]; got shape {action.shape}"
                )
            if not jnp.issubdtype(action.dtype, jnp.integer):
                raise TypeError(
                    f"a policy returns integers, the slots; got dtype {action.dtype}: for "
                    "scores, return their jnp.argmax among legal slots"
                )
            return jax.vmap(env.transition, (0, 0, None))(state, action, params)[0], None

        state, _ = jax.lax.scan(step, state, jax.random.split(key, env.num_actions))
        return state.cost, state.order, ~state.action_mask.any(-1)

    return jax.jit(games)


def _method_of(policy: Any) -> str | None:
    """Returns the search method that a name stands for; None for a policy or a file's name."""
    if not isinstance(policy, str):
        return None
    try:
        parse_method(policy)
    except ValueError as error:
        if as_path(policy).exists():
            return None
        raise ValueError(f"{policy!r} is neither a file or folder nor a method: {error}") from None
    return policy


def _policy_for(policy: Any, env: VertexEnv) -> Policy:
    """Returns the function that plays an environment, of a policy or a file of one."""
    if isinstance(policy, str | os.PathLike):
        readers = [point.load() for point in entry_points(group=POLICIES)]
        if not readers:
            raise ValueError(f"no installed package reads policies from files such as {policy}")
        policy = readers[0](policy)
    if hasattr(policy, "as_policy"):
        return policy.as_policy(env)
    if callable(policy):
        return policy
    raise TypeError(
        "expected a function of key, observations and masks, an object with as_policy, a method of "
        f"search or a run folder, got {type(policy).__name__}: {policy!r:.60}"
    )


def _name_of(policy: Any) -> str:
    if isinstance(policy, str | os.PathLike):
        return str(policy)
    return getattr(policy, "__name__", type(policy).__name__)


def _ratios(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Divides costs [..., tasks, seeds] by the other's means over its seeds."""
    return ours / theirs.mean(-1, keepdims=True)


def _resampled(rng: np.random.Generator, costs: np.ndarray) -> np.ndarray:
    """Resamples seeds within each task, many times: [resamples, tasks, seeds]."""
    drawn = rng.integers(costs.shape[-1], size=(_RESAMPLES, *costs.shape))
    return np.take_along_axis(costs[None], drawn, axis=-1)


def _middle(ratios: np.ndarray) -> np.ndarray:
    """Returns interquartile means of the last two axes."""
    flat = np.sort(ratios.reshape(len(ratios), -1), axis=-1)
    cut = flat.shape[-1] // 4
    return flat[:, cut : flat.shape[-1] - cut].mean(-1)
