"""Kinds of observations of a state: `veenv.make(..., observation=...)`.

* ``"adjacency"``: `Observation`, the matrix of edges and features of the slots;
* ``"flat"``: the same features as one vector, for networks that take arrays;
* ``"graph"``: `GraphObservation`, lists of nodes and edges, padded, for graph networks;
* ``"packed"``: `PackedObservation`, the state's own bits, which cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from veenv._compat import barrier
from veenv.env.encode import EnvParams, Spec
from veenv.env.graph_view import GraphObservation, GraphView, with_columns
from veenv.env.rules_array import ArrayRules
from veenv.env.rules_scalar import ScalarRules
from veenv.env.state import Observation, owned
from veenv.graph.graph import Graph

if TYPE_CHECKING:
    import gymnasium

ObservationKind = Literal["adjacency", "flat", "graph", "packed"]

NUM_FEATURES = 8


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PackedObservation:
    """The state's bits, from which `VertexEnv.decode` makes an `Observation`.

    Attributes:
      edges: of a scalar graph ``present`` and ``valued``, uint32 [W, R] (None if every edge is
        valued): bit c % 32 of word c // 32 of row r is the edge from r to c; of a graph of arrays
        ``codes``, int32 [R, C], as `Observation.adjacency`, and ``sources``, uint32 [C, words],
        bit r % 32 of word r // 32 of column c.
      action_mask: bool [A], True where the action is legal.
    """

    edges: Any
    action_mask: Bool[Array, " A"]


@dataclass(frozen=True)
class Observer:
    """Makes the observations of an environment.

    Attributes:
      kind: which.
      spec: the padded sizes.
      rules: of the environment.
      view: the lists of a graph; None for the other kinds.
    """

    kind: ObservationKind
    spec: Spec
    rules: ScalarRules | ArrayRules
    view: GraphView | None

    @classmethod
    def of(
        cls,
        kind: ObservationKind,
        rules: ScalarRules | ArrayRules,
        graph: Graph | None,
        max_edges: int | None = None,
    ) -> Observer:
        """Returns the observer of an environment.

        Args:
          kind: which.
          rules: of the environment.
          graph: the only graph that is played; None if others may be.
          max_edges: room for edges in the lists of a graph; by default as `VertexEnv` says.

        Raises:
          ValueError: there is no such kind, or `max_edges` is no positive number, or it is given
            for another kind.
        """
        if kind not in get_args(ObservationKind):
            kinds = ", ".join(get_args(ObservationKind))
            raise ValueError(f"observation must be one of {kinds}, got {kind!r}")
        if max_edges is not None and kind != "graph":
            raise ValueError(f"max_edges belongs to observation='graph', not to {kind!r}")
        view = GraphView.of(rules.spec, graph, max_edges) if kind == "graph" else None
        return cls(kind, rules.spec, rules, view)

    def __call__(self, core: Any, mask: Bool[Array, " A"], params: EnvParams) -> Any:
        """Returns the observation of a state."""
        if self.kind == "packed":
            return PackedObservation(*owned((core, mask)))
        if self.view is not None:
            return self.view(core, mask, params)
        core, mask = barrier((core, mask))  # else XLA recomputes the step for every entry
        features = self._features(core, mask, params)
        if self.kind == "flat":
            return features.reshape(-1)
        return Observation(self.rules.adjacency(core), features, mask)

    def decode(self, packed: PackedObservation, params: EnvParams) -> Observation:
        """Unpacks matrix and features of a packed observation."""
        features = self._features(packed.edges, packed.action_mask, params)
        return Observation(self.rules.adjacency(packed.edges), features, packed.action_mask)

    def _features(
        self, core: Any, mask: Bool[Array, " A"], params: EnvParams
    ) -> Float[Array, "A F"]:
        degrees = barrier(self.rules.degrees(core, params))
        # As exact as log1p for whole numbers, and cheaper: log1p computes two branches.
        logs = [jnp.log(number.astype(jnp.float32) + 1) for number in degrees]
        *changing, legal = barrier([*logs, mask.astype(jnp.float32)])
        lasting = jnp.pad(params.static_features, ((0, 0), (len(degrees), 2)))
        is_output = params.is_output.astype(jnp.float32)
        lasting = with_columns(lasting, {NUM_FEATURES - 2: is_output})
        return with_columns(lasting, {**dict(enumerate(changing)), NUM_FEATURES - 1: legal})

    def space(self, params: EnvParams) -> gymnasium.Space[Any]:
        """Returns bounds, shapes and dtypes of the observations, as a space of Gymnasium."""
        import gymnasium

        box, slots, most = gymnasium.spaces.Box, self.spec.num_actions, largest_feature(self.spec)
        mask = gymnasium.spaces.MultiBinary(slots)
        if self.kind == "flat":
            return box(0.0, most, (slots * NUM_FEATURES,), np.float32)
        if self.view is not None:
            return gymnasium.spaces.Dict({**self.view.boxes(most), "action_mask": mask})
        if self.kind == "packed":
            leaves = fields_of(params.initial)
            edges = {
                name: box(0, np.iinfo(leaf.dtype).max, leaf.shape, np.dtype(leaf.dtype).type)
                for name, leaf in leaves.items()
            }
            return gymnasium.spaces.Dict({**edges, "action_mask": mask})
        code = np.iinfo(np.int32).max if not self.spec.scalar else 3
        return gymnasium.spaces.Dict(
            {
                "adjacency": box(0, code, (self.spec.rows, self.spec.columns), np.int32),
                "features": box(0.0, most, (slots, NUM_FEATURES), np.float32),
                "action_mask": mask,
            }
        )


def largest_feature(spec: Spec) -> float:
    """Returns an upper bound of the features of a slot: log1p of a size or of a count."""
    return 44.0 if spec.wide else 22.0  # log1p of 2 ** 63, of 2 ** 31


def fields_of(record: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass by name, without those that are None."""
    values = {name: getattr(record, name) for name in record.__dataclass_fields__}
    return {name: value for name, value in values.items() if value is not None}


def as_fields(obs: Any) -> dict[str, Any]:
    """Converts an observation of any kind but flat to a dictionary of its arrays, as in its space.

    Args:
      obs: the observation, single or batched.

    Examples:
      >>> import veenv
      >>> env = veenv.make(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0, observation="packed")
      >>> sorted(as_fields(env.reset()[0]))
      ['action_mask', 'present']
    """
    if isinstance(obs, PackedObservation):
        return {**fields_of(obs.edges), "action_mask": obs.action_mask}
    return fields_of(obs)


def mask_of(obs: Any, num_actions: int) -> Bool[Array, "*batch A"] | Int[Array, "*batch A"]:
    """Returns the legal actions that an observation of any kind shows.

    Args:
      obs: the observation, single or batched, or its fields as a dictionary.
      num_actions: A.

    Examples:
      >>> import veenv
      >>> env = veenv.make(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0, observation="flat")
      >>> mask_of(env.reset()[0], env.num_actions).tolist()
      [True, True]
    """
    if hasattr(obs, "action_mask"):
        return obs.action_mask
    if isinstance(obs, dict):
        return obs["action_mask"]
    return obs.reshape(*obs.shape[:-1], num_actions, NUM_FEATURES)[..., -1] > 0


__all__ = [
    "GraphObservation",
    "Observation",
    "ObservationKind",
    "Observer",
    "PackedObservation",
    "as_fields",
    "mask_of",
]
