"""A second process takes what `fuse` makes of a function from the disk, where it is the same."""

from __future__ import annotations

import hashlib
import json
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive

import veenv
from tests.kernel.test_lifetime import forget_all
from tests.oracles.jacobians import assert_same
from veenv.kernel.building import unrolling
from veenv.kernel.cpu import disk
from veenv.rules import definitions
from veenv.rules.definitions import register_rule

pytestmark = [pytest.mark.kernels, pytest.mark.usefixtures("cache")]
X = np.linspace(0.3, 1.2, 4, dtype=np.float32)


TABLE = np.sin(np.arange(1600, dtype=np.float32)).reshape(400, 4)


def step(x, table):
    """A step of Newton's method by a large table, with a Jacobian inside."""
    fun = lambda x: jnp.tanh(table[:4, :4] @ x) + x  # noqa: E731
    return x - jnp.linalg.solve(jax.jacfwd(fun)(x), fun(x)), x


FUSED = {
    "fuse": lambda: veenv.fuse(step),
    "table": lambda: veenv.fuse(lambda x, _: TABLE.sum(0) * x),
    "kernel": lambda: veenv.jacve(step, kernel="fused"),
}


@pytest.mark.parametrize("name", FUSED)
def test_a_kernel_that_another_process_was_asked_for(name, monkeypatch):
    x, table = np.linspace(0.1, 1, 24, dtype=np.float32).reshape(6, 4), TABLE[:8]

    def run():
        return jax.jit(jax.vmap(FUSED[name](), (0, None)))(x, table)

    first = run()
    forget_all()
    monkeypatch.setattr(unrolling, "_program", lambda *a, **k: pytest.fail("unrolled"))
    assert_same(run(), first, 0)


def damage(cache, what):
    """Changes a byte of the files of machine code, of the others, or of both."""
    for path in (cache / disk.FOLDER).iterdir():
        text = path.read_bytes()
        is_code = text[32:].partition(b"\n")[2].startswith(b"\x7fELF")
        if what == "both" or is_code == (what == "the code"):
            path.write_bytes(text[:-1] + bytes([operator.xor(text[-1], 1)]))


@pytest.mark.parametrize("what", ["the code", "the rest", "both"])
def test_what_is_damaged_is_made_anew(cache, what):
    run = jax.jit(veenv.fuse(lambda x: jnp.sin(x) * x[0]))
    expected = np.sin(X) * X[0]
    for _ in range(2):
        assert_same(run(X), jnp.asarray(expected), 1e-6)
        damage(cache, what)
        forget_all()


def rewrite(cache, change):
    """Changes the head of the files that say how kernels are called, with hashes that are right."""
    for path in (cache / disk.FOLDER).iterdir():
        line, _, rest = path.read_bytes()[32:].partition(b"\n")
        head = json.loads(line)
        if "lanes" in head:
            text = json.dumps({**head, **change}).encode() + b"\n" + rest
            path.write_bytes(hashlib.sha256(text).digest() + text)


ODD = [
    {"digest": None}, {"lanes": "8"}, {"inputs": 3}, {"inputs": [[[4], "nothing"]]},
    {"outputs": []}, {"copies": [[0]]}, {"constants": [0, 1]}, {"stored": []},
    {"outputs": [[[5], "float32"]]}, {"executed": None}, {"outputs": [[[4], "float64"]]},
]  # fmt: skip


@pytest.mark.parametrize("change", ODD, ids=map(str, ODD))
def test_a_call_that_is_described_oddly_is_made_anew(cache, change):
    run = jax.jit(veenv.fuse(lambda x: jnp.sin(x) * x[0]))
    first = run(X)
    rewrite(cache, change)
    forget_all()
    assert_same(run(X), first, 0)


SLOPE = Primitive("slope_of_a_test")
SLOPE.def_abstract_eval(lambda x: x)


def test_another_meaning_is_another_function(monkeypatch):
    """Of a primitive for which something was registered, in this process and not in the next."""
    monkeypatch.setattr(definitions, "_DEFINITIONS", {})
    run = jax.jit(veenv.fuse(lambda x: 2 * SLOPE.bind(x)))
    for slope in (3, 5):
        forget_all()
        register_rule(SLOPE, lambda x: slope * x)  # noqa: B023
        assert_same(run(X), jnp.asarray(2 * slope * X), 1e-6)
    definitions._traced.cache_clear()
