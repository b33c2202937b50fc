"""A graph as data: the arrays that the environment's one compiled program plays on.

Letters used for shapes throughout `veenv.env`:

* I inputs, A actions (eliminable vertices), O outputs that cannot be eliminated (*terminal*);
* R = I + A rows, the nodes an edge can leave: inputs, then action slots;
* C = A + O columns, the nodes an edge can enter: action slots, then terminal outputs;
* W = ⌈C / 32⌉ words, F features of a vertex.

Every size may be larger than the graph needs, so that graphs of different tasks share a program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from veenv.env.counts import Count, WideCount
from veenv.env.exact_range import INT32_MAX, check_total
from veenv.graph.graph import CostModel, Graph, counts_additions
from veenv.graph.layout import node_depths
from veenv.structure.packed import MAX_RANK
from veenv.structure.structure import Link


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EnvParams:
    """One graph, padded; a pytree of arrays.

    Attributes:
      vertex_ids: int32 [A], vertex id of each action slot, ascending; -1 where padded.
      is_output: bool [A], the vertex is an output too and keeps its in-edges when eliminated.
      static_features: float32 [A, 3], of each vertex log1p(size), depth / largest depth, and
        slot / number of slots in use.
      worst_total: float32 [], every order of this graph costs less than this, by a margin above
        the rounding of rewards.
      initial: the kernel's arrays before the first elimination.
      axes: int32 [R + O, rank], axis sizes of the rows' nodes, then of the terminal outputs; axes
        of size one are left out, and 1 stands where there is no axis. None for scalar graphs.
      reference: count [A], of each vertex what it costs in the reference order of the shaped
        rewards (`veenv.env.rewards`); None for rewards that are not shaped.
      scale: float32 [], what rewards are divided by; None for 1.
      before: bool [A, A], which slots must go before each slot (`veenv.env.precedence`); None
        where the spec has no rules that make moves wait.

    Examples:
      >>> import veenv
      >>> params = veenv.make(lambda x: x * x * x * x, 1.0).default_params
      >>> params.vertex_ids.tolist(), int(params.max_steps_in_episode)
      ([1, 2], 2)
    """

    vertex_ids: Int[Array, " A"]
    is_output: Bool[Array, " A"]
    static_features: Float[Array, "A 3"]
    worst_total: Float[Array, ""]
    initial: Any
    axes: Int[Array, "nodes rank"] | None = None
    reference: Count | None = None
    scale: Float[Array, ""] | None = None
    before: Bool[Array, "A A"] | None = None

    @property
    def max_steps_in_episode(self) -> Int[Array, ""]:
        """Length of every legal episode, int32 []; gymnax's name."""
        return (self.vertex_ids >= 0).sum(-1, dtype=jnp.int32)


@dataclass(frozen=True)
class Spec:
    """Static sizes of the compiled program: padded counts of nodes, and the kind of edges.

    Attributes:
      num_inputs: I.
      num_actions: A, at least one.
      num_outputs: O, terminal outputs.
      scalar: every variable holds one number, so that an edge is a bit or two.
      unit_edges: some edges of a scalar graph are unit (free), so that two bits are needed.
      rank: most axes (of size other than one) of a variable; 0 if scalar.
      links: some edges have a link (`veenv.structure`).
      additions: additions cost as multiplications do.
      precedence: some vertices must wait for others (`veenv.env.precedence`).
      wide: some order may cost more than int32 holds, so that counts are `WideCount`s.

    Examples:
      >>> import veenv
      >>> functions = (lambda x: x * x * x * x, lambda x: x * x * x)
      >>> specs = [Spec.of(veenv.make_graph(f)(1.0), "multiplications") for f in functions]
      >>> [spec.num_actions for spec in specs], Spec.common(specs).num_actions
      ([2, 1], 2)
    """

    num_inputs: int
    num_actions: int
    num_outputs: int
    scalar: bool = True
    unit_edges: bool = False
    rank: int = 0
    links: bool = False
    additions: bool = False
    precedence: bool = False
    wide: bool = False

    @property
    def rows(self) -> int:
        """R, the number of nodes that edges can leave."""
        return self.num_inputs + self.num_actions

    @property
    def columns(self) -> int:
        """C, the number of nodes that edges can enter."""
        return self.num_actions + self.num_outputs

    def counted(self, number: Int[Array, "*shape"]) -> Count:
        """Converts numbers to counts of the kind that the environment keeps."""
        return WideCount.of(number) if self.wide else number

    def counts(self, numbers: Int[np.ndarray, " n"]) -> Count:
        """Converts int64 numbers of the host to counts of the kind that the environment keeps."""
        return WideCount.of_ints(numbers) if self.wide else jnp.asarray(numbers, jnp.int32)

    @classmethod
    def of(cls, graph: Graph, cost: CostModel) -> Spec:
        """Returns the smallest spec of a graph.

        Raises:
          ValueError: if a variable has more than four axes of size other than one, or an order
            may cost more than the largest count (`veenv.env.exact_range.check_total`).
        """
        structures = graph.structures(cost).values()
        return cls(
            graph.num_inputs,
            max(1, len(graph.eliminable)),
            len(terminal_outputs(graph)),
            graph.is_scalar,
            graph.is_scalar and any(s.unit for s in structures),
            _rank(graph),
            any(s.link is not Link.NONE for s in structures),
            counts_additions(cost),
            bool(graph.prerequisites),
            check_total(graph, cost) > INT32_MAX,
        )

    @classmethod
    def common(cls, specs: Sequence[Spec]) -> Spec:
        """Returns the smallest spec that fits all of `specs`.

        Raises:
          ValueError: if there are none, or additions cost in some of them only.
        """
        if not specs:
            raise ValueError("a common spec needs at least one graph")
        if len({s.additions for s in specs}) > 1:
            raise ValueError(
                "a common spec needs one cost model, but only some of these count additions"
            )
        scalar = all(s.scalar for s in specs)
        most = {f.name: max(getattr(s, f.name) for s in specs) for f in fields(cls)}
        return cls(**most | {"scalar": scalar, "unit_edges": scalar and most["unit_edges"]})

    def padded(
        self,
        *,
        num_inputs: int | None = None,
        num_actions: int | None = None,
        num_outputs: int | None = None,
    ) -> Spec:
        """Returns this spec with larger sizes; sizes that are None stay."""
        return replace(
            self,
            num_inputs=self.num_inputs if num_inputs is None else num_inputs,
            num_actions=self.num_actions if num_actions is None else num_actions,
            num_outputs=self.num_outputs if num_outputs is None else num_outputs,
        )

    def check_fits(self, graph: Graph, cost: CostModel) -> None:
        """Checks that a graph fits.

        Raises:
          ValueError: naming the size, or the kind of edge, that does not fit.
        """
        needed = Spec.of(graph, cost)
        if needed.additions != self.additions:
            raise ValueError(
                f"the cost model {cost!r} {'counts' if needed.additions else 'does not count'} "
                f"additions, the environment {'does' if self.additions else 'does not'}"
            )
        if self.scalar and not needed.scalar:
            raise ValueError("a graph with array variables does not fit a scalar environment")
        for name in ("num_inputs", "num_actions", "num_outputs", "rank"):
            have, need = getattr(self, name), getattr(needed, name)
            if have < need:
                raise ValueError(f"the graph needs {name} of at least {need}, got {have}")
        if needed.precedence and not self.precedence:
            rule = graph.reverse_only[0]
            raise ValueError(
                f"the derivative rule of {rule.name} ({rule.source}) is not provably linear in its "
                "cotangent, so that vertices must wait for others, which this environment's spec "
                "does not provide for (precedence=True)"
            )
        if needed.wide and not self.wide:
            raise ValueError(
                f"an order of this graph could cost up to {check_total(graph, cost)}, which passes "
                f"int32 ({INT32_MAX}), in which this environment's spec counts (wide=True)"
            )
        if needed.links and not self.links:
            raise ValueError("a graph with linked edges does not fit an environment without them")
        if self.scalar and needed.unit_edges and not self.unit_edges:
            raise ValueError("a graph with unit edges does not fit an environment without them")


