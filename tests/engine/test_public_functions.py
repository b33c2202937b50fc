"""JAX's public functions, found by their names, called in every simple way on small arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume
from jax.scipy import linalg, special, stats

import veenv
from tests.oracles.jacobians import quick_jit
from tests.sampling import on_seeds
from veenv.kernel.scalar_program import CannotFuseError

pytestmark = [pytest.mark.kernels, pytest.mark.usefixtures("x64")]

NOT_NUMERICAL = ("load", "save", "savez", "fromfile", "printoptions", "set_printoptions")
LOWEST, HIGHEST = 0.1, 0.9
TOLERANCES = {"float16": 0.05, "bfloat16": 0.3, "float32": 3e-3, "float64": 1e-8}


def functions_of(module: ModuleType) -> list[Callable[..., Any]]:
    found = {name: getattr(module, name) for name in dir(module) if name[0] != "_"}
    return [
        fun
        for name, fun in found.items()
        if callable(fun) and not inspect.isclass(fun) and name not in NOT_NUMERICAL
    ]


FAMILIES = [
    functions_of(jnp), functions_of(jnp.linalg) + functions_of(linalg), functions_of(jnp.fft),
    functions_of(jax.nn), functions_of(jax.lax), functions_of(special),
    [fun for module in vars(stats).values() if isinstance(module,
        ModuleType) for fun in functions_of(module)],
]  # fmt: skip


def matrix(x: Any) -> Any:
    """A well conditioned one, not symmetric."""
    return jnp.outer(jnp.sin(x), x + 1) + (len(x) + 1) * jnp.eye(len(x), dtype=x.dtype)


CALLS: list[Callable[[Callable[..., Any], Any], Any]] = [
    lambda f, x: f(x), lambda f, x: f(x[:1].sum()), lambda f, x: f(x, 2.0), lambda f, x: f(2.0, x),
    lambda f, x: f(x, 1), lambda f, x: f(1, x), lambda f, x: f(x, x[::-1]),
    lambda f, x: f(x[:1], x), lambda f, x: f(x, 2.0, 3.0), lambda f, x: f(2.0, x, 3.0),
    lambda f, x: f(2.0, 3.0, x), lambda f, x: f(x > 0.5, x, x * x),
    lambda f, x: f(x, jnp.array([0, 0, 1])), lambda f, x: f([x, x[:1], x * x]),
    lambda f, x: f(matrix(x)), lambda f, x: f(matrix(x) @ matrix(x).T),
    lambda f, x: f(matrix(x), x), lambda f, x: f(matrix(x), matrix(x) * 2),
    lambda f, x: f(jnp.stack([matrix(x), matrix(x) + 1])),
]  # fmt: skip
FORMS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda f: veenv.jacve(f),
    "jit": lambda f: jax.jit(veenv.jacve(f)),
    "reverse": lambda f: jax.jit(veenv.jacve(f, "reverse")),
    "vmap": lambda f: lambda x: jax.tree.map(lambda y: y[0], jax.vmap(veenv.jacve(f))(x[None])),
    "fuse": lambda f: veenv.fuse(veenv.jacve(f)),
}


def floats(tree: Any) -> list[Any]:
    return [y for y in jax.tree.leaves(tree) if jnp.issubdtype(jnp.result_type(y), jnp.floating)]


def random_program(rng: np.random.Generator, x: Any) -> tuple[str, Callable[[Any], Any]]:
    """A public function, or one of another, of which JAX knows the shapes at `x`."""
    while True:
        parts = [FAMILIES[rng.integers(len(FAMILIES))] for _ in range(rng.integers(1, 3))]
        parts = [(part[rng.integers(len(part))], rng.integers(len(CALLS))) for part in parts]

        def fun(x: Any, parts: Any = parts) -> Any:
            with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
                for number, (part, call) in enumerate(parts):
                    y = x if not number else floats(y)[0].ravel()[:4]
                    y = CALLS[call](part, y)
            return floats(y)

        try:
            if any(jax.eval_shape(fun, x)):
                return " of ".join(f"{part.__name__}/{call}" for part, call in parts[::-1]), fun
        except Exception:  # whichever: not the way to call it
            continue


def of_jax(transform: Callable[..., Any], fun: Callable[[Any], Any], x: Any) -> Any:
    """The Jacobian by JAX, None where it raises."""
    try:
        return quick_jit(transform(fun))(x)
    except Exception:  # whichever: such a program says nothing
        return None


def far(a: Any, b: Any, tol: float) -> np.ndarray:
    """Where finite entries of `b` are not those of `a`, on the scale of the largest one."""
    a, b = (np.asarray(v, float) for v in (a, b))
    scale = np.max(np.abs(b), initial=1.0, where=np.isfinite(b))
    return np.isfinite(b) & ~(np.abs(a - b) <= tol * scale)


@on_seeds(few=5, many=600)
def test_jacobians(seed: int) -> None:
    """Where JAX has one, so has `jacve`; equal where both of JAX's modes are finite and agree."""
    rng = np.random.default_rng(seed)
    dtype, form = rng.choice(list(TOLERANCES)), rng.choice(list(FORMS))
    x = jnp.asarray(rng.uniform(LOWEST, HIGHEST, rng.integers(5)), dtype)
    name, fun = random_program(rng, x)
    wanted = of_jax(jax.jacrev, fun, x)
    assume(wanted is not None)
    where = f"{name} at {dtype}[{x.size}], {form}"
    try:
        # Rules run after the function.
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            found = FORMS[form](fun)(x)
    except CannotFuseError:
        return
    except Exception as error:
        raise AssertionError(where) from error
    assert [(y.shape, y.dtype) for y in found] == [(y.shape, y.dtype) for y in wanted], where
    wrong = [far(a, b, TOLERANCES[dtype]) for a, b in zip(found, wanted, strict=True)]
    if any(y.any() for y in wrong):
        forward = of_jax(jax.jacfwd, fun, x)
        assume(forward is not None)
        agree = [~far(a, b, TOLERANCES[dtype]) for a, b in zip(forward, wanted, strict=True)]
        assert not any((y & z).any() for y, z in zip(wrong, agree, strict=True)), where
