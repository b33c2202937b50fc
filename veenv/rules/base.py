"""The rule table: for each primitive, the partials of its results by its operands.

A rule is a function of a `Site` (one equation) that returns, for each result, for each operand,
a `Partial` or None where the derivative is zero.  Structures must not depend on values; values
come from pure functions of the values of the operands and of the results, which only the engine
calls: the same rows serve at as many points as one likes.  Primitives without a rule fall back to
JAX's own linearisation (`veenv.rules.operator`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax import Array
from jax.export import is_symbolic_dim

from veenv import _compat
from veenv._support import setting
from veenv.linear.linear_map import LinearMap, Same
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

    Examples:
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
        _RULES.update(dict.fromkeys(names, rule))
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

    Examples:
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
    _RULES[primitive_name(primitive)] = rule


def primitive_name(primitive: Any) -> str:
    """Returns the name of a JAX primitive, or a name as it is; raises TypeError for others."""
    name = getattr(primitive, "name", primitive)
    if not isinstance(name, str):
        raise TypeError(f"primitive must be a JAX primitive or its name, got {primitive!r}")
    return name


def find(name: str) -> Rule | None:
    """The rule of a primitive, None if it has none.

    Args:
      name: name of the primitive.

    Examples:
      >>> find("mul").__name__, find("scan")  # a scan is linearised by JAX
      ('mul', None)
    """
    return _RULES.get(name)


def is_differentiable(aval: Any) -> bool:
    """Whether a variable of this type has a tangent space other than float0."""
    return jnp.issubdtype(aval.dtype, jnp.inexact)


def is_complex(aval: Any) -> bool:
    """Whether a variable is complex."""
    return jnp.issubdtype(aval.dtype, jnp.complexfloating)


def has_symbols(aval: Any) -> bool:
    """Returns whether an array has axes whose sizes `jax.export` knows as symbols."""
    shape = getattr(aval, "shape", ())
    return any(type(n) is not int and is_symbolic_dim(n) for n in shape)


def is_key(x: Any) -> bool:
    """Whether an array, or what is known of one, holds keys of random numbers: none of NumPy's."""
    dtype = getattr(x, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def real_shape(aval: Any, *, realify: bool) -> tuple[int, ...]:
    """Shape of a variable seen as real numbers."""
    return (*aval.shape, 2) if realify and is_complex(aval) else tuple(aval.shape)


def to_real(x: Array) -> Array:
    """A complex array as real numbers with a last axis of two; real arrays pass."""
    return jnp.stack([x.real, x.imag], axis=-1) if jnp.iscomplexobj(x) else x


def from_real(x: Array, aval: Any) -> Array:
    """The inverse of `to_real`, in the dtype of a variable."""
    if is_complex(aval) and not jnp.iscomplexobj(x):
        x = jax.lax.complex(x[..., 0], x[..., 1])
    return x.astype(aval.dtype)


def split_leaves(leaves: Iterable[Any], kind: Any = Array) -> tuple[dict[int, Any], list[Any]]:
    """Returns the leaves that are no arrays, by place, and the arrays; see `merge_leaves`."""
    leaves = list(leaves)
    rest = {k: x for k, x in enumerate(leaves) if not isinstance(x, kind)}
    return rest, [x for k, x in enumerate(leaves) if k not in rest]


def merge_leaves(rest: Mapping[int, Any], arrays: Sequence[Any]) -> list[Any]:
    """Puts the two results of `split_leaves` together again.

    Examples:
      >>> merge_leaves({1: "b"}, ["a", "c"])
      ['a', 'b', 'c']
    """
    remaining = iter(arrays)
    return [rest[k] if k in rest else next(remaining) for k in range(len(rest) + len(arrays))]


def replaced(values: Iterable[Any], places: Iterable[int], by: Iterable[Any]) -> list[Any]:
    """Returns values of which those at some places are others.

    Examples:
      >>> replaced("abc", [2, 0], "xy")
      ['y', 'b', 'x']
    """
    full = list(values)
    for k, value in zip(places, by, strict=True):
        full[k] = value
    return full


_known: ContextVar[dict[Hashable, tuple[Any, Any]] | None] = ContextVar("seen", default=None)


@contextmanager
def equal_equations_once() -> Iterator[None]:
    """Has functions of equal equations traced once, as long as one trace lasts."""
    with setting(_known, {}):
        yield


def replayed(site: Site, what: Hashable, fun: Callable[..., Any], *args: Any) -> Any:
    """``fun(*args)``, traced once for equations of one primitive, parameters, shapes and dtypes."""

    def traced() -> tuple[Any, Any]:
        closed, out = jax.make_jaxpr(fun, return_shape=True)(*jax.tree.map(_compat.shape_of, args))
        return closed, jax.tree.structure(out)

    traced_once = remembered(site, what, traced, *args)
    if traced_once is None:
        return fun(*args)
    closed, out = traced_once
    leaves = jax.core.eval_jaxpr(_compat.open_jaxpr(closed), closed.consts, *jax.tree.leaves(args))
    return jax.tree.unflatten(out, leaves)


def remembered(site: Site, what: Hashable, make: Callable[[], Any], *args: Any) -> Any:
    """Returns ``make()``, called once for such equations; None where nothing is remembered."""
    known = _known.get()
    if known is None or site.effects:
        return None
    leaves, tree = jax.tree.flatten(args)
    key = signature(site), what, tree, tuple(map(jax.typeof, leaves))
    if key not in known:
        known[key] = make()
    return known[key]


def signature(site: Site) -> Hashable:
    """Returns all that decides the derivative of an equation, hashable."""
    params = ((name, _hashable(value)) for name, value in sorted(site.params.items()))
    return (
        site.primitive, tuple(params), tuple(site.in_avals), tuple(site.out_avals),
        tuple(site.active), site.wanted and tuple(site.wanted), site.realify, site.effects,
    )  # fmt: skip


def _hashable(value: Any) -> Hashable:
    """Returns a parameter, wrapped to compare by identity if it cannot be hashed."""
    try:
        hash(value)
    except TypeError:
        return Same(value)
    return value
