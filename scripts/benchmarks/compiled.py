"""What the kernel's benchmarks share: programs, compiled Jacobians, and their times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

import veenv
from scripts.benchmarks.cases import Case
from veenv.kernel import primitive
from veenv.kernel.fusing import trace_point
from veenv.kernel.program import ScalarProgram
from veenv.tasks.random import random_function


def random_case(seed: int, equations: int) -> Case:
    """A random scalar function of eight inputs and outputs."""
    fun, point = random_function(seed, 8, equations, 8)
    return Case(f"random, {equations} equations, seed {seed}", fun, point, tuple(range(len(point))))


def traced(case: Case, order: Any) -> tuple[ScalarProgram, Callable[..., Any]]:
    """The scalar program of a case's Jacobian in float32, and its kernel for a batch.

    The kernel returns what it writes alone: no constant blocks, no copies of arguments.
    """
    args = jax.tree.map(lambda x: np.asarray(x, np.float32), case.args)
    argnums = case.argnums if isinstance(case.argnums, tuple) else (case.argnums,)
    jacobian = veenv.jacve(case.fun, order, case.argnums, kernel="xla", pin=False)
    point = trace_point(jacobian, args, {}, argnums)
    program = point.program()
    kernel = primitive.Fused(program, point.xla(program.written()))
    return program, jax.vmap(lambda *args: primitive.call(kernel, *jax.tree.leaves(args)))


def program_of(case: Case, order: Any) -> ScalarProgram:
    """The scalar program of a case's Jacobian, in float32."""
    return traced(case, order)[0]


def fused(case: Case, order: Any) -> Callable[..., Any]:
    """The Jacobian of a batch as one kernel."""
    return jax.vmap(veenv.jacve(case.fun, order, case.argnums, kernel="fused"))


def compiled(method: Callable[..., Any], args: Sequence[Any]) -> Callable[..., Any]:
    """The method, compiled for these arguments."""
    return jax.jit(method).lower(*args).compile()
