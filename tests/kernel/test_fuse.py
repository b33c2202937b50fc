"""`veenv.fuse`: a function of one point as one kernel, in and around derivatives, beside JAX."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

import veenv
from tests.oracles.jacobians import assert_compiled_same, assert_same, quick_jit
from veenv import limits
from veenv.kernel import fusing
from veenv.kernel.scalar_program import CannotFuseError

pytestmark = pytest.mark.usefixtures("x64")


class State(NamedTuple):
    """A pytree of the user's."""

    position: jax.Array
    count: jax.Array


def residual(y: jax.Array, before: jax.Array, rate: jax.Array) -> jax.Array:
    return y - before - 0.1 * jnp.stack([-rate * y[0] * y[1], rate * y[0] * y[1] - y[1] ** 2])


def implicit(jacobian: Callable[..., Any], state: State, p: dict[str, Any], steps: int = 2) -> Any:
    """A step of Newton's method, with the Jacobian that is asked for inside."""
    y = state.position
    for _ in range(steps):
        r = residual(y, state.position, p["rate"])
        y = y - jnp.linalg.solve(jacobian(residual)(y, state.position, p["rate"]), r)
    return State(y, state.count + 1), {"norm": jnp.sqrt((y * y).sum()), "none": None}


def points(batch: int) -> tuple[State, dict[str, Any]]:
    rng = np.random.default_rng(0)
    return State(jnp.asarray(rng.uniform(0.5, 2, (batch, 2))), jnp.arange(batch)), {"rate": 0.7}


STEP = veenv.fuse(functools.partial(implicit, veenv.jacve), static_argnames="steps")
PLAIN = jax.jit(functools.partial(implicit, jax.jacfwd), static_argnames="steps")


def kernels_in(fun: Callable[..., Any], *args: Any) -> int:
    """How many different kernels a program calls."""
    text = jax.jit(fun).lower(*args).as_text()
    return len({line.split("key = ")[1] for line in text.splitlines() if "@veenv_fused" in line})


def test_pytrees_and_static_arguments_in_every_use():
    state, p = points(6)
    one = jax.tree.map(lambda x: x[0], state)
    assert_same(STEP(one, p), PLAIN(one, p))
    assert_same(STEP(one, p=p, steps=3), PLAIN(one, p, 3))
    assert_same(jax.jit(STEP)(one, p), PLAIN(one, p))
    expected = quick_jit(jax.vmap(PLAIN, (0, None)))(state, p)
    assert_same(jax.vmap(STEP, (0, None))(state, p), expected)
    batched = jax.vmap(STEP, (0, None))
    assert_same(jax.jit(batched)(state, p), expected)
    assert kernels_in(batched, state, p) == 1
    rates = {"rate": jnp.linspace(0.5, 1, 3)}
    axes = {"rate": 0}
    nested = [jax.vmap(jax.vmap(f, (0, None)), (None, axes), 1) for f in (STEP, PLAIN)]
    assert_same(nested[0](state, rates), quick_jit(nested[1])(state, rates))


def test_static_arguments_by_number_are_values():
    def power(n: Any, x: jax.Array) -> jax.Array:
        return x ** int(n) if n else x

    fused = veenv.fuse(power, static_argnums=0)
    assert_same(fused(np.int32(3), jnp.float64(2.0)), jnp.float64(8.0))
    assert_same(fused(0, jnp.float64(2.0)), jnp.float64(2.0))


def test_all_derivatives_inside_are_part_of_one_kernel():
    def f(x: jax.Array) -> jax.Array:
        return jnp.sin(x).prod() + jnp.exp(x[0] * x[1])

    def all_of(jacobian: Any, hessian: Any) -> Callable[[jax.Array], Any]:
        def run(x: jax.Array) -> Any:
            value, slope = jacobian(f)(x)
            return (
                value, slope, hessian(f)(x), jax.grad(f)(x), jax.jvp(f, (x,), (x,))[1],
                jax.jacfwd(jax.grad(f))(x) @ slope,
            )  # fmt: skip

        return run

    theirs = all_of(lambda f: jax.value_and_grad(f), jax.hessian)
    x = np.random.default_rng(1).uniform(-1, 1, (5, 3))
    fused = jax.vmap(veenv.fuse(all_of(veenv.value_and_jacve, veenv.hessian)))
    assert_same(fused(x), quick_jit(jax.vmap(theirs))(x))
    assert kernels_in(fused, x) == 1


