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
    "spectrum": (lambda x: jnp.fft.rfft(x * x, 100).real, X, "XLA", "'fft' has no form in"),
    "vectors": (lambda x: jnp.linalg.eigh(jnp.outer(x, x) + jnp.diag(x))[1], X, "XLA",
        "left to XLA"),
    "steps": (stepped, LONG, "XLA", "a step of fewer numbers, or a smaller carry"),
    "tape": (lambda x: taped(x)[:1], LONG, "XLA", "stores each of its steps"),
    "batch": (lambda x: jnp.tanh(x * jnp.roll(x, 1)), np.ones(70_000, np.float32), "XLA", "vmap"),
    "repeated": (repeated, LONG, "XLA", "operations come from"),
    "solve": (lambda x: jnp.linalg.solve(jnp.eye(8) + jnp.outer(x, x), x), X, "kernel", "fuse"),
    "loop": (lambda x: jax.lax.scan(lambda c, y: (jnp.cos(c) * y, None), x[0], x)[0], X, "kernel",
        "fuse"),
}  # fmt: skip


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


def test_it_says_what_fuse_is_at_one_point():
    for batch in (1, 64):
        said = str(veenv.explain(lambda x: jnp.tanh(jnp.outer(x, x)), np.ones(24), batch=batch))
        assert ("veenv.fuse is XLA's program at one point" in said) == (batch == 1)


def test_lines_are_the_users():
    def two_lines(x):
        y = jnp.sin(x)
        return jnp.fft.rfft(WIDE[:8, :8] @ (WIDE[:8, :8] @ y), 100).real

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


def residual(u, old):
    """Of a diffusion in one dimension."""
    w = jnp.concatenate([jnp.ones(1), u, u[-1:]])
    flux = (w[1:] - w[:-1]) * (1 + w[1:] ** 2)
    return u - old - (flux[1:] - flux[:-1])


def test_few_entries_are_the_first_advice():
    u = np.ones(3_000, np.float32)
    found = veenv.explain(residual, u, u)
    assert found.advice[0].startswith("8,998 of 9,000,000 entries can be nonzero: jacve(f, sp")
    assert not any("jax.lax.scan" in each for each in found.advice)


@pytest.mark.parametrize("name", ["small", "spectrum", "solve", "repeated"])
def test_both_modes_of_jax_and_the_names_of_orders(name):
    fun, at, *_ = FUNCTIONS[name]
    found = veenv.explain(fun, at, batch=64)
    labels = [row.label for row in found.rows]
    assert {"jacfwd, XLA", "jacrev, XLA"} <= {*labels}
    assert len({*labels}) == len(labels)
    assert not any("other" in label for label in labels)
    known = [row.seconds for row in found.rows if row.seconds is not None]
    assert known == sorted(known)
    taken = [row.taken for row in found.rows].index(True)
    assert all(row.passed for row in found.rows[:taken])
    assert not any(row.passed for row in found.rows[taken:])


def test_a_faster_mode_that_is_not_taken_has_a_reason():
    at = np.ones(64, np.float32)
    found = veenv.explain(lambda x: jnp.fft.rfft(jnp.sqrt(x) * x[::-1], 100).real, at)
    reasons = {row.label: row.passed for row in found.rows}
    assert "infinite partial" in reasons["jacfwd, XLA"]
    assert f"jacfwd, XLA is not taken: {reasons['jacfwd, XLA']}" in str(found)


def with_text(x):
    return jnp.sin(x) * x, {"n": 3, "text": "text", "square": jnp.outer(x, x)}


def test_auxiliary_outputs_are_not_differentiated():
    found = veenv.explain(with_text, X, batch=64, has_aux=True)
    alone = veenv.explain(lambda x: with_text(x)[0], X, batch=64)
    assert [row.label for row in found.rows] == [row.label for row in alone.rows]
    assert found.name == "with_text"
    assert [sum(n for _, n in one.lines) for one in (found, alone)] == [16, 16]


DECOMPOSED = {
    "fused": (lambda x: jnp.linalg.svd(jnp.outer(x, x)[:3, :3])[0], 'kernel="fused") makes'),
    "large": (lambda x: jnp.linalg.eigvalsh(jnp.outer(x, x)), "leave 'eigh' to XLA"),
}


@pytest.mark.parametrize("name", DECOMPOSED)
def test_decompositions_are_fused_where_they_can_be(name):
    fun, said = DECOMPOSED[name]
    advice = veenv.explain(fun, X, batch=8).advice
    assert said in advice[0]
    assert not any("scan" in each for each in advice)
    if name == "fused":
        assert veenv.jacve(fun, kernel="fused")(X).shape == (3, 3, 8)
    else:
        with pytest.raises(ValueError, match="can only be fused up to"):
            veenv.jacve(fun, kernel="fused")(X)


def test_lines_count_each_step_and_only_what_depends_on_arguments():
    def total(x):
        times = jnp.sin(jnp.linspace(0.0, 1.0, 500))
        carry, _ = jax.lax.scan(lambda c, t: (c * jnp.cos(t), None), x, times)
        return carry + x

    lines = veenv.explain(total, X).lines
    assert [count for _, count in lines] == [8 * 500, 8]
    assert "steps" not in lines[0][0]


def test_prints_are_named():
    def shown(x):
        jax.debug.print("{}", x[0])
        return jnp.sin(x) * x

    assert "remove it" in veenv.explain(shown, X, batch=8).advice[0]
