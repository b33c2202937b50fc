"""Containers that check their leaves never see anything but arrays and tracers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.sampling import spared

pytestmark = pytest.mark.kernels


def check(*leaves: Any) -> None:
    for leaf in leaves:
        if not isinstance(leaf, jax.Array):
            raise TypeError(f"expected an array, got {leaf!r}")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Checked:
    a: Any
    b: Any

    def __post_init__(self) -> None:
        check(self.a, self.b)


class Module(eqx.Module):
    a: Any
    b: Any

    def __check_init__(self) -> None:
        check(self.a, self.b)


class _Pair(NamedTuple):
    a: Any
    b: Any


class Pair(_Pair):
    def __new__(cls, a: Any, b: Any) -> Pair:
        check(a, b)
        return super().__new__(cls, a, b)


class Shaped:
    """Its first leaf is a vector of floats, batched or not, as jaxtyping says."""

    def __init__(self, a: Any, b: Any):
        check(a, b)
        if a.shape[-1:] != (3,) or not jnp.issubdtype(a.dtype, jnp.floating):
            raise TypeError(f"expected Float[..., 3], got {a.dtype}{a.shape}")
        self.a, self.b = a, b


jax.tree_util.register_pytree_node(
    Shaped, lambda tree: ((tree.a, tree.b), None), lambda _, leaves: Shaped(*leaves)
)
KINDS = [Checked, Module, Pair, Shaped]
X = jnp.array([0.3, 0.7, 1.25])


def by_it(p: Any) -> Any:
    return jnp.sin(p.a) * p.b


def beside_it(x: Any, p: Any) -> Any:
    return jnp.sin(p.a) * p.b * x


def within_others(x: Any, p: Any) -> Any:
    return beside_it(x, p["inside"][0])


def to_it(x: Any, p: Any) -> Any:
    return type(p)(jnp.sin(p.a) * x, (p.b * x).sum())


def with_aux(x: Any, p: Any) -> Any:
    return (jnp.sin(p.a) * x).sum(), (type(p)(x * p.a, p.b), p)


def with_keys(x: Any, p: Any) -> Any:
    noise = jax.random.normal(p.b, x.shape)
    return (x * noise * p.a).sum(), type(p)(x, jax.random.fold_in(p.b, 1))


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any], bool]] = {
    "differentiated": (by_it, lambda kind: (kind(X, X[0]),), False),
    "another argument": (beside_it, lambda kind: (X, kind(X, X[0])), False),
    "in a tree": (within_others, lambda kind: (X, {"inside": [kind(X, X[0]), None]}), False),
    "result": (to_it, lambda kind: (X, kind(X, X[0])), False),
    "auxiliary": (with_aux, lambda kind: (X, kind(X, X[0])), True),
    "keys": (with_keys, lambda kind: (X, kind(X, jax.random.key(3))), True),
}


def one(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[None], tree)


def assert_same(found: Any, wanted: Any) -> None:
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert a.dtype == b.dtype
        keys = jnp.issubdtype(a.dtype, jax.dtypes.prng_key)
        pair = map(jax.random.key_data, (a, b)) if keys else (a, b)
        np.testing.assert_allclose(*pair, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "name"),
    spared(itertools.product(KINDS, PROGRAMS), (Checked, "differentiated"),
        *zip(itertools.cycle(KINDS), [*PROGRAMS][1:], strict=False)),
)  # fmt: skip
def test_jacobians(kind: Any, name: str):
    """In every form the result is that of `jax.jacrev` with tuples, as it puts None into others."""
    fun, arguments, has_aux = PROGRAMS[name]
    args = arguments(kind)
    options: dict[str, Any] = {"argnums": 0, "has_aux": has_aux}
    plain = arguments(_Pair)
    wanted = jax.jit(jax.jacrev(fun, **options))(*plain)
    jacobian = veenv.jacve(fun, **options)
    assert_same(jacobian(*args), wanted)
    assert_same(jax.jit(jacobian)(*args), wanted)
    assert_same(veenv.fuse(jacobian)(*args), wanted)
    assert_same(jax.vmap(jacobian)(*one(args)), one(wanted))
    assert_same(jax.vmap(veenv.fuse(fun))(*one(args)), jax.jit(jax.vmap(fun))(*one(plain)))
    if name not in ("differentiated", "result"):  # there it would hold sparse tensors
        jax.jit(veenv.jacve(fun, sparse_representation=True, **options))(*args)


def test_large_jacobians_with_few_entries():
    """They are sparse on the way."""
    p = Checked(jnp.ones(600), jnp.float32(2))
    found = jax.jit(veenv.jacve(by_it))(p)
    np.testing.assert_allclose(found.a, 2 * np.cos(1) * np.eye(600), rtol=1e-6)
