"""Definitions of primitives of other libraries and of users, as functions in `jax.numpy`.

A primitive that veenv has no record of is what was registered for it, else what its own
implementation traces to at one point.  Some of equinox's depend on a batch (`unvmap_any`,
`select_if_vmap`): they say when all loops of the batch end, and whether one that goes on keeps its
state.  A kernel has one loop a point, so that their implementations, which are for one point, are
right: they steer loops and errors, and no value of a point depends on another point.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax.extend import source_info_util
from jax.interpreters import ad

from veenv import _compat, limits
from veenv.linear.linear_map import Same
from veenv.rules import walk
from veenv.rules.base import find, is_differentiable, primitive_name
from veenv.rules.table import TABLE, facts

Definition = Callable[..., Any]
"""From operands, and parameters by name, to the result, or to the results."""
_DEFINITIONS: dict[str, Definition] = {}


def register_rule(primitive: Any, meaning: Definition) -> None:
    """Says what a primitive means, for all functions traced from now on.

    It becomes part of kernels (`veenv.fuse`, `jacve`), C, sparse Jacobians and
    Laplacians. Its derivative stays the one that JAX or `veenv.defelemental` has a rule of; where
    neither has, it is that of the meaning.  A primitive that nobody registers means what its
    implementation (`Primitive.def_impl`) computes, if that can be traced.

    Args:
      primitive: a JAX primitive, or its name.
      meaning: function in `jax.numpy` of the operands, and of the parameters by name. It returns
        the result, or a sequence of results where there are several.

    Raises:
      TypeError: if `primitive` is neither, or `meaning` is not callable. When the primitive is met:
        if results have other shapes or dtypes than the primitive's.

    Examples:
      >>> import jax, jax.numpy as jnp, veenv
      >>> from jax.extend.core import Primitive
      >>> ramp = Primitive("ramp")
      >>> _ = ramp.def_abstract_eval(lambda x, *, top: x)
      >>> register_rule(ramp, lambda x, *, top: jnp.clip(x, 0, top))
      >>> step = veenv.fuse(lambda x: 2 * ramp.bind(x, top=3.0))
      >>> jax.vmap(step)(jnp.array([-1.0, 2.0, 5.0])).tolist()
      [0.0, 4.0, 6.0]
      >>> veenv.jacve(lambda x: 2 * ramp.bind(x, top=3.0))(2.0).item()
      2.0
    """
    if not callable(meaning):
        raise TypeError(f"meaning must be a function of the operands, got {meaning!r}")
    _DEFINITIONS[primitive_name(primitive)] = meaning
    _traced.cache_clear()


def definition_of(equation: Any) -> Any | None:
    """Returns the closed jaxpr of an equation's definition; None where JAX alone has one."""
    name = equation.primitive.name
    is_known = name in TABLE and not _applies(equation)
    if name not in _DEFINITIONS and (is_known or _compat.effects_of(equation)):
        return None
    return _traced(Same(equation))


def inlined_definition(equation: Any) -> Any | None:
    """Returns `definition_of` an equation if its derivative is not known otherwise, else None.

    What has no derivative stays as it is for batches, of which its definition may know nothing.
    """
    name, primitive = equation.primitive.name, equation.primitive
    has_rule = find(name) is not None or primitive in ad.primitive_jvps
    moves = name in _DEFINITIONS or any(map(is_differentiable, walk.out_avals(equation)))
    return definition_of(equation) if _applies(equation) or (moves and not has_rule) else None


def _applies(equation: Any) -> bool:
    """Returns whether an equation is a scatter that applies a function (`.at[].apply`)."""
    name, computed = equation.primitive.name, equation.params.get("update_jaxpr")
    return computed is not None and not facts(name).combine


