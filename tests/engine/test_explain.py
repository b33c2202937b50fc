"""`veenv.explain`: what is considered, what is taken, and what would change it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv

pytestmark = pytest.mark.kernels
X = np.linspace(0.1, 1.0, 8).astype(np.float32)
WIDE = np.ones((60, 60), np.float32)
LONG = np.ones(60, np.float32)


def taped(x):
    """Steps of which reverse mode stores more than a kernel has memory for."""
    return jax.lax.scan(lambda c, _: (jnp.sin(jnp.roll(c, 1)) * c, None), x, None, length=3_000)[0]


def stepped(x):
    """Steps that are too long for one function."""
    return jax.lax.scan(lambda c, _: (jnp.sin(WIDE @ c) * c, None), x, None, length=9)[0]


def repeated(x):
    """A loop in Python of large products."""
    for _ in range(6):
        x = jnp.sin(WIDE @ x) * x
    return x


FUNCTIONS = {  # (function, point, taken as, what is said)
    "small": (lambda x: jnp.sin(x) * x[::-1], X, "kernel", "veenv.fuse around the whole step"),
    "spectrum": (lambda x: jnp.fft.rfft(x * x).real, X, "XLA", "'fft' has no form in a kernel"),
    "inverse": (lambda x: jnp.fft.ifft(x).real * x, X, "XLA", "'fft' has no form in a kernel"),
    "vectors": (
        lambda x: jnp.linalg.eigh(jnp.outer(x, x) + jnp.diag(x))[1],
        X,
        "XLA",
        "left to XLA",
    ),
    "steps": (stepped, LONG, "XLA", "large products are left to XLA"),
    "tape": (lambda x: taped(x)[:1], X, "XLA", "stores each of its steps"),
    "batch": (lambda x: jnp.tanh(x * jnp.roll(x, 1)), np.ones(70_000, np.float32), "XLA", "vmap"),
    "repeated": (repeated, LONG, "XLA", "operations come from"),
    "solve": (lambda x: jnp.linalg.solve(jnp.eye(8) + jnp.outer(x, x), x), X, "kernel", "fuse"),
    "loop": (
        lambda x: jax.lax.scan(lambda c, y: (jnp.cos(c) * y, None), x[0], x)[0],
        X,
        "kernel",
        "fuse",
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_says_what_is_taken_and_what_helps(name):
    fun, at, program, said = FUNCTIONS[name]
    found = veenv.explain(fun, at, batch=64)
    text = str(found)
    (taken,) = (row for row in found.rows if row.taken)
    assert program in ("", taken.program)
    assert "<- taken" in text
    assert said in text
    assert found.advice
    for row in found.rows:
        assert (row.seconds is None) == bool(row.refused)


@pytest.mark.parametrize("name", ["small", "spectrum", "solve", "loop"])
def test_what_it_says_is_taken_is_taken(name):
    fun, at, program, _ = FUNCTIONS[name]
    points = jax.ShapeDtypeStruct((64, *at.shape), at.dtype)
    text = jax.jit(jax.vmap(veenv.jacve(fun))).lower(points).as_text()
    assert ("veenv_fused" in text) == (program == "kernel")


def test_lines_are_the_users():
    def two_lines(x):
        y = jnp.sin(x)
        return jnp.fft.rfft(WIDE[:8, :8] @ (WIDE[:8, :8] @ y)).real

    found = veenv.explain(two_lines, X)
    assert all("test_explain.py" in line or "JAX" in line for line, _ in found.lines)
    assert "two_lines" in found.lines[0][0]


def test_shapes_several_arguments_and_keywords():
    def f(x, y, *, scale):
        return x * jnp.sum(y) * scale

    shape = jax.ShapeDtypeStruct((3,), jnp.float32)
    found = veenv.explain(f, shape, X, batch=8, argnums=(0, 1), scale=2.0)
    assert (found.name, found.batch) == ("f", 8)
    assert sum(row.taken for row in found.rows) == 1


@pytest.mark.parametrize("batch", [0, -1, 2.5, True, None])
def test_a_batch_is_a_number_of_points(batch):
    with pytest.raises(ValueError, match="positive number of points"):
        veenv.explain(jnp.sin, 1.0, batch=batch)
