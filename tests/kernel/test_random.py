"""Random scalar functions in random orders, as kernels."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import orders
from tests.oracles.scalar_program import run
from tests.sampling import thinned
from veenv.kernel.fusing import trace_point

FUNCTIONS = {
    "unary": ("sin", "cos", "tanh", "exp", "square", "neg", "logistic", "atan"),
    "binary": ("add", "sub", "mul", "div", "max", "atan2"),
}


def random_function(seed: int, equations: int = 20, inputs: int = 3):
    """A function of a few numbers whose equations have earlier results as operands."""
    rng = np.random.default_rng(seed)
    plan = []
    for k in range(equations):
        kind = "binary" if rng.random() < 0.6 else "unary"
        name = str(rng.choice(FUNCTIONS[kind]))
        count = 2 if kind == "binary" else 1
        plan.append(
            (name, [int(rng.integers(max(0, inputs + k - 8), inputs + k)) for _ in range(count)])
        )
    outputs = [int(o) for o in rng.integers(inputs, inputs + equations, 3)]

    def fun(*xs: jax.Array) -> list[jax.Array]:
        values = list(xs)
        for name, operands in plan:
            result = getattr(jax.lax, name)(*(values[o] for o in operands))
            values.append(jax.lax.tanh(result) + 1.25)  # stays near 1, so that nothing overflows
        return [values[o] for o in outputs]

    point = rng.uniform(0.3, 1.7, (11, inputs))
    return fun, [point[:, k] for k in range(inputs)]


def check(seed: int, count: int) -> None:
    fun, columns = random_function(seed)
    argnums = tuple(range(len(columns)))
    graph = veenv.make_graph(fun, argnums)(*(c[0] for c in columns))
    expected = jax.tree.leaves(jax.jit(jax.vmap(jax.jacrev(fun, argnums)))(*columns))
    for ids in (graph.reverse(), *orders(graph, count - 1, seed=seed)):
        jac = veenv.jacve(fun, ids, argnums)
        traced = trace_point(jac, [c[0] for c in columns], {}, argnums)
        program = traced.program()
        for got in (
            jax.tree.leaves(
                jax.jit(jax.vmap(veenv.jacve(fun, ids, argnums, kernel="fused")))(*columns)
            ),
            run(program, *columns),
        ):
            for a, b in zip(got, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("seed", thinned(range(8), 8))
def test_some_random_functions(seed: int):
    check(seed, 2)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("seed", range(100, 1100))
def test_many_random_functions(seed: int):
    check(seed, 5)
