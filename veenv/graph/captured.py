"""Traces functions whose derivative rules close over values that the function computes.

Traced with `at_once`, what does not depend on the inputs has a value that outlives the trace; where
a rule closes over what does, the function is one equation, which a mode of JAX differentiates.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.core
from jax.extend import source_info_util
from jax.extend.core import find_top_trace, set_current_trace

from veenv import _compat
from veenv.graph.equations import Equation, Function
from veenv.rules import walk

source_info_util.register_exclusion(__file__)


class _Known(jax.core.Trace):
    """A trace that records operations on its arguments, and evaluates all others outside of it."""

    def __init__(self, outside: Any, inside: Any):
        super().__init__()
        self._outside, self._inside = outside, inside
        self.parent_trace = inside

    def _send(self, name: str, primitive: Any, *args: Any, **params: Any) -> Any:
        values = [x for group in args if isinstance(group, (list, tuple)) for x in group]
        active = any(isinstance(x, jax.core.Tracer) and x._trace is self._inside for x in values)
        trace = self._inside if active else self._outside
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
    """Wraps a function for `jax.make_jaxpr` so that values independent of its arguments are known.

    What derivative rules close over has a value then that outlives the trace.
    """
    outside = find_top_trace(())

    @functools.wraps(fun)
    def known(*args: Any) -> Any:
        inside = find_top_trace(())
        with set_current_trace(_Known(outside, inside)), jax.ensure_compile_time_eval():
            return fun(*args)

    return known


class Whole(Function):
    """A function as one equation that JAX differentiates; `backward` if by a cotangent rule.

    `refused` says why it was not traced to more equations.
    """

    def __init__(self, bind: Callable[..., list[Any]], backward: bool, refused: Exception):
        super().__init__("function", bind)
        self.backward, self.refused = backward, refused


def as_one_equation(
    program: Any,
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    out_avals: Sequence[Any],
    refused: Exception,
) -> Any:
    """Returns a `veenv.graph.program.Program` of one equation: the function itself."""

    def run(*leaves: Any) -> list[Any]:
        return jax.tree.leaves(fun(*jax.tree.unflatten(jax.tree.structure(args), leaves)))

    nondiff = jax.tree.leaves(args[-1])
    count = program.num_inputs + len(nondiff)
    avals = (*program.avals[:count], *out_avals)
    results = tuple(range(count, len(avals)))
    every = walk.every(program.equations)
    backward = any(_compat.own_rule(e.primitive, e.params) == "vjp" for e in every)
    equation = Equation(
        Whole(run, backward, refused),
        {},
        tuple(range(count)),
        results,
        avals[:count],
        avals[count:],
        next((e.source for e in program.equations), ""),
    )
    split = len(program.outputs)
    return replace(
        program,
        constants=program.constants[: len(nondiff)],
        equations=(equation,),
        outputs=results[:split],
        avals=avals,
        aux=program.aux and (results[split:], *program.aux[1:]),
    )
