"""The graph network: a policy logit for every vertex and one value, whatever the graph's size."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from veenv.agents.nn.encoding import GraphInputs, encode, num_features
from veenv.env import EnvParams, Observation, State, VertexEnv

# Scale of sums over vertices, so that they come out of the order of one.
TYPICAL_SIZE = 32.0


class Linear(eqx.Module):
    """Affine map of the last axis with orthogonal weights and zero bias.

    Saxe et al. (2014), "Exact solutions to the nonlinear dynamics of learning in deep linear
    neural networks".
    """

    weight: Float[Array, "n m"]
    bias: Float[Array, " m"]

    def __init__(self, num_in: int, num_out: int, *, scale: float, key: PRNGKeyArray):
        init = jax.nn.initializers.orthogonal(scale)
        self.weight = init(key, (num_in, num_out), jnp.float32)
        self.bias = jnp.zeros(num_out, jnp.float32)

    def __call__(self, x: Float[Array, "... n"]) -> Float[Array, "... m"]:
        """Applies the map, in the type of `x`."""
        bias = jnp.expand_dims(self.bias.astype(x.dtype), range(x.ndim - 1))
        return x @ self.weight.astype(x.dtype) + bias


class Head(eqx.Module):
    """Two layers that end in one number.

    Examples:
      >>> head = Head(3, 4, scale=1.0, key=jax.random.key(0))
      >>> rows, context = jnp.ones((5, 2)), jnp.ones(1)
      >>> together = head(jnp.ones((5, 3)))
      >>> bool(jnp.allclose(head.in_context(rows, context), together, rtol=1e-5)), together.shape
      (True, (5,))
    """

    inner: Linear
    outer: Linear

    def __init__(self, num_in: int, hidden: int, *, scale: float, key: PRNGKeyArray):
        first, second = jax.random.split(key)
        self.inner = Linear(num_in, hidden, scale=math.sqrt(2.0), key=first)
        self.outer = Linear(hidden, 1, scale=scale, key=second)

    def __call__(self, x: Float[Array, "... n"]) -> Float[Array, " *n"]:
        """Applies the layers; the last axis goes, the result is float32."""
        return self.outer(jax.nn.relu(self.inner(x)))[..., 0].astype(jnp.float32)

    def in_context(self, x: Float[Array, "A n"], context: Float[Array, " m"]) -> Float[Array, " A"]:
        """The head of every row of `x` with `context` behind it, multiplied once for all rows."""
        of_rows, shared = jnp.split(self.inner.weight.astype(x.dtype), [x.shape[-1]])
        bias = context @ shared + self.inner.bias.astype(x.dtype)
        return self.outer(jax.nn.relu(x @ of_rows + bias[None]))[..., 0].astype(jnp.float32)


class GraphNetwork(eqx.Module):
    """Policy and value of a partly eliminated graph.

    Embeds the features of every vertex and of its neighbourhood, reads a logit off every vertex and
    the value off sums over the vertices still to be eliminated (the cost to come is a sum over
    them).  No parameter's shape depends on the graph; renumbering the slots permutes the logits;
    slots that are not legal change nothing.

    Examples:
      >>> import veenv
      >>> network = GraphNetwork(hidden=4, key=jax.random.key(0))
      >>> obs, state = veenv.make(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0).reset()
      >>> logits, value = network(network.encode(obs))
      >>> logits.shape, value.shape
      ((2,), ())
    """

    embed: Linear
    policy: Head
    critic: Head
    num_hops: int = eqx.field(static=True)
    compute_dtype: str = eqx.field(static=True)

    def __init__(
        self,
        hidden: int = 32,
        num_hops: int = 1,
        *,
        bfloat16: bool = False,
        key: PRNGKeyArray,
    ):
        """Initialises the parameters.

        Args:
          hidden: width of every layer.
          num_hops: hops over which neighbours' features are summed beforehand (`encode`).
          bfloat16: compute hidden layers in bfloat16; parameters and outputs stay float32.
          key: typed PRNG key.
        """
        embed_key, policy_key, critic_key = jax.random.split(key, 3)
        self.embed = Linear(num_features(num_hops), hidden, scale=math.sqrt(2.0), key=embed_key)
        # Near-zero logits: the first episodes are uniformly random.
        self.policy = Head(2 * hidden, hidden, scale=0.01, key=policy_key)
        self.critic = Head(2 * hidden, hidden, scale=1.0, key=critic_key)
        self.num_hops = num_hops
        self.compute_dtype = "bfloat16" if bfloat16 else "float32"

    def valued_0(self) -> GraphNetwork:
        """This network with values of 0, for returns that are far less than 1."""
        zero = jnp.zeros_like(self.critic.outer.weight)
        return eqx.tree_at(lambda network: network.critic.outer.weight, self, zero)

    def encode(self, obs: Observation) -> GraphInputs:
        """Returns what this network reads of one observation."""
        return encode(obs, self.num_hops)

    def read(
        self,
        env: VertexEnv,
        state: State,
        params: EnvParams,
        slots: Int[Array, " K"] | None = None,
    ) -> GraphInputs:
        """`encode` of what is observed of one state; the bits of scalar graphs are read as such.

        Raises:
          ValueError: as `check_observation`.
        """
        check_observation(env)
        words = state.core.present.T if env.spec.scalar else None
        obs = env.observe(state, params)
        return encode(obs, self.num_hops, words=words, slots=slots)

    def as_policy(self, env: VertexEnv, temperature: float = 1.0) -> Policy:
        """A policy for `veenv.evaluate`: samples actions, or takes the likeliest at temperature 0.

        Raises:
          ValueError: as `check_observation`.
        """
        check_observation(env)
        return Policy(self, temperature)

    def __call__(self, inputs: Any) -> tuple[Float[Array, " A"], Float[Array, ""]]:
        """Logits of all slots (illegal ones included) and the value, float32 [A] and [].

        Args:
          inputs: one observation of kind ``"adjacency"``, or what `encode` makes of it.
        """
        if isinstance(inputs, Observation):
            inputs = self.encode(inputs)
        dtype = jnp.dtype(self.compute_dtype)
        legal = inputs.mask.astype(dtype)[:, None]
        h = jax.nn.relu(self.embed(inputs.nodes.astype(dtype))) * legal
        total = h.sum(0)
        mean = total / jnp.maximum(legal.sum(), 1)
        return self.policy.in_context(h, mean), self.critic(
            jnp.concatenate([mean, total / TYPICAL_SIZE])
        )


class Policy(eqx.Module):
    """A network that plays: a function of a key, observations [B, ...] and masks [B, A]."""

    network: Any
    temperature: float

    def __call__(self, key: PRNGKeyArray, seen: Observation, mask: Bool[Array, "B A"]) -> Array:
        """An action for each observation, int32 [B]."""
        logits = jnp.where(mask, jax.vmap(self.network)(seen)[0], -jnp.inf)
        if self.temperature > 0:
            logits = logits + self.temperature * jax.random.gumbel(key, logits.shape)
        return jnp.argmax(logits, axis=-1).astype(jnp.int32)


def check_observation(env: VertexEnv) -> None:
    """Checks that an environment shows what the networks read.

    Args:
      env: the environment.

    Raises:
      ValueError: its observations are of another kind than adjacency.

    Examples:
      >>> import veenv
      >>> check_observation(veenv.make(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0))
    """
    if env.observation != "adjacency":
        raise ValueError(
            f"the networks read observation='adjacency', got {env.observation!r}: pass "
            "env.observing('adjacency')"
        )
