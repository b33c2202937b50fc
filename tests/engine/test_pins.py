"""Pins by need: a value is stored where it is expensive and would be computed again."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from veenv import _compat
from veenv.linear.barrier import BARRIERS

X = np.linspace(0.3, 1.2, 6)


def barriers(fun, *args, pin="auto", **options) -> int:
    jaxpr = jax.make_jaxpr(veenv.jacve(fun, pin=pin, **options))(*args)
    return sum(e.primitive.name in BARRIERS for e in _compat.open_jaxpr(jaxpr).eqns)


def lowered(fun, *args) -> int:
    """The number of barriers that the compiler is given."""
    return jax.jit(fun).lower(*args).as_text().count("stablehlo.optimization_barrier")


def stencil(x):
    """Cheap operations only."""
    u, v = x
    ring = jnp.roll(u, 1) - 2.0 * u + jnp.roll(u, -1)
    return jnp.stack([u * u * v + 0.5 * ring, 3.0 * u - u * u * v])


def deep(x):
    """A chain of sines whose derivative scales a whole matrix."""
    y = x
    for _ in range(3):
        y = jnp.sin(y) * y
    return jnp.outer(y, y)


def test_nothing_cheap_is_pinned():
    x = np.stack([X, X + 1.0])
    pinned = barriers(stencil, x, pin=True)
    # What is left is the constant part of the stencil, which a batch shares.
    assert barriers(stencil, x) <= 2 < pinned


def test_what_is_expensive_and_repeated_stays_pinned():
    assert barriers(deep, X, order="reverse") > 0
    assert barriers(deep, X, order="reverse", pin=False) == 0
    with pytest.raises(ValueError, match='pin must be "auto", True or False'):
        veenv.jacve(deep, pin="never")


def test_an_expensive_value_that_is_used_once_is_not_pinned():
    assert barriers(lambda x: jnp.sin(x), 0.5) == 0
    assert barriers(lambda x: jnp.sin(x), 0.5, pin=True) > 0


@pytest.mark.usefixtures("optimised")
def test_a_dense_sum_that_is_an_output_is_written_once():
    x = jnp.asarray(np.stack([X, X + 1.0])[None] * np.ones((50, 1, 1)), jnp.float32)
    compiled = jax.jit(jax.vmap(veenv.jacve(stencil))).lower(x).compile()
    memory = compiled.memory_analysis()
    assert memory.temp_size_in_bytes < 0.1 * memory.output_size_in_bytes


@pytest.mark.parametrize("pin", ["auto", True, False])
@pytest.mark.parametrize("fun", [stencil, deep])
def test_pins_change_no_value(x64, fun, pin):
    x = np.stack([X, X + 1.0]) if fun is stencil else X
    found, expected = jax.jit(lambda z: (veenv.jacve(fun, pin=pin)(z), jax.jacrev(fun)(z)))(x)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [{"pin": False}, {"kernel": "fused"}], ids=str)
def test_a_jacobian_within_the_function_keeps_its_pins(options):
    """So the function has one graph, whatever becomes of the Jacobian around it."""
    slope = veenv.jacve(lambda x: jnp.sin(x) * jnp.exp(jnp.sin(x)), pin=True)
    graph = veenv.make_graph(slope)(0.5)
    assert "optimization_barrier" in repr(graph)
    order = graph.reverse()
    got = jax.jit(veenv.jacve(slope, order, **options))(0.5)
    np.testing.assert_allclose(got, jax.jacrev(slope)(0.5), rtol=1e-5)


DEEP = veenv.jacve(deep, "forward", kernel="xla")


def test_fewer_values_are_stored_where_points_are_few():
    points = [jnp.stack([X] * n) for n in (1, 8, 64, 512)]
    counts = [lowered(jax.vmap(DEEP), x) for x in points]
    assert lowered(DEEP, X) == counts[0] < counts[-1] == barriers(deep, X, order="forward")
    assert counts == sorted(counts)
    nested = jax.vmap(jax.vmap(DEEP))
    assert lowered(nested, points[2].reshape(8, 8, -1)) == counts[2]
    assert lowered(nested, points[1].reshape(1, 8, -1)) == counts[1]


def test_what_would_grow_exponentially_is_stored_at_one_point():
    def f(x):
        for _ in range(12):
            x = jnp.sin(x) * jnp.roll(x, 1)
        return x

    assert lowered(veenv.jacve(f), jnp.linspace(0.3, 1.2, 32)) > 0


def test_what_is_stored_is_the_same_each_time():
    first, again = (repr(jax.make_jaxpr(veenv.jacve(deep, "forward"))(X)) for _ in range(2))
    assert first == again
    assert "veenv_batch_barrier" in first


@pytest.mark.usefixtures("optimised")
def test_one_point_takes_no_more_loops_than_a_batch():
    def loops(fun, x):
        return jax.jit(fun).lower(x).compile().as_text().count(" fusion(")

    assert loops(DEEP, jnp.asarray(X)) <= loops(jax.vmap(DEEP), jnp.stack([X] * 512))


def test_batches_of_batches_are_exact(x64):
    x = np.linspace(0.2, 1.4, 2 * 300 * 6).reshape(2, 300, 6)
    exact = jax.jacrev(deep)
    found, expected = jax.jit(lambda x: [jax.vmap(jax.vmap(j))(x) for j in (DEEP, exact)])(x)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


SECOND = {
    "grad": jax.grad,
    "jacfwd": jax.jacfwd,
    "jacve": veenv.jacve,
    "linear_transpose": lambda f: jax.linear_transpose(jax.linearize(f, X)[1], X),
}


@pytest.mark.parametrize("derivative", SECOND)
def test_derivatives_of_a_jacobian(x64, derivative):
    def second(jacobian):
        return SECOND[derivative](lambda x: jnp.sum(jnp.sin(jacobian(x))))

    if derivative == "linear_transpose":
        np.testing.assert_allclose(second(DEEP)(1.0), second(jax.jacrev(deep))(1.0), rtol=1e-10)
        return
    many = np.linspace(0.2, 1.4, 6 * 80).reshape(80, 6)
    for f in (lambda j: jax.jit(second(j))(X), lambda j: jax.jit(jax.vmap(second(j)))(many)):
        np.testing.assert_allclose(f(DEEP), f(jax.jacrev(deep)), rtol=1e-10, atol=1e-10)


def test_a_graph_holds_barriers_of_batches_and_stored_values():
    assert "veenv_batch_barrier" in repr(veenv.make_graph(DEEP)(X))
    assert "veenv_batch_barrier" not in repr(veenv.make_graph(jax.vmap(DEEP))(np.stack([X] * 512)))


def test_exported_with_a_batch_of_any_size():
    (size,) = jax.export.symbolic_shape("b")
    shape = jax.ShapeDtypeStruct((size, 6), jnp.float32)
    exported = jax.export.export(jax.jit(jax.vmap(DEEP)))(shape)
    assert "custom_call @veenv" not in exported.mlir_module()
    count = exported.mlir_module().count("stablehlo.optimization_barrier")
    assert count == lowered(jax.vmap(DEEP), np.stack([X] * 512))
    again = jax.export.deserialize(exported.serialize())
    x = np.stack([X, X + 0.1]).astype(np.float32)
    np.testing.assert_allclose(again.call(x), jax.vmap(jax.jacrev(deep))(x), rtol=1e-5)


def test_inside_of_shard_map():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), "i")
    spec = jax.sharding.PartitionSpec("i")
    mapped = jax.shard_map(jax.vmap(DEEP), mesh=mesh, in_specs=spec, out_specs=spec)
    x = np.stack([X] * 3).astype(np.float32)
    np.testing.assert_allclose(jax.jit(mapped)(x), jax.vmap(jax.jacrev(deep))(x), rtol=1e-5)
