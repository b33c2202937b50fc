"""Forty functions by nine requests: what each process, and each turn, has to answer by itself.

Run by itself it makes requests in their order, with JAX's compilation cache in a folder.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType, MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import veenv
from tests.oracles.jacobians import dense

SCALE = 2.0
TABLES = np.sin(np.arange(9.0)).reshape(3, 3), np.cos(np.arange(9.0)).reshape(3, 3)


class Case(NamedTuple):
    """A function of one or two vectors, and how it is differentiated."""

    fun: Callable[..., Any]
    options: Mapping[str, Any] = MappingProxyType({})
    weak: bool = False  # its first argument is a Python number, the same at all points


def scaled(x, y):
    return jnp.sin(x * SCALE) * y


def with_globals(**new: Any) -> Callable[..., Any]:
    """`scaled`, the same text, with other globals."""
    return FunctionType(scaled.__code__, {**globals(), **new}, "scaled")


class Spring:
    def __init__(self, stiffness: float):
        self.stiffness = stiffness

    def force(self, x, y):
        return self.stiffness * x**3 - y


CHANGING = Spring(1.0)
"""Its stiffness is another one for each request."""


@jax.custom_jvp
def halved(x):
    return jnp.sin(x)


halved.defjvp(lambda p, t: (jnp.sin(p[0]), 0.5 * t[0] * jnp.cos(p[0])))


@jax.custom_jvp
def thirds(x):
    return jnp.sin(x)


thirds.defjvp(lambda p, t: (jnp.sin(p[0]), t[0] * jnp.cos(p[0]) / 3))


def power(x, y, n):
    return x**n * y


def scan(length, reverse=False):
    def fun(x, y):
        step = lambda c, k: (jnp.sin(c) * y + k, c)  # noqa: E731
        return jax.lax.scan(step, x, jnp.arange(length, dtype=x.dtype), reverse=reverse)

    return fun


def table(k):
    return lambda x, y: jnp.asarray(TABLES[k], x.dtype) @ x + y


def branch(low):
    return lambda x, y: jax.lax.cond(x[0] > low, jnp.sin, lambda x: x * y, x)


FUNCTIONS = {
    "sine": Case(lambda x, y: jnp.sin(x)), "cosine": Case(lambda x, y: jnp.cos(x)),
    "linear": Case(lambda x, y: 2 * x),
    "linear, of another slope": Case(lambda x, y: 3 * x),
    "itself": Case(lambda x, y: x), "constant": Case(lambda x, y: jnp.ones_like(x)),
    "another constant": Case(lambda x, y: jnp.full_like(x, 2)),
    "copy and constant": Case(lambda x, y: {"x": x, "one": jnp.ones((), x.dtype)}),
    "sum": Case(lambda x, y: jnp.sum(x)), "product": Case(lambda x, y: x * y),
    "product by the other": Case(lambda x, y: x * y, {"argnums": 1}),
    "product by both": Case(lambda x, y: x * y, {"argnums": (0, 1)}),
    "product by both, turned": Case(lambda x, y: x * y * y, {"argnums": (1, 0)}),
    "product by one of several": Case(lambda x, y: x * y, {"argnums": (0,)}),
    "outer product": Case(lambda x, y: jnp.outer(x, y)),
    "matrix product": Case(table(0)), "matrix product with another": Case(table(1)),
    "softmax": Case(lambda x, y: jax.nn.softmax(x * y)),
    "reordered": Case(lambda x, y: jnp.sin(x)[jnp.array([2, 0, 1])]),
    "reordered otherwise": Case(lambda x, y: jnp.sin(x)[jnp.array([1, 2, 0])]),
    "loop": Case(scan(3)), "longer loop": Case(scan(4)),
    "loop backwards": Case(scan(3, reverse=True)),
    "fori": Case(lambda x, y: jax.lax.fori_loop(0, 3, lambda k, c: jnp.sin(c) * y, x)),
    "branch": Case(branch(0.8)), "other branch": Case(branch(0.2)),
    "integers beside": Case(lambda x, y: (jnp.sin(x), jnp.floor(x).astype(int)), {"has_aux": True}),
    "auxiliary": Case(lambda x, y: (x * y, jnp.sin(x)), {"has_aux": True}),
    "auxiliary, turned": Case(lambda x, y: (jnp.sin(x), x * y), {"has_aux": True}),
    "pair": Case(lambda x, y: (jnp.sin(x), x * y)), "global": Case(scaled),
    "another global": Case(with_globals(SCALE=3.0)), "square": Case(functools.partial(power, n=2)),
    "cube": Case(functools.partial(power, n=3)), "method": Case(Spring(1.0).force),
    "method of another": Case(Spring(2.0).force), "method that changes": Case(CHANGING.force),
    "rule": Case(lambda x, y: halved(x) * y),
    "another rule": Case(lambda x, y: thirds(x) * y),
    "weak": Case(lambda t, y: jnp.sin(t) * y, weak=True),
    "weak alone": Case(lambda t, y: t * t, weak=True),
}  # fmt: skip


def as_number(case: Case) -> Callable[..., Any]:
    """The sum of all that is differentiated."""

    def number(*args: Any) -> Any:
        returned = case.fun(*args)
        leaves = jax.tree.leaves(returned[0] if "has_aux" in case.options else returned)
        return sum(map(jnp.sum, leaves))

    return number


def first_argnum(case: Case) -> int:
    argnums = case.options.get("argnums", 0)
    return argnums if isinstance(argnums, int) else argnums[0]


def laplacian_of(case: Case) -> Callable[..., Any]:
    """The trace of a Hessian."""

    def of(*args: Any) -> Any:
        matrix = jax.hessian(as_number(case), first_argnum(case))(*args)
        return jnp.trace(matrix) if matrix.ndim else matrix

    return of


def jacobian(**options: Any) -> Callable[[Case], Callable[..., Any]]:
    return lambda case: veenv.jacve(case.fun, **case.options, **options)


def oracle(case: Case) -> Callable[..., Any]:
    return jax.jacfwd(case.fun, **case.options)


REQUESTS: dict[str, tuple[Callable[[Case], Any], Callable[[Case], Any]]] = {
    "value and Jacobian": (lambda c: veenv.value_and_jacve(c.fun, **c.options),
        lambda c: lambda *args: (c.fun(*args), first(c, oracle(c)(*args)))),
    "Jacobian": (jacobian(), oracle), "reverse": (jacobian(order="reverse"), oracle),
    "kernel": (jacobian(kernel="fused"), oracle),
    "sparse": (lambda c: lambda *args: dense(jacobian(sparse_representation=True)(c)(*args)),
        oracle),
    "Hessian": (lambda c: veenv.hessian(as_number(c), argnums=c.options.get("argnums", 0)),
        lambda c: jax.hessian(as_number(c), argnums=c.options.get("argnums", 0))),
    "Laplacian": (lambda c: veenv.laplacian(as_number(c), first_argnum(c)), laplacian_of),
    "fused": (lambda c: veenv.fuse(c.fun), lambda c: c.fun),
    "fused Jacobian": (lambda c: veenv.fuse(oracle(c)), oracle),
}  # fmt: skip
"""For each request how veenv is asked, and the same of JAX."""


def first(case: Case, result: Any) -> Any:
    """A Jacobian without what is auxiliary."""
    return result[0] if "has_aux" in case.options else result


def points(case: Case, dtype: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Arguments, and which of them a batch is over."""
    x = jnp.linspace(0.3, 1.2, 9, dtype=dtype).reshape(3, 3)
    return ((0.7, x), (None, 0)) if case.weak else ((x, x[::-1] + 1), (0, 0))


def asked(names: Iterable[str], which: int, request: str, dtype: Any) -> Any:
    """A request's results for some functions: of veenv (0) or of JAX (1)."""
    CHANGING.stiffness = 1.0 + [*REQUESTS].index(request) % 3
    makers = {name: REQUESTS[request][which](FUNCTIONS[name]) for name in names}
    every = {name: points(FUNCTIONS[name], dtype) for name in names}
    args = {name: given for name, (given, _) in every.items()}

    def run(args: Any) -> Any:
        return {name: jax.vmap(makers[name], every[name][1])(*args[name]) for name in names}

    return jax.jit(run)(args) if which == 0 else run(args)


def main() -> None:
    """Makes all requests of some functions in their order, and keeps the results' leaves."""
    folder, dtype, file, *names = sys.argv[1:]
    jax.config.update("jax_compilation_cache_dir", folder)
    results = {}
    with jax.enable_x64(dtype == "float64"):
        for request in REQUESTS:
            leaves = jax.tree.leaves(asked(names, 0, request, dtype))
            results.update({f"{request} {k}": np.asarray(x) for k, x in enumerate(leaves)})
    np.savez(file, **results)


if __name__ == "__main__":
    main()
