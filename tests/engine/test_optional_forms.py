"""Whether a form that nobody asked for can be made does not decide whether a call works."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from tests.oracles.jacobians import assert_same
from tests.sampling import spared
from veenv import _support
from veenv.engine import form_selection, jacobian, materialise
from veenv.kernel import fusing, primitive
from veenv.kernel.building.builder import Builder

pytestmark = pytest.mark.kernels
X = np.array([0.3, 0.7, 1.2])


class UnforeseenError(Exception):
    """What a mistake of ours raises."""


def _fails(*args: Any, **kwargs: Any) -> Any:
    raise UnforeseenError


def smooth(x: Any) -> Any:
    return jnp.sin(x) * jnp.exp(x).sum(), jnp.tanh(x) @ x


BROKEN = {
    "JAX's modes": (jacobian, "other_modes"),
    "other orders": (jacobian, "other_orders"),
    "modes alone": (jacobian, "modes_alone"),
    "thin Jacobians": (jacobian, "_thin"),
    "elimination": (jacobian, "_eliminated"),
    "linearisation": (jacobian, "linearise"),
    "traces of a point": (form_selection, "trace_point"),
    "separation": (form_selection, "_separate"),
    "prices": (form_selection, "counts_of"),
    "the size of a kernel": (form_selection, "kernel_size"),
    "prices of kernels": (form_selection, "kernel_seconds"),
    "unrolling": (fusing, "unroll"),
    "pins": (materialise, "stored_from"),
    "machine code": (primitive, "_lower_point"),
}


def messages(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [r for r in caplog.records if r.name == "veenv"]


@pytest.mark.parametrize(
    ("order", "form"),
    spared(itertools.product(["auto", "reverse"], ["jit", "vmap"]), ("auto", "jit")),
)
@pytest.mark.parametrize("broken", BROKEN)
def test_another_form_is_taken(
    broken: str, form: str, order: Any, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture, x64: None,
):  # fmt: skip
    """The only sign is a message of level debug; a reverse order that is asked for stays one."""
    if order == "reverse" and broken in ("elimination", "linearisation", "prices"):
        pytest.skip("it was asked for")  # and nothing stands beside it that has a price
    monkeypatch.setattr(_support, "STRICT", False)
    monkeypatch.setattr(*BROKEN[broken], _fails)
    caplog.set_level(logging.DEBUG, "veenv")
    x = jnp.asarray(X)
    kernel = "xla" if broken in ("prices", "pins") else "auto"  # a kernel needs none
    derived = veenv.jacve(smooth, order, kernel=kernel)
    found = jax.jit(derived)(x) if form == "jit" else jax.jit(jax.vmap(derived))(x[None])
    for a, b in zip(found, jax.jacrev(smooth)(x), strict=True):
        np.testing.assert_allclose(a.reshape(b.shape), b, rtol=1e-12)
    assert all(r.levelno == logging.DEBUG and r.exc_info for r in messages(caplog))
    assert len(messages(caplog)) == 1


def test_even_an_elimination_is_optional_outside_of_jit(monkeypatch: pytest.MonkeyPatch, x64: None):
    """One of JAX's modes takes its place, auxiliary output and all."""
    monkeypatch.setattr(_support, "STRICT", False)
    monkeypatch.setattr(jacobian, "_eliminated", _fails)
    with_aux = lambda x, name: (smooth(x), {name: x})  # noqa: E731
    found, aux = veenv.jacve(with_aux, has_aux=True)(X, "x")
    np.testing.assert_allclose(found[1], jax.jacrev(smooth)(X)[1], rtol=1e-12)
    np.testing.assert_array_equal(aux["x"], X)


@pytest.mark.parametrize(
    "options", [{"kernel": "fused"}, {"order": "forward"}, {"count_ops": True}]
)
def test_what_was_asked_for_raises(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_support, "STRICT", False)
    monkeypatch.setattr(fusing, "unroll", _fails)
    monkeypatch.setattr(jacobian, "_eliminated", _fails)
    with pytest.raises(UnforeseenError):
        jax.jit(veenv.jacve(smooth, **options))(X)
    with pytest.raises(UnforeseenError):
        veenv.fuse(smooth)(X)


def test_derivatives_of_kernels_are_optional(monkeypatch: pytest.MonkeyPatch, x64: None):
    monkeypatch.setattr(_support, "STRICT", False)
    fused = veenv.fuse(lambda x: smooth(x)[1])
    fused(jnp.asarray(X))
    monkeypatch.setattr(fusing, "unroll", _fails)
    wanted = jax.grad(lambda x: smooth(x)[1])(X)
    np.testing.assert_allclose(jax.grad(fused)(jnp.asarray(X)), wanted, rtol=1e-12)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("error", [ValueError, TypeError, MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("order", ["auto", "markowitz"])
def test_errors_of_the_user_are_raised_as_they_are(
    order: Any, error: type[BaseException], strict: bool, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):  # fmt: skip
    """The function is traced no second time to find that out."""
    monkeypatch.setattr(_support, "STRICT", strict)
    caplog.set_level(logging.DEBUG, "veenv")
    calls, raised = [], error("of the user")

    def fun(x: Any) -> Any:
        calls.append(x)
        raise raised

    with pytest.raises(error) as info:
        jax.jit(veenv.jacve(fun, order))(X)
    assert info.value is raised
    assert info.value.__context__ is None
    assert len(calls) == 1 or (error is TypeError and len(calls) <= 3)  # it may need values
    assert not messages(caplog)


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_what_is_no_mistake_of_ours_is_raised(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
):
    def fails(*args: Any, **kwargs: Any) -> Any:
        raise error

    monkeypatch.setattr(_support, "STRICT", False)
    monkeypatch.setattr(fusing, "unroll", fails)
    with pytest.raises(error):
        jax.jit(veenv.jacve(smooth))(X)


def test_mistakes_of_ours_are_errors_in_the_tests(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fusing, "unroll", _fails)
    with pytest.raises(UnforeseenError):
        jax.jit(veenv.jacve(smooth))(X)


@pytest.mark.usefixtures("x64")
def test_a_long_loop_leaves_the_axes_before_it_to_be_loops():
    """Its steps are operations, but no code."""

    def run(x):
        for k in range(8):
            x = jnp.sin(x + k) * jnp.cos(x)
        step = lambda c, _: (c + 0.001 * jnp.sin(c), None)  # noqa: E731
        return lax.scan(step, x.sum(), None, length=4000)[0]

    points = np.linspace(0, 1, 16 * 300).reshape(16, 300)
    many = jax.jit(jax.vmap(veenv.jacve(run)))
    assert "veenv_fused" in many.lower(points).as_text()
    assert_same(many(points), jax.jit(jax.vmap(jax.grad(run)))(points), 1e-10)


@pytest.mark.usefixtures("x64")
def test_a_kernel_that_is_too_long_is_given_up_early(monkeypatch):
    written, op = [], Builder.op

    def counted(self, name, *args, **kwargs):
        written.append(name)
        return op(self, name, *args, **kwargs)

    monkeypatch.setattr(Builder, "op", counted)

    def layers(image):
        kernel = np.random.default_rng(0).normal(size=(4, 4, 3, 3))
        for _ in range(3):
            image = jnp.tanh(lax.conv(image, kernel, (1, 1), "SAME"))
        return image.mean((2, 3))

    images = np.random.default_rng(1).normal(size=(16, 1, 4, 12, 12))
    text = jax.jit(jax.vmap(veenv.jacve(layers))).lower(images).as_text()
    assert "veenv_fused" not in text
    assert len(written) < 30_000  # looking for loops over axes takes ten times as many