def smooth(x: jax.Array, y: jax.Array, n: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    return jnp.sin(x * y).sum() + y[0], jnp.outer(x, jnp.exp(-y)), n + 1


def test_derivatives_are_kernels_again():
    fused, n = veenv.fuse(smooth), jnp.int32(2)
    x, y = jnp.linspace(0.1, 0.5, 3), jnp.linspace(0.3, 1, 3)
    for transform in (jax.jacfwd, jax.jacrev, veenv.jacve):
        first = [lambda x, y, f=f: f(x, y, n)[:2] for f in (fused, smooth)]
        assert_compiled_same([[transform(f, argnums=(0, 1)) for f in first]], x, y)
    total = [lambda x, y, f=f: sum(v.sum() for v in f(x, y, n)[:2]) ** 2 for f in (fused, smooth)]
    assert_compiled_same([[jax.hessian(f, (0, 1)) for f in total]], x, y)
    assert_same(jax.grad(total[0], (0, 1))(x, y), quick_jit(jax.grad(total[1], (0, 1)))(x, y))
    # values and cotangents are a kernel each, and nothing else has an exponential function
    gradient = jax.vmap(jax.grad(total[0]), (0, None))
    xs = jnp.stack([x, 2 * x])
    assert kernels_in(gradient, xs, y) == 2
    assert "exponential" not in jax.jit(gradient).lower(xs, y).as_text()


def test_what_points_share_has_the_sum_of_their_cotangents():
    def of(f: Any) -> Any:
        def loss(x: jax.Array, y: jax.Array) -> jax.Array:
            a, b, _ = jax.vmap(jax.vmap(f, (0, None, None)), (0, 0, None))(x, y, jnp.int32(1))
            return (a * a).sum() + b.sum()

        return jax.jit(jax.value_and_grad(loss, (0, 1)))

    rng = np.random.default_rng(2)
    args = rng.normal(size=(4, 5, 3)), rng.normal(size=(4, 3))
    assert_same(of(veenv.fuse(smooth))(*args), of(smooth)(*args))
    pair = args[0][0], args[1][0]
    tangents = [
        lambda *x, f=f: jax.jvp(jax.vmap(lambda x, y: f(x, y, jnp.int32(1))[0], (0, None)), x, x)
        for f in (veenv.fuse(smooth), smooth)
    ]
    assert_same(tangents[0](*pair), quick_jit(tangents[1])(*pair))


def test_derivatives_inside_of_shards():
    """What the shards share has a cotangent that is summed over all of them."""
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))

    def of(f: Any) -> Any:
        def loss(x: jax.Array, y: jax.Array) -> jax.Array:
            a, b, _ = jax.vmap(f, (0, None, None))(x, y, jnp.int32(1))
            return jax.lax.psum((a * a).sum() + b.sum(), "i")

        specs = jax.P("i"), jax.P()
        mapped = jax.shard_map(loss, mesh=mesh, in_specs=specs, out_specs=jax.P())
        return jax.jit(jax.value_and_grad(mapped, (0, 1)))

    x, y = np.random.default_rng(3).normal(size=(4, 3)), np.linspace(0.1, 1, 3)
    assert_same(of(veenv.fuse(smooth))(x, y), of(smooth)(x, y))


@jax.custom_vjp
def clipped(x: jax.Array) -> jax.Array:
    return x * x


clipped.defvjp(lambda x: (x * x, x), lambda x, ct: (jnp.clip(2 * x * ct, -1, 1),))


@jax.custom_jvp
def looked_up(x: jax.Array) -> jax.Array:
    return jnp.sin(x)


@looked_up.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    slope = jax.pure_callback(np.cos, jax.ShapeDtypeStruct(x.shape, x.dtype), x,
                              vmap_method="expand_dims")  # fmt: skip
    return jnp.sin(x), slope * t


@pytest.mark.parametrize("fun", [clipped, looked_up])
def test_rules_of_the_user_hold(fun: Any):
    """One that cannot be part of a kernel leaves the derivative to XLA."""
    x = jnp.linspace(-2, 2, 7)
    both = [jax.vmap(jax.grad(lambda x, f=f: f(x) * x)) for f in (veenv.fuse(fun), fun)]
    assert_compiled_same([both], x)


def test_rules_may_close_over_values_of_their_trace():
    """As those of jaxopt's solvers do, which are made where they are called."""

    def fun(x: jax.Array) -> jax.Array:
        bound = jnp.asarray(3.0, x.dtype)  # a value of the trace, in jit

        @jax.custom_vjp
        def solve(x: jax.Array) -> jax.Array:
            return jnp.sin(x) * bound

        solve.defvjp(lambda x: (solve(x), x), lambda x, ct: (jnp.cos(x) * bound * ct,))
        return solve(x) * x[::-1]

    kernel, x = veenv.fuse(fun), jnp.linspace(-2, 2, 3)
    wanted = jax.jacrev(fun)(x), jax.jacrev(jax.jacrev(fun))(x)
    assert_same((jax.jacrev(kernel)(x), jax.jacrev(jax.jacrev(kernel))(x)), wanted)
    assert_same(jax.jit(jax.vmap(jax.jacrev(kernel)))(x[None])[0], wanted[0])
    assert_same(veenv.fuse(jax.jacrev(fun))(x), wanted[0])


