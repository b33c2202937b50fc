"""Arrays with axes of size 0: what JAX's modes give, of the same shapes and dtypes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import veenv
from tests.oracles.jacobians import assert_same, dense, together

NAMED = {
    "ravel": (lambda x: jnp.sin(x).ravel(), (0, 3)),
    "repeat": (lambda x: jnp.repeat(jnp.sin(x), 2, 0), (0, 3)),
    "outer": (lambda x: jnp.outer(jnp.sin(x), jnp.cos(x)), (0,)),
    "Gram matrix": (lambda x: jnp.sin(x).T @ x, (0, 3)),
    "softmax": (lambda x: jax.nn.softmax(x, 1), (0, 3)),
    "determinants": (jnp.linalg.det, (0, 2, 2)),
    "two turns": (lambda x: jnp.flip(jnp.sin(jnp.flip(jnp.sin(x), 0)), 1), (0, 0)),
    "turned columns": (
        lambda x: jnp.einsum("ab,ab->b", *2 * [jnp.sin(jnp.flip(jnp.sin(x), 0))]), (0, 0),
    ),
    "turned, longer": (lambda x: jnp.concatenate([jnp.flip(jnp.sin(x), 1), x[:1]]), (2, 0)),
}  # fmt: skip
SIZES = st.sampled_from([0, 0, 1, 2, 3])


def alike(found, wanted):
    assert_same(dense(found), wanted, 1e-4, atol=1e-5)


def check(fun, x, *, hessian=True):
    first = [veenv.jacve(fun, order) for order in ("auto", "forward", "reverse", "markowitz")]
    first += [
        lambda x: dense(veenv.jacve(fun, sparse_representation=True)(x)),
        lambda x: veenv.jacve(fun, count_ops=True)(x)[0],
    ]
    wanted, *found = together([jax.jacrev(fun), *first], x)
    for each in (veenv.jacve(fun)(x), *found):
        alike(each, wanted)
    if hessian:
        sparse = veenv.hessian(fun, sparse_representation=True)
        second = [jax.jacrev(jax.jacrev(fun)), veenv.hessian(fun), lambda x: dense(sparse(x))]
        wanted, *found = together(second, x)
        for each in found:
            alike(each, wanted)


@pytest.mark.parametrize("name", NAMED)
def test_named(name):
    fun, shape = NAMED[name]
    check(fun, jnp.zeros(shape))


@st.composite
def programs(draw):
    """A function of one array of up to three axes, and the shape: moves, sums, products, loops."""
    shape = tuple(draw(st.lists(SIZES, min_size=1, max_size=3)))
    steps, at = [], shape
    for _ in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from(sorted(STEPS)))
        step = STEPS[name](draw, at)
        if step is not None:
            steps.append((name, step))
            at = jax.eval_shape(step, jax.ShapeDtypeStruct(at, jnp.float32)).shape

    def fun(x):
        for _, step in steps:
            x = step(jnp.sin(x))
        return x

    return fun, shape, [name for name, _ in steps]


def reshape(draw, shape):
    if 0 in shape:
        target = draw(st.permutations([0, *draw(st.lists(SIZES, max_size=2))]))
    else:
        target = draw(st.permutations([*shape, 1]))
    return lambda x: x.reshape(target)


def broadcast(draw, shape):
    size = draw(SIZES)
    return (lambda x: jnp.broadcast_to(x, (size, *shape))) if len(shape) < 3 else None


def along(make, least=0):
    """A step along one axis, which must be so long."""

    def step(draw, shape):
        axis = draw(st.integers(0, len(shape) - 1)) if shape else None
        return None if axis is None or shape[axis] < least else make(draw, shape, axis)

    return step


def concatenate(draw, shape, axis):
    block = list(shape)
    block[axis] = draw(SIZES)
    return lambda x: jnp.concatenate([x, jnp.ones(block, x.dtype), x], axis)


def pad(draw, shape, axis):
    low, high = draw(SIZES), draw(SIZES)
    return lambda x: jnp.pad(x, [(low, high) if k == axis else (0, 0) for k in range(len(shape))])


def contract(draw, shape, axis):
    other = jnp.ones((shape[axis], draw(SIZES))) / 2
    return lambda x: jnp.tensordot(x, other.astype(x.dtype), ((axis,), (0,)))


def gather(draw, shape, axis):
    index = draw(st.lists(st.integers(0, shape[axis] - 1), max_size=3)) if shape[axis] else []
    return lambda x: jnp.take(x, np.array(index, int), axis)


def scatter(draw, shape, axis):
    rows = draw(st.integers(max(shape[0], 1), max(shape[0], 4)))
    index = np.arange(shape[0]) % rows
    return lambda x: jnp.ones((rows, *shape[1:]), x.dtype).at[index].add(x)


def scan(draw, shape, axis):
    def run(x):
        start = jnp.ones(shape[1:], x.dtype)
        return lax.scan(lambda c, row: (jnp.sin(c + row), c * row), start, x)[draw_last]

    draw_last = draw(st.integers(0, 1))
    return run


STEPS = {
    "reshape": reshape, "broadcast": broadcast, "concatenate": along(concatenate),
    "pad": along(pad),
    "sum": along(lambda draw, shape, axis: lambda x: x.sum(axis)),
    "product of all": along(lambda draw, shape, axis: lambda x: x.prod(axis)),
    "max": along(lambda draw, shape, axis: lambda x: x.max(axis), 1),
    "contract": along(contract),
    "square": along(lambda draw, shape, axis: lambda x: jnp.tensordot(x, x,
        ((axis,), (axis,))) if x.ndim == 1 else x * x),
    "gather": along(gather), "scatter": along(scatter), "scan": along(scan),
    "sort": along(lambda draw, shape, axis: lambda x: jnp.sort(x, axis)),
    "cumsum": along(lambda draw, shape, axis: lambda x: jnp.cumsum(x, axis)),
    "transpose": lambda draw, shape: lambda x: x.T,
    "flip": along(lambda draw, shape, axis: lambda x: jnp.flip(x, axis)),
    "roll": along(lambda draw, shape, axis: lambda x: jnp.roll(x, 1, axis)),
    "einsum": along(lambda draw, shape, axis: lambda x: jnp.einsum("a...,a...->...", x, x)),
}  # fmt: skip


def generated(program):
    fun, shape, _ = program
    check(fun, jnp.asarray(np.random.default_rng(sum(shape)).normal(size=shape)), hessian=False)


@settings(max_examples=6)
@given(programs())
def test_generated(program):
    generated(program)


@pytest.mark.slow
@settings(max_examples=300)
@given(programs())
def test_many_generated(program):
    generated(program)
    fun, shape, _ = program
    total = lambda x: jnp.sum(jnp.sin(fun(x)))  # noqa: E731
    wanted = jax.jacrev(jax.grad(total))(jnp.ones(shape))
    alike(veenv.hessian(total)(jnp.ones(shape)), wanted)
    alike(jax.jit(veenv.hessian(total))(jnp.ones(shape)), wanted)
