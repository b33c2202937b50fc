"""Random graphs of scalars, drawn inside of jit: endless tasks without the host."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from veenv.env.bits import pack_flags
from veenv.env.counts import Count, less, select
from veenv.env.encode import EnvParams, Spec
from veenv.env.env import VertexEnv
from veenv.env.rules_scalar import ScalarEdges, ScalarRules
from veenv.graph.graph import check_order
from veenv.orders.order import Order


def random_params(
    key: PRNGKeyArray, spec: Spec | VertexEnv, *, fan_out: float = 1.4, window: int = 32
) -> EnvParams:
    """Returns the params of a random function of scalars, of exactly the sizes of a spec.

    Every input and vertex is used by one of the next equations, and every equation has an operand
    before it, so that all are on paths; further operands are drawn for some equations.  All edges
    carry values.  It can be jitted and vmapped over keys.

    Args:
      key: a key.
      spec: a scalar environment, or its sizes alone.
      fan_out: mean number of uses of an input or a vertex, from 1 to 2, about.
      window: how far back an equation reaches, in equations.

    Returns:
      Params whose rewards are shaped and normalised as the environment's are.  Those of a `Spec`
      are for environments that do neither: the rest refuse them, as there is no reference order
      and no scale.

    Raises:
      ValueError: the spec is not scalar or makes moves wait, or the environment's rewards are
        shaped by an `Order`, which is of one graph, or by ids that are no order of all slots.

    Examples:
      >>> import veenv
      >>> env = veenv.make("HumanHeartDipole")
      >>> params = jax.vmap(lambda key: random_params(key, env))(
      ...     jax.random.split(jax.random.key(0), 3)
      ... )
      >>> obs, state = jax.vmap(lambda p: env.reset(None, p))(params)
      >>> state.action_mask.sum(-1).tolist()
      [78, 78, 78]
    """
    env, spec = (spec, spec.spec) if isinstance(spec, VertexEnv) else (None, spec)
    if not spec.scalar or spec.precedence:
        raise ValueError(f"random graphs need a scalar spec without precedence, got {spec}")
    edges = _edges(key, spec, fan_out, window)
    slots = jnp.arange(spec.num_actions, dtype=jnp.int32)
    depth = _depths(edges, spec)
    features = jnp.stack(
        [
            jnp.full(spec.num_actions, jnp.log1p(1.0)),
            depth[: spec.num_actions] / depth.max(),
            slots / spec.num_actions,
        ],
        axis=-1,
    )
    present = pack_flags(edges).T
    # Bounds by all nodes above and below each vertex, with a margin for rounding of rewards.
    above = spec.num_inputs + slots.astype(jnp.float32)
    below = spec.num_actions - 1 - slots.astype(jnp.float32) + spec.num_outputs
    params = EnvParams(
        vertex_ids=slots + 1,
        is_output=jnp.zeros(spec.num_actions, bool),
        static_features=features.astype(jnp.float32),
        worst_total=(above * below).sum() * jnp.float32(2 if spec.additions else 1) * 1.01 + 1,
        initial=ScalarEdges(present, present if spec.unit_edges else None),
    )
    return params if env is None else _measured(params, env)


def _measured(params: EnvParams, env: VertexEnv) -> EnvParams:
    """Returns params with the reference order and the scale of an environment's rewards."""
    spec, shaping = env.spec, env.shaping
    rules, slots = ScalarRules(spec), jnp.arange(spec.num_actions, dtype=jnp.int32)

    def costs(order: Int[Array, " A"] | None) -> Count:
        """Returns the cost of each slot in an order, by default in Markowitz's."""

        def step(carry: Any, slot: Int[Array, ""]) -> Any:
            core, left = carry
            if order is None:
                ins, outs, _ = rules.degrees(core, params)
                degrees = jnp.where(left, ins * outs, jnp.iinfo(jnp.int32).max)
                slot = degrees.argmin().astype(jnp.int32)
            core, cost = rules.eliminate(core, params, slot, jnp.asarray(True))
            return (core, left.at[slot].set(False)), (slot, cost)

        start = params.initial, jnp.ones(spec.num_actions, bool)
        _, (played, paid) = jax.lax.scan(step, start, slots if order is None else order)
        return jax.tree.map(lambda x: jnp.zeros_like(x).at[played].set(x), paid)

    def cheapest() -> Count:
        """Returns the costs of the cheapest of the orders forward, reverse and Markowitz."""
        least, *rest = costs(slots), costs(slots[::-1]), costs(None)
        for other in rest:
            least = select(less(_total(other), _total(least)), other, least)
        return least

    if env.normalise:
        scale = jnp.maximum(_total(cheapest()).astype(jnp.float32), 1)
        params = replace(params, scale=scale)
    if shaping is None:
        return params
    named = {"forward": slots, "reverse": slots[::-1], "markowitz": None}
    if shaping == "classical":
        return replace(params, reference=cheapest())
    if isinstance(shaping, Order):
        raise ValueError("an Order is of one graph: shape the rewards of random graphs by a name")
    if not isinstance(shaping, str):
        ids = check_order(shaping, range(1, spec.num_actions + 1), spec.num_actions)
        return replace(params, reference=costs(jnp.asarray(ids, jnp.int32) - 1))
    return replace(params, reference=costs(named[shaping]))


def _total(costs: Count) -> Count:
    """Returns the sum of an episode's costs."""
    return costs.sum(dtype=jnp.int32) if isinstance(costs, jax.Array) else costs.sum()


def _edges(key: PRNGKeyArray, spec: Spec, fan_out: float, window: int) -> Bool[Array, "R C"]:
    """Draws the edges from rows to columns."""
    rows = jnp.arange(spec.rows, dtype=jnp.int32)
    columns = jnp.arange(spec.columns, dtype=jnp.int32)
    used, first_key, more_key, which = jax.random.split(key, 4)
    first = jnp.maximum(rows - spec.num_inputs + 1, 0)
    last = jnp.minimum(first + window, spec.columns)
    consumer = jax.random.randint(used, rows.shape, first, last, jnp.int32)
    edges = consumer[:, None] == columns[None]

    def operands(key: PRNGKeyArray) -> Int[Array, " C"]:
        """Draws a row before each column."""
        end = spec.num_inputs + jnp.minimum(columns, spec.num_actions)
        return jax.random.randint(key, columns.shape, jnp.maximum(end - window, 0), end, jnp.int32)

    needed = ~edges.any(0)
    edges |= (operands(first_key)[None] == rows[:, None]) & needed[None]
    extra = (fan_out - 1) * spec.rows / spec.columns
    more = jax.random.uniform(which, columns.shape) < extra
    return edges | ((operands(more_key)[None] == rows[:, None]) & more[None])


def _depths(edges: Bool[Array, "R C"], spec: Spec) -> Float[Array, " C"]:
    """Counts the edges on the longest path from an input to each column."""

    def step(depth: Float[Array, " C"], column: Int[Array, ""]) -> tuple[Array, None]:
        inputs = jnp.zeros(spec.num_inputs, jnp.float32)
        before = jnp.concatenate([inputs, depth[: spec.num_actions]])
        longest = jnp.where(edges[:, column], before, -1.0).max() + 1
        return depth.at[column].set(longest), None

    columns = jnp.arange(spec.columns, dtype=jnp.int32)
    return jax.lax.scan(step, jnp.zeros(spec.columns, jnp.float32), columns)[0]