def test_in_loops_in_each_other_and_of_captured_values():
    table = jnp.linspace(0, 1, 2000)
    inner = veenv.fuse(lambda x: jnp.cos(x) + table[3] * x)

    def program(inner: Any, fuse: Any, x: jax.Array, scale: jax.Array) -> Any:
        outer = fuse(lambda v: inner(v) * scale + table[-1])

        def step(x: jax.Array, _: None) -> Any:
            return jax.vmap(outer)(x), None

        return jax.lax.scan(step, x, None, length=3)[0].sum()

    args = jnp.linspace(0, 1, 4), jnp.float64(0.5)
    fused = functools.partial(program, inner, veenv.fuse)
    got = quick_jit(jax.value_and_grad(fused, (0, 1)))(*args)
    plain = functools.partial(program, inner.__wrapped__, lambda f: f)
    assert_same(got, quick_jit(jax.value_and_grad(plain, (0, 1)))(*args))


def test_no_points_no_arrays_and_no_jit():
    assert jax.vmap(veenv.fuse(jnp.sin))(jnp.zeros((0, 2))).shape == (0, 2)
    copied, constant, weak = veenv.fuse(lambda x: (x, jnp.arange(2), 2.0))(3.0)
    assert (copied, constant.tolist(), float(weak)) == (3.0, [0, 1], 2.0)
    assert jnp.add(copied, jnp.float32(1)).dtype == jnp.float32  # weakly typed, as by jit
    start = State(jnp.ones(2), jnp.int32(0))
    plain = PLAIN(start, {"rate": 0.7}, 1)
    with jax.disable_jit():
        assert_same(STEP(start, {"rate": jnp.float64(0.7)}, steps=1), plain)


def test_what_cannot_be_a_kernel_names_the_line():
    def plain(x: jax.Array) -> jax.Array:
        return jnp.linalg.eigh(x)[0]  # plain

    def through(x: jax.Array) -> jax.Array:
        return veenv.jacve(jnp.linalg.eigh)(x)[0]  # through

    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    for fun in (plain, through):
        line = next(k for k, s in enumerate(source, 1) if s.endswith(f"# {fun.__name__}"))
        with pytest.raises(CannotFuseError, match=rf"'eigh'.*test_fuse\.py:{line}\D") as error:
            veenv.fuse(fun)(jnp.eye(5))
        assert error.value.primitive == "eigh"
    first = plain.__code__.co_firstlineno + 1
    with pytest.raises(CannotFuseError, match=rf"'eigh'.*test_fuse\.py:{first}\D.*plain\)"):
        veenv.fuse(veenv.jacve(plain))(jnp.eye(5))
    with pytest.raises(CannotFuseError, match=r"60,000 scalar operations.*test_fuse\.py"):
        veenv.fuse(lambda x: jnp.outer(jnp.sin(x), x))(jnp.ones(250))


def test_wrong_arguments():
    with pytest.raises(ValueError, match=r"'lines'.*static_argnames"):
        veenv.fuse(smooth, static_argnames="lines")
    with pytest.raises(TypeError, match="'str'"):
        veenv.fuse(jnp.sin)("x")


def factor(a, x):
    """Long and dense: with one point a library's factor is at least as fast."""
    return lax.linalg.cholesky(a) @ x


def test_at_one_point_xla_runs_what_it_is_faster_at(monkeypatch):
    monkeypatch.setattr(limits, "SLOWER", 1.0)  # on every processor this kernel is slower
    a = np.random.default_rng(0).normal(size=(64, 64))
    args = a @ a.T / 64 + np.eye(64), np.linspace(1, 2, 64)
    expected = np.linalg.cholesky(args[0]) @ args[1]
    slopes = jax.grad(lambda *args: jnp.cos(factor(*args)).sum(), (0, 1))(*args)
    fused = veenv.fuse(factor)
    many = [np.stack([x] * 9) for x in args]
    one, wide = jax.jit(fused), jax.jit(jax.vmap(fused))
    assert "veenv_fused" not in one.lower(*args).as_text()
    assert "veenv_fused" in wide.lower(*many).as_text()
    for values in (one(*args), wide(*many)[0], fused(*args)):
        assert_same(values, jnp.asarray(expected), 1e-12)
    assert_same(jax.grad(lambda *args: jnp.cos(fused(*args)).sum(), (0, 1))(*args), slopes, 1e-10)
    monkeypatch.setattr(fusing, "is_slow_alone", lambda traced, program: False)
    asked = jax.jit(veenv.fuse(factor))
    assert "veenv_fused" in asked.lower(*args).as_text()
    assert_same(asked(*args), jnp.asarray(expected), 1e-12)
    with pytest.raises(ValueError, match="cannot be exported"):
        export.export(jax.jit(fused))(*args)
