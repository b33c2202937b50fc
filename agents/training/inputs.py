"""Reads what an agent plays (tasks, graphs, functions, an environment), and makes the agent."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import jax

from veenv import Graph, tasks
from veenv.agents.config.args import task_names
from veenv.agents.config.ppo import PPOConfig, window_on
from veenv.agents.config.search import SearchConfig
from veenv.agents.nn.custom import Network, OwnNetwork
from veenv.agents.nn.weights import architecture
from veenv.agents.policy import policy_orders
from veenv.agents.ppo.ppo import StepsLoss, make_loss
from veenv.agents.ppo.trainer import PPO, Trainer
from veenv.env import TaskDistribution, VertexEnv
from veenv.env.rewards import classical_orders
from veenv.env.task_set import stack_params
from veenv.graph.graph import CostModel
from veenv.orders.order import Order
from veenv.tasks import Task
from veenv.tasks.evaluation_sets import set_names
from veenv.tasks.user import from_function, trace_task

AgentName = Literal["ppo", "alphazero"]

AGENTS: dict[AgentName, str] = {"ppo": "PPO", "alphazero": "AlphaZero"}
"""Names of the agents, as they are written."""

GAMES = 128
"""Games from which training on a large graph starts: five seconds at most at 700 vertices."""

Playable = Callable[..., Any] | str | Task | Graph | VertexEnv
"""One thing to play; a list of them, but environments, a `TaskDistribution` or a set is several."""


@dataclasses.dataclass(frozen=True)
class Played:
    """Tasks, and the functions that their orders are proved with.

    Attributes:
      tasks: the tasks, with normalised rewards.
      functions: by name; a graph has none.
    """

    tasks: TaskDistribution
    functions: Mapping[str, Task]

    @classmethod
    def named(cls, task: str, cost: CostModel = "multiplications") -> Played:
        """Tasks named with commas between them, or a named set.

        Raises:
          ValueError: a task is unknown (the message names the nearest ones) or named twice.
        """
        if task in set_names():
            return cls.of(task, cost)
        return cls.of([tasks.get(name) for name in task_names(task)], cost)

    @classmethod
    def of(
        cls,
        what: Playable | Sequence[Playable] | TaskDistribution,
        cost: CostModel | None = None,
        args: tuple[Any, ...] | None = None,
        argnums: int | Iterable[int] | None = None,
    ) -> Played:
        """Anything that can be played.

        Args:
          what: a function, a task or its name, a graph, a list of these, an environment, whose
            rewards are normalised, or a task set or the name of one.
          cost: the cost model; an environment and a task set have their own.
          args: where a function is traced, a tuple; for one function only.
          argnums: what it is differentiated by; by default all floating-point arguments.

        Raises:
          TypeError: it is none of these, or a function without `args`.
          ValueError: it cannot be traced, two have one name, or arguments or a cost model are
            given for what has its own.
        """
        if isinstance(what, TaskDistribution):
            _check_bare(args, argnums, "a task set", what.env, cost)
            return cls(what, {})
        if isinstance(what, VertexEnv):
            _check_bare(args, argnums, "an environment", what, cost)
            return cls(_of_env(what), {})
        if isinstance(what, str) and what in set_names():
            _check_bare(args, argnums, "a task set")
            played = TaskDistribution.of(what, cost or "multiplications", normalise=True)
            named = played.chosen.tasks if played.chosen is not None else ()
            return cls(played, {name: tasks.get(name) for name in named})
        several = isinstance(what, Sequence) and not isinstance(what, str)
        graphs: dict[str, Graph] = {}
        functions: dict[str, Task] = {}
        single: Any = what
        for k, one in enumerate(single if several else [single]):
            if isinstance(one, Graph):
                _check_bare(args, argnums, "a graph")
            item = one if isinstance(one, Graph) else _as_task(one, args, argnums)
            name = item.name if isinstance(item, Task) else f"graph {k}" if several else "graph"
            if name in graphs:
                raise ValueError(f"task names {name} twice")
            if isinstance(item, Task):
                functions[name], item = item, trace_task(item)
            graphs[name] = item
        played = TaskDistribution.of(graphs, cost or "multiplications", normalise=True)
        return cls(played, functions)


def first_network(
    network: Any, env: VertexEnv, config: PPOConfig
) -> tuple[Network | None, PPOConfig]:
    """The network that training starts from, and the settings that go with it.

    Raises:
      TypeError: as `OwnNetwork.of`.
      ValueError: as `OwnNetwork.of`.
    """
    if network is None:
        return None, config
    if not isinstance(network, Network):
        network = OwnNetwork.of(network, env, jax.random.key(config.seed))
    size = {} if isinstance(network, OwnNetwork) else architecture(network)
    return network, dataclasses.replace(config, **size)


def make_trainer(
    agent: AgentName,
    ppo: PPOConfig,
    search: SearchConfig,
    played: TaskDistribution,
    devices: int | None = None,
    network: Network | None = None,
    *,
    loss: StepsLoss | None = None,
) -> Trainer:
    """An agent on tasks, which starts from a network or, without one, from fresh parameters.

    Large tasks are played from the orders known of them, through a window.  A loss takes the place
    of PPO's.

    Raises:
      ValueError: as `Trainer` and `veenv.agents.alphazero.make_trainer`, mctx is not installed,
        there is no such agent, or the loss does not take four arguments.
    """
    if agent not in AGENTS:
        raise ValueError(f"agent must be one of {', '.join(AGENTS)}, got {agent!r}")
    if agent == "ppo":
        if search != SearchConfig():
            raise ValueError(
                "PPO does not search: num_simulations, max_considered and gumbel_scale "
                "go with agent alphazero"
            )
        known = None
        if window_on(played.env.num_actions, ppo):
            starts = () if ppo.from_nothing else played.graphs
            known = [known_order(graph, played.env.cost) for graph in starts]
        algorithm = PPO
        if loss is not None:
            _check_loss(loss)
            algorithm = dataclasses.replace(PPO, loss=partial(make_loss, of_steps=loss))
        return Trainer(ppo, played, devices, algorithm, network, known)
    if loss is not None:
        raise ValueError("loss takes the place of PPO's; AlphaZero has another")
    try:
        from veenv.agents.alphazero import alphazero
    except ImportError as error:
        raise ValueError(
            f"--agent alphazero needs mctx ({error}); pip install 'veenv[mctx]'"
        ) from None
    return alphazero.make_trainer(ppo, search, played, devices, network)


def known_order(graph: Graph, cost: CostModel) -> Order:
    """The cheapest of the classical orders and of `GAMES` games of the shipped policy."""
    orders = [(f"the order {name}", order) for name, order in classical_orders(graph).items()]
    with contextlib.suppress(ValueError):  # the policy plays no graph that is too large
        games = itertools.islice(policy_orders(graph, cost, 0), GAMES)
        orders += [("the shipped policy", game) for game in games]
    found_by, order = min(orders, key=lambda pair: graph.cost(pair[1], cost))
    return Order.from_graph(graph, order, found_by=found_by)


def _of_env(env: VertexEnv) -> TaskDistribution:
    """The environment's graph, in the same environment but for normalised rewards."""
    scaled = copy.copy(env)
    scaled.normalise = True
    scaled.default_params = scaled.encode(env.graph)
    params = stack_params([scaled.default_params])
    return TaskDistribution(scaled, (env.graph,), ("graph",), params)


