"""Self-play with a search before every move: Gumbel AlphaZero, with the environment as its model.

Danihelka et al. (2022), "Policy improvement by planning with Gumbel".  A state of the environment
is an immutable value, so the tree of the search holds states and a simulation steps the
environment itself: nothing is learned about the rules, and every cost in the tree is exact.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import mctx
from jaxtyping import Array, Float, Int, PRNGKeyArray

from veenv.agents.config.search import SearchConfig
from veenv.agents.nn.custom import Inputs, Network
from veenv.agents.nn.distributions import MASKED_LOGIT
from veenv.agents.ppo.rollouts import Episodes, slots_at
from veenv.agents.ppo.windows import cheapest_slots
from veenv.env import EnvParams, State, VertexEnv

# Type checkers do not see the constructors of chex's dataclasses.
_Root: Any = mctx.RootFnOutput
_ModelOutput: Any = mctx.RecurrentFnOutput

Node = tuple[State, Int[Array, "B K"] | None]
"""States [B, ...] in the tree, and the slots that its actions are; None if those are all slots."""

Model = Callable[..., tuple[Any, Node]]
"""Of the network, a key, actions [B] and a `Node`; as `mctx.RecurrentFn`."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Searches:
    """Steps of B episodes, every action chosen by a search among K slots; T = A, all slots.

    Attributes:
      inputs: what the network saw, Inputs [T, B, ...].
      prior: what was added to the logits, float32 [T, B, K]; None without a window.
      action_weights: the policy that the search found, 0 for illegal slots, float32 [T, B, K].
      value: the network's estimate before the step, 0 after the end, float32 [T, B].
      search_value: the search's estimate before the step, 0 after the end, float32 [T, B].
      reward: the environment's, float32 [T, B].
      active: 1 where the step was part of the episode, 0 after its end (padded graphs),
        float32 [T, B].
    """

    inputs: Inputs
    prior: Float[Array, "T B K"] | None
    action_weights: Float[Array, "T B K"]
    value: Float[Array, "T B"]
    search_value: Float[Array, "T B"]
    reward: Float[Array, "T B"]
    active: Float[Array, "T B"]


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What the network reads of B states, and says of them.

    Attributes:
      slots: that are read, int32 [B, K]; None if those are all slots.
      inputs: Inputs [B, ...].
      prior: what is added to the logits, float32 [B, K]; None without a window.
      logits: masked, float32 [B, K].
      value: 0 after the end, float32 [B].
    """

    slots: Int[Array, "B K"] | None
    inputs: Inputs
    prior: Float[Array, "B K"] | None
    logits: Float[Array, "B K"]
    value: Float[Array, " B"]

    @classmethod
    def of(
        cls, env: VertexEnv, params: EnvParams, network: Network, state: State, window: int = 0
    ) -> Prediction:
        """Reads states; with a window only so many slots, those that cost least now."""
        slots = prior = None
        if window:
            slots, prior = jax.vmap(partial(cheapest_slots, window, env))(state, params)
        inputs = jax.vmap(partial(network.read, env))(state, params, slots)
        logits, value = jax.vmap(network)(inputs)
        logits = jnp.where(inputs.mask, logits if prior is None else logits + prior, MASKED_LOGIT)
        return cls(slots, inputs, prior, logits, jnp.where(state.terminated, 0.0, value))


def make_model(env: VertexEnv, params: EnvParams, window: int = 0) -> Model:
    """The model that `mctx` searches with: the environment, then the network.

    Returns:
      What `mctx` calls its recurrent function.
    """

    def step(network: Network, key: PRNGKeyArray, action: Array, node: Node) -> tuple[Any, Node]:
        del key
        state, reward = move(env, params, node, action)
        seen = Prediction.of(env, params, network, state, window)
        discount = jnp.where(state.terminated, 0.0, 1.0)
        output = _ModelOutput(
            reward=reward, discount=discount, prior_logits=seen.logits, value=seen.value
        )
        return output, (state, seen.slots)

    return step


def move(
    env: VertexEnv, params: EnvParams, node: Node, action: Int[Array, " B"]
) -> tuple[State, Float[Array, " B"]]:
    """The states after an action in each, and the rewards."""
    state, slots = node
    if slots is not None:
        action = slots_at(slots, action)
    state, reward, _ = jax.vmap(env.transition)(state, action, params)
    return state, reward


def self_play(
    env: VertexEnv,
    params: EnvParams,
    network: Network,
    key: PRNGKeyArray,
    config: SearchConfig,
    window: int = 0,
) -> tuple[Searches, Episodes]:
    """Plays one whole episode in each of B environments, searching before every move.

    With a window the searches choose among the slots that cost least now, so many of them.
    """
    model: Any = make_model(env, params, window)

    def step(state: State, key: PRNGKeyArray) -> tuple[State, Searches]:
        seen = Prediction.of(env, params, network, state, window)
        node = state, seen.slots
        root = _Root(prior_logits=seen.logits, value=seen.value, embedding=node)
        searched: Any = network
        # mctx adds visit counts to values and compares arrays of several ranks.
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            search_result: Any = mctx.gumbel_muzero_policy(
                searched,
                key,
                root,
                model,
                config.num_simulations,
                invalid_actions=~seen.inputs.mask,
                max_num_considered_actions=config.max_considered,
                gumbel_scale=config.gumbel_scale,
            )
        active = (~state.terminated).astype(jnp.float32)
        search_value = search_result.search_tree.summary().value * active
        state, reward = move(env, params, node, search_result.action)
        weights = search_result.action_weights
        row = Searches(seen.inputs, seen.prior, weights, seen.value, search_value, reward, active)
        return state, row

    keys = jax.random.split(key, env.num_actions)
    state, searches = jax.lax.scan(step, jax.vmap(env.init)(params), keys)
    return searches, Episodes(state.cost, state.order, ~state.action_mask.any(-1))
