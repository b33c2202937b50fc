"""Tracing as `jax.jvp` does it: what does not depend on the arguments is computed at once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.core
from jax.extend import source_info_util
from jax.extend.core import find_top_trace, set_current_trace

source_info_util.register_exclusion(__file__)


class _Known(jax.core.Trace):
    """Sends each operation to the trace of the arguments, or past it to the one outside."""

    def __init__(self, outside: Any, inside: Any):
        super().__init__()
        self._outside, self._inside = outside, inside
        self.parent_trace = inside

    def _send(self, name: str, primitive: Any, *args: Any, **params: Any) -> Any:
        values = [x for some in args if isinstance(some, (list, tuple)) for x in some]
        moved = any(isinstance(x, jax.core.Tracer) and x._trace is self._inside for x in values)
        trace = self._inside if moved else self._outside
        with set_current_trace(trace):
            return getattr(trace, name)(primitive, *args, **params)

    def process_primitive(self, *args: Any, **params: Any) -> Any:
        return self._send("process_primitive", *args, **params)

    def process_custom_jvp_call(self, *args: Any, **params: Any) -> Any:
        return self._send("process_custom_jvp_call", *args, **params)

    def process_custom_vjp_call(self, *args: Any, **params: Any) -> Any:
        return self._send("process_custom_vjp_call", *args, **params)

    def process_shard_map(self, *args: Any, **params: Any) -> Any:
        return self._send("process_shard_map", *args, **params)

    def stage_value(self, val: Any) -> Any:
        return val


def at_once(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A function for `jax.make_jaxpr` that computes outside of it what its arguments do not move.

    What derivative rules close over has a value then that outlives the trace.
    """
    outside = find_top_trace(())

    @functools.wraps(fun)
    def known(*args: Any) -> Any:
        inside = find_top_trace(())
        with set_current_trace(_Known(outside, inside)), jax.ensure_compile_time_eval():
            return fun(*args)

    return known
