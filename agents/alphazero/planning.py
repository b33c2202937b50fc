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
from jaxtyping import Array, Float, PRNGKeyArray

from veenv.agents.config.search import SearchConfig
from veenv.agents.nn.custom import Inputs, Network
from veenv.agents.nn.distributions import MASKED_LOGIT
from veenv.agents.ppo.rollouts import Episodes
from veenv.env import EnvParams, State, VertexEnv

# Type checkers do not see the constructors of chex's dataclasses.
_Root: Any = mctx.RootFnOutput
_ModelOutput: Any = mctx.RecurrentFnOutput

Model = Callable[..., tuple[Any, State]]
"""Of the network, a key, actions [B] and states [B, ...]; as `mctx.RecurrentFn`."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Searches:
    """Steps of B episodes, every action chosen by a search; T = A, the number of action slots.

    Attributes:
      inputs: what the network saw, Inputs [T, B, ...].
      action_weights: the policy that the search found, 0 for illegal slots, float32 [T, B, A].
      value: the network's estimate before the step, 0 after the end, float32 [T, B].
      search_value: the search's estimate before the step, 0 after the end, float32 [T, B].
      reward: the environment's, float32 [T, B].
      active: 1 where the step was part of the episode, 0 after its end (padded graphs),
        float32 [T, B].
    """

    inputs: Inputs
    action_weights: Float[Array, "T B A"]
    value: Float[Array, "T B"]
    search_value: Float[Array, "T B"]
    reward: Float[Array, "T B"]
    active: Float[Array, "T B"]


def predict(
    env: VertexEnv, params: EnvParams, network: Network, state: State
) -> tuple[Inputs, Float[Array, "B A"], Float[Array, " B"]]:
    """Returns inputs, masked logits and values (0 after the end) of B states."""
    inputs = jax.vmap(partial(network.read, env))(state, params)
    logits, value = jax.vmap(network)(inputs)
    logits = jnp.where(state.action_mask, logits, MASKED_LOGIT)
    return inputs, logits, jnp.where(state.terminated, 0.0, value)


def make_model(env: VertexEnv, params: EnvParams) -> Model:
    """The model that `mctx` searches with: the environment, then the network.

    Returns:
      What `mctx` calls its recurrent function.
    """

    def step(network: Network, key: PRNGKeyArray, action: Array, state: State) -> tuple[Any, State]:
        del key
        state, reward, _ = jax.vmap(env.transition)(state, action, params)
        _, logits, value = predict(env, params, network, state)
        discount = jnp.where(state.terminated, 0.0, 1.0)
        output = _ModelOutput(reward=reward, discount=discount, prior_logits=logits, value=value)
        return output, state

    return step


def self_play(
    env: VertexEnv,
    params: EnvParams,
    network: Network,
    key: PRNGKeyArray,
    config: SearchConfig,
) -> tuple[Searches, Episodes]:
    """Plays one whole episode in each of B environments, searching before every move."""
    model: Any = make_model(env, params)

    def step(state: State, key: PRNGKeyArray) -> tuple[State, Searches]:
        inputs, logits, value = predict(env, params, network, state)
        root = _Root(prior_logits=logits, value=value, embedding=state)
        searched: Any = network
        # mctx adds visit counts to values and compares arrays of several ranks.
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            search_result: Any = mctx.gumbel_muzero_policy(
                searched,
                key,
                root,
                model,
                config.num_simulations,
                invalid_actions=~state.action_mask,
                max_num_considered_actions=config.max_considered,
                gumbel_scale=config.gumbel_scale,
            )
        active = (~state.terminated).astype(jnp.float32)
        search_value = search_result.search_tree.summary().value * active
        state, reward, _ = jax.vmap(env.transition)(state, search_result.action, params)
        row = Searches(inputs, search_result.action_weights, value, search_value, reward, active)
        return state, row

    keys = jax.random.split(key, env.num_actions)
    state, searches = jax.lax.scan(step, jax.vmap(env.init)(params), keys)
    return searches, Episodes(state.cost, state.order, ~state.action_mask.any(-1))
