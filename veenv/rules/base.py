"""The rule table: for each primitive, the partials of its results by its operands.

A rule is a function of a `Site` (one equation) that returns, for each result, for each operand,
a `Partial` or None where the derivative is zero.  Structures must not depend on values; values
come from pure functions of the values of the operands and of the results, which only the engine
calls: the same rows serve at as many points as one likes.  Primitives without a rule fall back to
JAX's own linearisation (`veenv.rules.operator`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jax import Array

from veenv.linear.linear_map import LinearMap
from veenv.rules.dtypes import is_differentiable
from veenv.structure.structure import Structure

Pairs = tuple[tuple[int, int], ...]
"""(out axis, in axis) of each δ, numbered as in a structure."""

Values = Sequence[Any]
"""The values of all operands, or of all results, of one equation."""


@dataclass(frozen=True)
class Site:
    """One equation, as a rule sees it.

    Attributes:
      primitive: the JAX primitive.
      params: its parameters.
      in_avals: shape and dtype of each operand.
      out_avals: shape and dtype of each result.
      active: for each operand, whether it depends on a differentiated input. Partials by the
        other operands are not asked for.
      source: the user's line.
      realify: see complex variables as pairs of real numbers.
      diagonal: the axes along which the partial of a result by an operand, left as an operator, is
        diagonal (None where it is zero); None if nothing is known of them.
      wanted: for each result, whether its partials are asked for; None if all are.
      effects: it does more than compute, or its derivative rules do: what it computes and its
        derivative are of one run.

    Example:
      >>> import jax
      >>> x = jax.ShapeDtypeStruct((3,), "float32")
      >>> site = Site(jax.lax.mul_p, {}, (x, x), (x,), (True, False), "")
      >>> site.operands, site.results
      ((0,), (0,))
    """

    primitive: Any
    params: dict[str, Any]
    in_avals: Sequence[Any]
    out_avals: Sequence[Any]
    active: Sequence[bool]
    source: str
    realify: bool = True
    diagonal: Callable[[int, int], Pairs | None] | None = None
    wanted: Sequence[bool] | None = None
    effects: bool = False

    @property
    def operands(self) -> tuple[int, ...]:
        """The active operands."""
        return tuple(i for i, a in enumerate(self.active) if a)

    @property
    def results(self) -> tuple[int, ...]:
        """The results whose partials are asked for and that have derivatives."""
        wanted = self.wanted or [True] * len(self.out_avals)
        pairs = enumerate(zip(wanted, self.out_avals, strict=True))
        return tuple(k for k, (asked, aval) in pairs if asked and is_differentiable(aval))


@dataclass(frozen=True)
class Partial:
    """An elemental partial.

    Attributes:
      executed: its structure as the engine stores it.
      literature: its structure under the literature's count, where unit partials of arithmetic
        count as stored ones.
      values: (ins, outs) → the stored values, of shape ``executed.value_shape``; None if unit.
      sign: +1 or -1, a factor of every entry.
      link: (ins, outs) → the linear map of the link, on axes without size one; None without link.
      diagonal: the axes along which an operator is diagonal.
      shared: (ins, outs) → what several partials of the equation take their values or links from.
        It is computed once an evaluation for all partials that name the same function, and is
        then the third argument of their `values`, `link` and `mask`.
      mask: (ins, outs) → the mask of the values (`veenv.engine.edge`), boolean, of their rank,
        of size one along axes it does not depend on; values are zero where it is False. None: no
        mask.
    """

    executed: Structure
    literature: Structure
    values: Callable[..., Array] | None = None
    sign: int = 1
    link: Callable[..., LinearMap] | None = None
    diagonal: Pairs = ()
    shared: Callable[[Values, Values], Any] | None = None
    mask: Callable[..., Array] | None = None


Row = Sequence[Partial | None]
Rule = Callable[[Site], Sequence[Row]]

_RULES: dict[str, Rule] = {}


def register(*names: str) -> Callable[[Rule], Rule]:
    """Decorator: makes a rule the built-in one of the primitives of these names."""

    def wrap(rule: Rule) -> Rule:
        for name in names:
            _RULES[name] = rule
        return rule

    return wrap


def defelemental(primitive: Any, rule: Rule) -> None:
    """Adds or replaces the rule of a primitive, for all functions traced from now on.

    Args:
      primitive: a JAX primitive, or its name.
      rule: function of a `Site` returning, for each result, for each operand, a `Partial` or
        None where the derivative is zero. The structures must follow from shapes and dtypes
        alone; the values (of shape ``executed.value_shape``, which leaves out axes of size one)
        come from a pure function of the values of the operands and of the results.

    Raises:
      TypeError: if `primitive` is neither, or `rule` is not callable.

    Example:
      >>> import jax.numpy as jnp, veenv
      >>> from jax.extend.core import Primitive
      >>> from veenv.rules import Partial
      >>> from veenv.structure import diagonal
      >>> cube = Primitive("cube")
      >>> _ = cube.def_impl(lambda x: x**3), cube.def_abstract_eval(lambda x: x)
      >>> def rule(site):
      ...     s = diagonal(site.out_avals[0].shape, valued=True)
      ...     slope = lambda ins, outs: (3 * ins[0] ** 2).reshape(s.value_shape)
      ...     return [[Partial(s, s, slope)]]
      >>> defelemental(cube, rule)
      >>> veenv.jacve(lambda x: cube.bind(2.0 * x))(jnp.array([1.0, 2.0])).tolist()
      [[24.0, 0.0], [0.0, 96.0]]
    """
    if not callable(rule):
        raise TypeError(f"rule must be a function of a Site, got {rule!r}")
    name = getattr(primitive, "name", primitive)
    if not isinstance(name, str):
        raise TypeError(f"primitive must be a JAX primitive or its name, got {primitive!r}")
    _RULES[name] = rule


def find(name: str) -> Rule | None:
    """The rule of a primitive, None if it has none.

    Args:
      name: name of the primitive.

    Example:
      >>> find("mul").__name__, find("scan")  # a scan is linearised by JAX
      ('mul', None)
    """
    return _RULES.get(name)