def _check_loss(loss: object) -> None:
    """Before minutes of compiling: whether it can be called as `ppo_loss` is."""
    try:
        inspect.signature(loss).bind(*"obcp")  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError) as error:
        raise ValueError(
            "loss must be a function of outputs, batch, config and progress, as ppo_loss; got "
            f"{loss!r:.60}: {error}"
        ) from None


def _check_bare(
    args: object,
    argnums: object,
    what: str,
    env: VertexEnv | None = None,
    cost: CostModel | None = None,
) -> None:
    if args is not None or argnums is not None:
        raise ValueError(f"{what} has arguments of its own; give no args and argnums with it")
    if env is not None and cost not in (None, env.cost):
        raise ValueError(f"{what} has a cost model of its own, {env.cost}; got cost={cost!r}")


def _as_task(one: Any, args: tuple[Any, ...] | None, argnums: Any) -> Task:
    """A name, a task or a function as a task."""
    if isinstance(one, str | Task):
        _check_bare(args, argnums, "a task")
        return tasks.get(one) if isinstance(one, str) else one
    if not callable(one):
        raise TypeError(
            "expected a function, a task or its name, a graph, a list of them, an environment or a "
            f"task set, got {type(one).__name__}: {one!r:.60}"
        )
    name = getattr(one, "__name__", "function")
    if args is None:
        raise TypeError(f"the function {name} needs args, the tuple of arguments to trace it at")
    return from_function(one, args, argnums)
