"""Vertex elimination as a game: the environment around `rules_scalar` and `rules_array`."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from veenv._support import check_flags
from veenv.env.arguments import check_state, chosen_params, to_slot
from veenv.env.counts import Count
from veenv.env.encode import EnvParams, Spec
from veenv.env.observe import ObservationKind, Observer, PackedObservation
from veenv.env.precedence import encode_before, left_slots, legal_slots
from veenv.env.rewards import Shaping, check_shaping, classical_cost, reference_costs, reward_of
from veenv.env.rules_array import ArrayRules
from veenv.env.rules_scalar import ScalarRules
from veenv.env.state import Observation, State, owned
from veenv.graph.graph import CostModel, Graph, check_cost_model

if TYPE_CHECKING:
    import gymnasium


class VertexEnv:
    """The environment: every step eliminates one vertex of a graph.

    * **Action**: a slot in [0, A), standing for vertex id ``params.vertex_ids[action]``.
    * **Observation**: see `Observation`, or one of the other kinds of `veenv.env.observe`.
    * **Reward**: minus the number of multiplications of this elimination, so that an episode
      returns ``-graph.cost(order)``; optionally shaped by a reference order and divided by the
      cost of the best classical order (`veenv.env.rewards`).
    * **Ending**: `terminated` when every vertex is eliminated, after as many steps as there are
      eliminable vertices. Nothing is ever truncated, and nothing resets by itself.
    * **Illegal actions** (vertex eliminated before, one that must wait for others by a rule of the
      function, padding, out of range): the graph stays as it is, the episode ends, and the reward
      is minus a bound that every order stays below, so that no legal episode returns less.
      An action that is not an integer (a float, NaN, a bool) is a TypeError.
    * **Steps after the end** change nothing, and their reward is 0.

    All methods are pure; `reset`, `step`, `transition`, `observe` and `action_mask` can be jitted
    and vmapped over states, actions and params.  The graph is data: one compiled program plays
    every graph that was encoded to the same `Spec` (`encode`).

    Attributes:
      graph: the graph that `default_params` encodes.
      cost: the cost model.
      spec: the padded sizes.
      shaping: the reference order of shaped rewards, or None.
      normalise: rewards are divided by the cost of the best classical order.
      observation: the kind of observations.
      default_params: the graph as data.

    Examples:
      >>> import jax.numpy as jnp, veenv
      >>> env = veenv.make(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0)
      >>> obs, state = env.reset()
      >>> obs.action_mask.tolist(), obs.adjacency.shape
      ([True, True], (3, 3))
      >>> obs, state, reward, terminated, truncated, info = env.step(None, state, 1)
      >>> float(reward), obs.action_mask.tolist(), bool(terminated)
      (-1.0, [True, False], False)
    """

    def __init__(
        self,
        graph: Graph,
        cost: CostModel = "multiplications",
        *,
        spec: Spec | None = None,
        shaping: Shaping = None,
        normalise: bool = False,
        observation: ObservationKind = "adjacency",
        max_edges: int | None = None,
    ):
        """Creates the environment of a graph.

        Args:
          graph: the graph.
          cost: the cost model, one of `veenv.graph.COST_MODELS`.
          spec: sizes to pad to; the graph's own by default.
          shaping: measures rewards against a reference order: ``"forward"``, ``"reverse"``,
            ``"markowitz"``, ``"classical"`` (the cheapest of these), an `Order` or vertex ids. An
            episode then returns the cost of that order minus its own.
          normalise: divides rewards by the cost of the cheapest classical order (by 1 if that is
            free), so that -1 is the return of that order, whatever the task.
          observation: ``"adjacency"``, ``"flat"``, ``"graph"`` or ``"packed"``.
          max_edges: room for edges in observations of kind ``"graph"``; by default twice
            what an order shows that makes many. Where there are more, the features of all nodes
            are NaN.

        Raises:
          TypeError: if `spec` is no Spec, or `normalise` neither True nor False.
          ValueError: if `cost` is not a cost model, `shaping` not a reference order,
            `observation` not a kind or `max_edges` no number for it, the graph
            does not fit `spec`, or the cost of some order could pass the range of counts (see
            `veenv.env.exact_range.check_total`).
        """
        check_flags(normalise=normalise)
        if not isinstance(spec, Spec | None):
            raise TypeError(f"spec must be a Spec, or None for the graph's own, got {spec!r}")
        self.graph = graph
        self.cost: CostModel = check_cost_model(cost)
        self.spec = Spec.of(graph, self.cost) if spec is None else spec
        self.shaping, self.normalise = check_shaping(shaping), normalise
        self._rules = ScalarRules(self.spec) if self.spec.scalar else ArrayRules(self.spec)
        self.observation: ObservationKind = observation
        only = graph if spec is None else None
        self._observer = Observer.of(observation, self._rules, only, max_edges)
        self.default_params = self.encode(graph)

    def on_devices(self, num_devices: int) -> VertexEnv:
        """Returns this environment for batches that so many devices share; it plays the same."""
        other = copy.copy(self)
        if isinstance(self._rules, ArrayRules):
            other._rules = replace(self._rules, num_devices=num_devices)
        return other

    @property
    def num_actions(self) -> int:
        """A, the number of action slots, padding included."""
        return self.spec.num_actions

    @property
    def max_steps(self) -> int:
        """Length of every legal episode of the default graph."""
        return len(self.graph.eliminable)

    @property
    def action_space(self) -> gymnasium.spaces.Discrete:
        """The slots."""
        import gymnasium

        return gymnasium.spaces.Discrete(self.num_actions)

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """Bounds, shapes and dtypes of the observations."""
        return self._observer.space(self.default_params)

    def encode(self, graph: Graph) -> EnvParams:
        """Returns the params of another graph for this environment's program.

        Raises:
          ValueError: if the graph does not fit the sizes, or the ids of `shaping` are no order of
            it.
        """
        params = self._rules.encode(graph, self.cost)
        params = replace(params, before=encode_before(graph, self.spec))
        if self.shaping is not None:
            costs = reference_costs(graph, self.cost, self.shaping)
            padded = np.pad(costs, (0, self.num_actions - len(costs)))
            params = replace(params, reference=self.spec.counts(padded))
        if self.normalise:
            scale = max(1, classical_cost(graph, self.cost))
            params = replace(params, scale=jnp.asarray(scale, jnp.float32))
        return params

    def init(self, params: EnvParams | None = None) -> State:
        """Returns the state before the first elimination."""
        params = chosen_params(params, self.default_params)
        mask = legal_slots(params, params.vertex_ids >= 0)
        order = jnp.full(mask.shape, -1, jnp.int32)
        steps, cost = jnp.zeros((), jnp.int32), self.spec.counted(jnp.zeros((), jnp.int32))
        return State(owned(params.initial), mask, order, steps, cost, ~mask.any())

    def transition(
        self, state: State, action: ArrayLike, params: EnvParams | None = None
    ) -> tuple[State, Float[Array, ""], dict[str, Any]]:
        """Steps without computing the observation, for rollouts that read the state only.

        Returns:
          The next state, the reward and the info, as `step` gives them.

        Raises:
          TypeError: if the action is not an integer, or the state no `State`.
          ValueError: if the action is an array with axes, or the state of another environment or
            of several episodes.
        """
        params = chosen_params(params, self.default_params)
        check_state(state, params)
        asked = to_slot(action, self.num_actions)
        in_range, slot = asked >= 0, jnp.maximum(asked, 0)
        legal = in_range & state.action_mask[slot] & ~state.terminated
        illegal = ~legal & ~state.terminated
        core, cost = self._rules.eliminate(state.core, params, slot, legal)
        slots = jnp.arange(self.num_actions, dtype=jnp.int32)
        left = left_slots(params, state.action_mask, state.order)
        mask = legal_slots(params, left & ~((slots == slot) & legal))
        order = jnp.where((slots == state.num_steps) & legal, slot, state.order)
        total = state.cost + cost
        reward = reward_of(params, left, slot, legal, illegal, cost)
        done = state.terminated | illegal | ~mask.any()
        after = State(core, mask, order, state.num_steps + legal.astype(jnp.int32), total, done)
        return after, reward, {"cost": cost, "total": owned(total), "illegal": illegal}

    def observe(self, state: State, params: EnvParams | None = None) -> Any:
        """Returns the observation of a state, of the environment's kind."""
        params = chosen_params(params, self.default_params)
        check_state(state, params)
        return self._observer(state.core, state.action_mask, params)

    def costs(self, state: State, params: EnvParams | None = None) -> Count:
        """Returns each slot's cost of eliminating its vertex now: counts [A], 0 where none is."""
        params = chosen_params(params, self.default_params)
        check_state(state, params)
        return self._rules.degrees(state.core, params)[2]

    def observing(self, observation: ObservationKind, max_edges: int | None = None) -> VertexEnv:
        """Returns the same environment with another kind of observations.

        Args:
          observation: the kind.
          max_edges: room for edges, as for the environment itself.

        Raises:
          ValueError: as for the environment itself.
        """
        other = copy.copy(self)
        default_spec = Spec.of(self.graph, self.cost) == self.spec
        other.observation = observation
        other._observer = Observer.of(
            observation, self._rules, self.graph if default_spec else None, max_edges
        )
        return other

    def decode(self, obs: PackedObservation, params: EnvParams | None = None) -> Observation:
        """Unpacks matrix and features of a packed observation (batch with `jax.vmap`)."""
        return self._observer.decode(obs, chosen_params(params, self.default_params))

    def reset(
        self, key: Array | None = None, params: EnvParams | None = None
    ) -> tuple[Observation, State]:
        """Starts an episode; deterministic, the key is there for the sake of convention.

        Args:
          key: ignored.
          params: the graph; `default_params` by default.

        Returns:
          The first observation and state.
        """
        del key
        state = self.init(params)
        return self.observe(state, params), state

    def step(
        self,
        key: Array | None,
        state: State,
        action: ArrayLike,
        params: EnvParams | None = None,
    ) -> tuple[
        Observation, State, Float[Array, ""], Bool[Array, ""], Bool[Array, ""], dict[str, Any]
    ]:
        """Eliminates one vertex.

        Args:
          key: ignored; a step is deterministic.
          state: the state.
          action: integer [], the slot to eliminate.
          params: the graph; `default_params` by default.

        Returns:
          ``(obs, state, reward, terminated, truncated, info)``: reward float32 [], terminated and
          truncated bool [] (truncated is always False), info with ``cost`` (of this step),
          ``total`` (of the episode so far; both as `State.cost`) and ``illegal`` (bool []).

        Raises:
          TypeError: if the action is not an integer, or the state no `State`.
          ValueError: if the action is an array with axes, or the state of another environment or
            of several episodes.
        """
        del key
        state, reward, info = self.transition(state, action, params)
        truncated = jnp.zeros_like(state.terminated)
        obs, terminated = self.observe(state, params), owned(state.terminated)
        return obs, state, reward, terminated, truncated, info

    def action_mask(self, state: State) -> Bool[Array, " A"]:
        """Returns the legal slots of a state: True where the vertex can be eliminated."""
        return state.action_mask

    def order(self, state: State, params: EnvParams | None = None) -> tuple[int, ...]:
        """Returns the vertex ids eliminated so far; on the host, not under a transformation.

        Raises:
          TypeError, ValueError: as `step`, of the state.
        """
        params = chosen_params(params, self.default_params)
        check_state(state, params)
        slots = np.asarray(state.order)[: int(state.num_steps)]
        return tuple(int(v) for v in np.asarray(params.vertex_ids)[slots])

    def final_order(self, state: State, params: EnvParams | None = None) -> tuple[int, ...] | None:
        """Returns the order of a finished episode; None if it goes on or ended illegally.

        Raises:
          TypeError, ValueError: as `step`, of the state.
        """
        order = self.order(state, params)
        return None if bool(np.asarray(state.action_mask).any()) else order

    def __repr__(self) -> str:
        """Sizes and cost model."""
        return f"VertexEnv({self.graph!r}, cost={self.cost!r}, spec={self.spec})"
