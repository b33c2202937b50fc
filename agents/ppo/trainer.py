"""One compiled train step on tasks, whatever the agent."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray

from veenv.agents.config.ppo import PPOConfig, window_on
from veenv.agents.devices import Placement, place
from veenv.agents.nn.custom import Network, OwnNetwork
from veenv.agents.nn.networks import GraphNetwork, check_observation
from veenv.agents.ppo.best_orders import BestSoFar
from veenv.agents.ppo.losses import explained_variance
from veenv.agents.ppo.memory import check_memory
from veenv.agents.ppo.phases import whole
from veenv.agents.ppo.ppo import make_loss, play_batch
from veenv.agents.ppo.rollouts import Episodes, cheapest
from veenv.agents.ppo.updates import Loss, Stats, TrainState, fit, make_optimizer
from veenv.env import EnvParams, Spec, TaskDistribution, VertexEnv
from veenv.env.counts import Count
from veenv.orders.order import Order


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Update:
    """The results of one train step, for K graphs.

    Attributes:
      mean_cost: over the episodes of each graph, float32 [K].
      min_cost: the cheapest episode of each graph, counts [K].
      best_order: its order as slots, -1 padded, int32 [K, A].
      stats: float32 [] each: losses, entropy, KL and so on.
    """

    mean_cost: Float[Array, " K"]
    min_cost: Count
    best_order: Int[Array, "K A"]
    stats: Stats


@dataclasses.dataclass(frozen=True)
class Agent:
    """A way to play, and a loss to learn by.

    Attributes:
      play: plays the graphs of B params with the network of a state: what to learn from, for each
        phase of the episodes arrays [T, B, ...] with `value`, `target` and `weight`; the episodes;
        the best orders so far.
      loss: the loss when a share of the training, from 0 to 1, is over.
      learned_share: `PPOConfig.learned_share` where the settings do not say.
    """

    play: Callable[
        [VertexEnv, EnvParams, TrainState, PRNGKeyArray, PPOConfig],
        tuple[tuple[Any, ...], Episodes, BestSoFar | None],
    ]
    loss: Callable[[PPOConfig, Array], Loss]
    learned_share: float = 1.0


PPO = Agent(play_batch, make_loss, learned_share=0.25)


class Trainer:
    """An agent on tasks: fresh parameters, and the compiled train step.

    Trainers of equal settings (but for the seed and the budget) and sizes share their train step.

    Attributes:
      config: the settings, with those of the agent where nothing else was said.
      agent: how to play and to learn.
      tasks: the graphs and their environment, whose rewards are normalised.
      num_envs: environments played in every step: `config.num_envs`, rounded up to a multiple of
        the number of graphs.
      steps_per_update: environment steps of the policy in one train step, padding left out; with a
        window a few less, as stretches do not always begin with the first step.
      known: with a window the orders that training starts from, one for each graph, or none.
      placement: the devices that share the environments.

    Examples:
      >>> import veenv
      >>> graph = veenv.make_graph(lambda x: jnp.sin(jnp.exp(x)) * x)(1.0)
      >>> tasks = TaskDistribution.of({"f": graph}, normalise=True)
      >>> trainer = Trainer(PPOConfig(num_envs=4), tasks)
      >>> trainer.steps_per_update  # four episodes of two eliminations
      8
      >>> int(trainer.init().num_updates)
      0
    """

    def __init__(
        self,
        config: PPOConfig,
        tasks: TaskDistribution,
        devices: int | None = None,
        agent: Agent = PPO,
        network: Network | None = None,
        known: Sequence[Order] | None = None,
    ):
        """Lays out the environments on so many devices (as `place`); nothing is compiled yet.

        Training starts from `network`, or from fresh parameters as the settings say, and with a
        window from the orders that are known, one for each graph, or an empty sequence.

        Raises:
          ValueError: rewards are not normalised, observations are of another kind than
            adjacency, a graph has nothing to eliminate, or as `veenv.agents.devices.place` and
            `veenv.agents.ppo.memory.check_memory`.
        """
        if not isinstance(network, OwnNetwork):
            check_observation(tasks.env)
        if not tasks.env.normalise:
            raise ValueError("expected tasks with normalise=True: losses are on that scale")
        for name, graph in zip(tasks.names, tasks.graphs, strict=True):
            if not graph.eliminable:
                raise ValueError(f"{name} has no vertex to eliminate, so there is nothing to learn")
        if config.learned_share is None:
            config = dataclasses.replace(config, learned_share=agent.learned_share)
        window = 0 if known is None else window_on(tasks.env.num_actions, config)
        config = dataclasses.replace(config, window=window, from_nothing=bool(window) and not known)
        self.config, self.agent, self._network = config, agent, network
        self.known = tuple(known) if window and known is not None else ()
        self._optimizer = make_optimizer(config)
        self._envs_per_graph = -(-config.num_envs // len(tasks))
        self.num_envs = self._envs_per_graph * len(tasks)
        self.placement = place(self.num_envs, devices)
        try:
            shape = eqx.filter_eval_shape(self._first_network, jax.random.key(0))
        except OverflowError as error:  # axes are of 32 bits
            raise ValueError(f"hidden={config.hidden}: {error}") from None
        check_memory(tasks, shape, config, self.num_envs, self.placement.mesh.size)
        self.tasks, self._env = tasks, tasks.env.on_devices(self.placement.mesh.size)
        self.steps_per_update = self._envs_per_graph * sum(len(g.eliminable) for g in tasks.graphs)
        # On the host: each shape of such an array would be a program to compile.
        self._params = self.placement.split(
            jax.tree.map(lambda x: np.asarray(x).repeat(self._envs_per_graph, axis=0), tasks.params)
        )
        if isinstance(network, OwnNetwork):  # nobody else's train step reads what it reads
            self._step = jax.jit(self._train_step, out_shardings=self.placement.everywhere)
            return
        bare = dataclasses.replace(config, seed=0, steps=None)
        self._step = _compiled(
            _Program(agent, bare, type(tasks.env), tasks.env.spec, len(tasks), self.placement, self)
        )

    def _first_network(self, key: PRNGKeyArray) -> Network:
        """The network that was given, or one with fresh parameters."""
        config = self.config
        if self._network is not None:
            return self._network
        size = config.hidden, config.num_hops
        network = GraphNetwork(*size, bfloat16=config.bfloat16, key=key)
        return network.valued_0() if config.window else network

    def init(self) -> TrainState:
        """The state before the first step; fresh parameters are decided by the seed."""
        config = self.config
        net_key, key = jax.random.split(jax.random.key(config.seed))
        network = self._first_network(net_key)
        opt_state = self._optimizer.init(eqx.filter(network, eqx.is_inexact_array))
        best = None
        if self.known:
            best = BestSoFar.of(self.known, self.tasks)
        elif config.window:
            best = BestSoFar.nothing(len(self.tasks), self.tasks.env.spec)
        return TrainState(network, opt_state, key, jnp.zeros((), jnp.int32), best)

    def step(self, state: TrainState, progress: float) -> tuple[TrainState, Update]:
        """Plays an episode in every environment and learns; `progress` drives the schedules."""
        state = self.placement.copy(state)
        return self._step(state, np.float32(progress), self._params)

    def lowered(self, mesh: Mesh) -> jax.stages.Lowered:
        """The train step for other devices, such as a topology's, which need not be there.

        Args:
          mesh: the devices, with one axis `veenv.agents.devices.AXIS`; their number divides
            `num_envs`.
        """
        other = copy.copy(self)
        other.placement = there = Placement(mesh)
        other._env = self.tasks.env.on_devices(mesh.size)

        def shapes(tree: Any, sharding: Any) -> Any:
            return jax.tree.map(
                lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree
            )

        state = shapes(jax.eval_shape(self.init), there.everywhere)
        progress = jax.ShapeDtypeStruct((), jnp.float32, sharding=there.everywhere)
        step = jax.jit(other._train_step, out_shardings=there.everywhere)
        return step.lower(state, progress, shapes(self._params, there.along(0)))

    def _train_step(
        self, state: TrainState, progress: Array, params: Any
    ) -> tuple[TrainState, Update]:
        config = self.config
        play_key, learn_key, key = jax.random.split(state.key, 3)
        parts, episodes, best = self.agent.play(self._env, params, state, play_key, config)
        parts = self.placement.constrain(parts, axis=1)
        loss = self.agent.loss(config, progress)
        network, opt_state, stats = fit(
            loss, state.network, state.opt_state, parts, config, learn_key, progress, self.placement
        )
        seen = (whole(parts, name) for name in ("value", "target", "weight"))
        stats["explained_variance"] = explained_variance(*seen)
        state = TrainState(network, opt_state, key, state.num_updates + 1, best)
        mean, least, order = cheapest(episodes, len(self.tasks))
        return state, Update(mean, least, order, stats)


@dataclasses.dataclass(frozen=True)
class _Program:
    """The key of a compiled train step: all that it depends on, and a trainer that has it."""

    agent: Agent
    config: PPOConfig
    env: type[VertexEnv]
    spec: Spec
    num_tasks: int
    placement: Placement
    trainer: Trainer = dataclasses.field(compare=False)


@lru_cache(maxsize=4)
def _compiled(program: _Program) -> Any:
    """The train step of every trainer with this program, of the last few ones."""
    everywhere = program.placement.everywhere
    return jax.jit(program.trainer._train_step, out_shardings=everywhere)