@dataclass(frozen=True)
class NodeLayout:
    """Positions of a graph's nodes in the padded arrays.

    Attributes:
      row: row of every input and eliminable node.
      column: column of every eliminable node and terminal output.
    """

    row: dict[int, int]
    column: dict[int, int]

    @classmethod
    def of(cls, graph: Graph, spec: Spec) -> NodeLayout:
        """Returns the layout of a graph in arrays of the sizes of `spec`."""
        slots = {graph.node(v): a for a, v in enumerate(graph.eliminable)}
        row = {n: n for n in range(graph.num_inputs)}
        row |= {n: spec.num_inputs + a for n, a in slots.items()}
        ends = {n: spec.num_actions + k for k, n in enumerate(terminal_outputs(graph))}
        return cls(row, slots | ends)


def _rank(graph: Graph) -> int:
    rank = 0
    for node in sorted({n for edge in graph.edges for n in edge}):
        axes = sum(n != 1 for n in graph.shapes[node])
        if axes > MAX_RANK:
            kind = "input" if node < graph.num_inputs else "vertex"
            name = node if node < graph.num_inputs else node - graph.num_inputs + 1
            raise ValueError(
                f"the environment plays variables of at most {MAX_RANK} axes of size other than "
                f"one, but {kind} {name} has shape {graph.shapes[node]}"
            )
        rank = max(rank, axes)
    return rank


def terminal_outputs(graph: Graph) -> tuple[int, ...]:
    """Returns output nodes that are no actions (no inputs, not used further on), ascending."""
    moves = {graph.node(v) for v in graph.eliminable}
    return tuple(sorted(n for n in graph.output_nodes - moves if n >= graph.num_inputs))


def encode_common(
    graph: Graph, cost: CostModel, spec: Spec, initial: Any, axes: np.ndarray | None = None
) -> EnvParams:
    """Builds the params of a graph around the arrays `initial` of the scalar or array rules."""
    slots, num_used = spec.num_actions, len(graph.eliminable)
    nodes = [graph.node(v) for v in graph.eliminable]
    ids = np.full(slots, -1, np.int32)
    ids[:num_used] = graph.eliminable
    outputs = np.zeros(slots, bool)
    outputs[:num_used] = [n in graph.output_nodes for n in nodes]
    features = np.zeros((slots, 3), np.float32)
    depths = node_depths(graph)
    features[:num_used, 0] = [np.log1p(prod(graph.shapes[n])) for n in nodes]
    features[:num_used, 1] = np.array([depths[n] for n in nodes]) / max(1, *depths)
    features[:num_used, 2] = np.arange(num_used) / max(1, num_used)
    return EnvParams(
        vertex_ids=jnp.asarray(ids),
        is_output=jnp.asarray(outputs),
        static_features=jnp.asarray(features),
        worst_total=jnp.asarray(_above(check_total(graph, cost))),
        initial=initial,
        axes=None if axes is None else jnp.asarray(axes),
    )


def _above(total: int) -> np.float32:
    """Returns a float32 at least 0.1 % above `total`, more than rounding of summed rewards."""
    return np.float32(total + total // 512 + 1)
