"""Networks of the user's own: a module, or two functions, from observation to logits and value."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from veenv.agents.nn.encoding import GraphInputs
from veenv.agents.nn.networks import GraphNetwork, Policy
from veenv.env import EnvParams, State, VertexEnv


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Seen:
    """Inputs of a network of the user's own for one state, in place of `GraphInputs`.

    Attributes:
      observation: as the environment shows it.
      slots: whose logits count; A or more stands for none, int32 [K].
      mask: whether they are legal, bool [K].
    """

    observation: Any
    slots: Int[Array, " K"]
    mask: Bool[Array, " K"]


class OwnNetwork(eqx.Module):
    """A network of the user's own, as `veenv.agents.train` takes it.

    Attributes:
      weights: its parameters, a pytree of arrays.
      apply: of parameters and one observation: logits [A] of all slots, and the value [].

    Examples:
      >>> import veenv
      >>> env = veenv.make(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0)
      >>> pair = (
      ...     lambda key, seen: jax.random.normal(key, (seen.features.shape[-1],)),
      ...     lambda weights, seen: (seen.features @ weights, seen.features.sum()),
      ... )
      >>> network = OwnNetwork.of(pair, env, jax.random.key(0))
      >>> network.weights.shape, network(env.reset()[0])[0].shape
      ((8,), (2,))
    """

    weights: Any
    apply: Callable[[Any, Any], tuple[Array, Array]] = eqx.field(static=True)

    @classmethod
    def of(cls, network: Any, env: VertexEnv, key: PRNGKeyArray) -> OwnNetwork:
        """A module or a pair of functions as a network that plays an environment.

        Args:
          network: an object with ``init(key, observation)`` and ``apply(weights, observation)``
            (such as a module of flax), a tuple of these two functions, or a pytree that is called
            with an observation (such as a module of equinox), which brings its weights.
          env: whose observations it reads.
          key: of fresh weights.

        Raises:
          TypeError: it is none of these.
          ValueError: it does not return logits for every slot and one value.
        """
        first = env.observe(env.init())
        pair: Any = network if isinstance(network, tuple) else None
        if pair is None and hasattr(network, "init") and hasattr(network, "apply"):
            module: Any = network
            pair = module.init, module.apply
        if pair is not None and len(pair) == 2 and all(map(callable, pair)):
            init, apply = pair
            wrapped = cls(init(key, first), apply)
        else:
            weights, rest = eqx.partition(network, eqx.is_inexact_array)
            if not callable(network) or not jax.tree.leaves(weights):
                raise TypeError(
                    "expected a pytree with arrays that is called with an observation, or init and "
                    f"apply, got {type(network).__name__}: {network!r:.60}"
                )
            wrapped = cls(weights, partial(_call, rest))
        shapes = jax.tree.map(jnp.shape, jax.eval_shape(wrapped.apply, wrapped.weights, first))
        if shapes != ((env.num_actions,), ()):
            raise ValueError(
                "a network returns logits for every slot and one value, of shapes "
                f"{((env.num_actions,), ())}; got {shapes!s:.200}"
            )
        return wrapped

    def read(
        self,
        env: VertexEnv,
        state: State,
        params: EnvParams,
        slots: Int[Array, " K"] | None = None,
    ) -> Seen:
        """Returns what is observed of one state."""
        if slots is None:
            slots = jnp.arange(env.num_actions, dtype=jnp.int32)
        mask = state.action_mask.at[slots].get(mode="fill", fill_value=False)
        return Seen(env.observe(state, params), slots, mask)

    def as_policy(self, env: VertexEnv, temperature: float = 1.0) -> Policy:
        """A policy for `veenv.evaluate`, as that of a `GraphNetwork`."""
        del env
        return Policy(self, temperature)

    def __call__(self, seen: Any) -> tuple[Float[Array, " K"], Float[Array, ""]]:
        """Logits and value, float32, of an observation or of what `read` makes of a state."""
        if not isinstance(seen, Seen):
            logits, value = self.apply(self.weights, seen)
        else:
            logits, value = self.apply(self.weights, seen.observation)
            logits = logits.at[seen.slots].get(mode="fill", fill_value=0)
        return logits.astype(jnp.float32), jnp.asarray(value, jnp.float32)


def _call(rest: Any, weights: Any, observation: Any) -> tuple[Array, Array]:
    return eqx.combine(weights, rest)(observation)


Network = GraphNetwork | OwnNetwork
"""What an agent trains."""

Inputs = GraphInputs | Seen
"""What it reads of one state, or of several."""
