"""Everything that differs between the supported JAX versions, in one place."""

from __future__ import annotations

from typing import Any

import jax
import jax.core
from jax.extend import core, source_info_util

_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "core_closed_call": "call_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
}
"""Call primitives whose body is inlined, and the parameter that holds it."""


def open_jaxpr(jaxpr: Any) -> Any:
    """The jaxpr inside a closed jaxpr (newer versions make no difference between the two)."""
    return getattr(jaxpr, "jaxpr", jaxpr)


def inlinable(eqn: Any) -> Any | None:
    """The body of an equation that is a plain call, None for every other equation."""
    key = _CALLS.get(eqn.primitive.name)
    return None if key is None else eqn.params.get(key)


def is_dropped(var: Any) -> bool:
    """Whether an equation's output variable is unused (printed as ``_``)."""
    return isinstance(var, core.DropVar)


def source_line(eqn: Any) -> str:
    """The user's file and line that made an equation, for error messages."""
    try:
        return source_info_util.summarize(eqn.source_info)
    except Exception:  # the summary is a courtesy; its absence must not hide the real error
        return "unknown source"


def bind(primitive: Any, params: dict[str, Any], args: Any) -> list[Any]:
    """Applies a primitive with the parameters of a traced equation; always a list of results."""
    out = primitive.bind(*args, **primitive.get_bind_params(params))
    return list(out) if primitive.multiple_results else [out]


def is_traced(value: Any) -> bool:
    """Whether a value stands for one that a compiled program will compute."""
    return isinstance(value, jax.core.Tracer)


def is_export(ctx: Any) -> bool:
    """Whether a lowering is for `jax.export`."""
    parameters = getattr(ctx.module_context, "lowering_parameters", None)
    return bool(getattr(parameters, "for_export", False))


def keep_alive(ctx: Any, value: Any) -> None:
    """Keeps an object as long as the program that is being lowered, or what is compiled of it."""
    add = getattr(ctx.module_context, "add_keepalive", None)
    if add is not None:
        add(value)


def same_variance(args: Any) -> list[Any]:
    """Arguments of one primitive inside `jax.shard_map`: all vary along the same mesh axes."""
    varying = [getattr(jax.typeof(x), "vma", frozenset()) for x in args]
    together = frozenset().union(*varying)
    if all(v == together for v in varying):
        return list(args)
    cast = getattr(jax.lax, "pcast", None) or getattr(jax.lax, "pvary")  # noqa: B009  # jax 0.10
    options = {"to": "varying"} if hasattr(jax.lax, "pcast") else {}
    return [
        cast(x, tuple(together - v), **options) if together - v else x
        for x, v in zip(args, varying, strict=True)
    ]