def _applied(operand: Any, indices: Any, updates: Any, **params: Any) -> Any:
    """Applies a scatter's function to each entry, as often as its place is among the indices."""
    jaxpr, consts = params.pop("update_jaxpr"), params.pop("update_consts")
    none, ones = jnp.zeros(operand.shape, "int32"), jnp.ones(updates.shape, "int32")
    times = jax.lax.scatter_add(none, indices, ones, **params)
    one = lambda x: jax.core.eval_jaxpr(jaxpr, consts, x, x)[0]  # noqa: E731
    every = lambda x: jax.vmap(one)(x.ravel()).reshape(x.shape)  # noqa: E731

    def ahead(state: tuple[Any, Any]) -> tuple[Any, Any]:
        turn, x = state
        return turn + 1, jnp.where(times > turn, every(x), x)

    if params["unique_indices"]:
        return ahead((0, operand))[1]
    return jax.lax.while_loop(lambda state: (times > state[0]).any(), ahead, (0, operand))[1]


def with_definitions(closed: Any, known: dict[int, Any] | None = None) -> Any:
    """Replaces primitives without a derivative by their definitions, in bodies too.

    `known` has the results for closed jaxprs by address, as many bodies are called often.
    """
    known = {} if known is None else known
    if id(closed) not in known:
        known[id(closed)] = closed, _with_definitions(closed, known)
    return known[id(closed)][1]


def _with_definitions(closed: Any, known: dict[int, Any]) -> Any:
    """Computes `with_definitions` of a jaxpr that is not known."""
    if all(inlined_definition(equation) is None for equation in walk.every(closed)):
        return closed

    def step(equation: Any, ins: list[Any]) -> list[Any]:
        meaning = inlined_definition(equation)
        info = equation.source_info
        with source_info_util.user_context(info.traceback, name_stack=info.name_stack):
            if meaning is not None:
                return walk.results(meaning, [*meaning.consts, *ins], step)
            params = {
                key: _param_with_definitions(value, known) for key, value in equation.params.items()
            }
            return _compat.bind(equation.primitive, params, ins)

    shapes = [_compat.abstract(v.aval) for v in _compat.open_jaxpr(closed).invars]
    return jax.make_jaxpr(lambda *ins: walk.results(closed, (*closed.consts, *ins), step))(*shapes)


def _param_with_definitions(value: Any, known: dict[int, Any]) -> Any:
    """Returns a parameter, definitions put into its closed jaxprs."""
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        return type(value)(_param_with_definitions(x, known) for x in value)
    closed = hasattr(value, "consts") and hasattr(_compat.open_jaxpr(value), "eqns")
    return with_definitions(value, known) if closed else value


@functools.lru_cache(maxsize=limits.REMEMBERED)
def _traced(same: Same) -> Any | None:
    equation = same.item
    name, primitive = equation.primitive.name, equation.primitive
    run = _DEFINITIONS.get(name) or getattr(primitive, "impl", None)  # a `Function` has none
    run = _applied if _applies(equation) else run
    if run is None:
        return None

    def meant(*operands: Any) -> list[Any]:
        outs = run(*operands, **equation.params)
        return list(outs) if primitive.multiple_results else [outs]

    shapes = [_compat.abstract(aval) for aval in walk.in_avals(equation)]
    try:
        closed = jax.make_jaxpr(meant)(*shapes)
    except Exception:  # an implementation that needs values
        if name in _DEFINITIONS:
            raise
        return None
    if any(_alike(equation, other) for other in walk.every(closed)):  # as most of JAX's own do
        return None
    _check(name, closed.out_avals, walk.out_avals(equation))
    return closed


def _alike(one: Any, other: Any) -> bool:
    """Returns whether two equations are the same call, as where an implementation only binds."""
    if other.primitive is not one.primitive:
        return False
    avals = [[(a.shape, a.dtype) for a in walk.in_avals(e)] for e in (one, other)]
    return avals[0] == avals[1] and bool(one.params == other.params)


def _check(name: str, results: Any, expected: Any) -> None:
    """Refuses a meaning with other results than the primitive."""
    shown = [[f"{a.dtype}{list(a.shape)}" for a in avals] for avals in (results, expected)]
    if shown[0] != shown[1]:
        raise TypeError(
            f"primitive {name!r} has results {', '.join(shown[1])}, what it means has "
            f"{', '.join(shown[0])}"
        )
