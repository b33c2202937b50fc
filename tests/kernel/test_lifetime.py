"""Code in use is never freed; code out of use does not pile up."""

from __future__ import annotations

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.processes import said
from tests.sampling import spared
from veenv.kernel import primitive
from veenv.kernel.cpu import kernel_registry


@pytest.fixture(autouse=True)
def nothing_remembered():
    yield
    forget_all()


X = np.linspace(0, 1, 20, dtype="f4")


def kernel(k: float):
    return jax.jit(jax.vmap(veenv.jacve(lambda x: jnp.sin(x * k) * x, kernel="fused")))


def settled() -> int:
    gc.collect()
    return kernel_registry.alive()


def forget_all() -> int:
    """Forgets what this process has compiled; the number of kernels that are in use anyway."""
    primitive.forget()
    jax.clear_caches()
    return settled()


def test_code_goes_when_its_programs_go():
    before = forget_all()
    functions = [kernel(k + 0.5) for k in range(6)]
    for function in functions:
        function(X)
    assert settled() == before + 6
    del functions, function
    assert forget_all() == before


def test_an_executable_keeps_its_code_without_its_caches():
    compiled = kernel(7.25).lower(X).compile()
    expected = np.asarray(compiled(X))
    assert forget_all() >= 1
    for k in range(4):  # would take over a freed entry
        kernel(k + 100.5)(X)
    np.testing.assert_array_equal(compiled(X), expected)


def test_what_is_lowered_keeps_its_code_until_it_is_compiled():
    lowered = kernel(9.75).lower(X)
    forget_all()
    for k in range(4):
        kernel(k + 200.5)(X)
    expected = jax.vmap(jax.jacrev(lambda x: jnp.sin(x * 9.75) * x))(X)
    np.testing.assert_allclose(lowered.compile()(X), expected, rtol=1e-5, atol=1e-5)


def one_point(f):
    veenv.jacve(f, kernel="fused")(1.0)


def batch(f):
    jax.vmap(veenv.jacve(f))(np.linspace(0, 1, 20_000, dtype="f4"))


@pytest.mark.parametrize("call", spared([one_point, batch], batch))
def test_eager_calls_do_not_pile_up(call):
    primitive.forget()
    before = settled()
    for k in range(40):
        call(lambda x, k=k: jnp.sin(x * (k + 0.25)) * jnp.exp(x))
    assert before < settled() <= before + 32  # as the docs say
    primitive.forget()
    assert settled() == before


AT_EXIT = """
import os
import jax, jax.numpy as jnp, veenv
from veenv.kernel.cpu import kernel_registry

class Watch:
    def __init__(self, record):
        self.record, self.write = record, os.write
    def __del__(self):
        self.write(1, b"freed with %d users\\n" % self.record.users)

kept = jax.jit(jax.vmap(veenv.jacve(jnp.sin, kernel="fused"))).lower(jnp.ones(8)).compile()
for entry in list(kernel_registry._registry.entries.values()):
    entry.refers = entry.refers, Watch(entry.record)
del entry
print("end", flush=True)
"""


@pytest.mark.whole
def test_a_process_that_ends_frees_nothing_that_an_executable_uses():
    assert said(AT_EXIT) == "end\n"


_IN_A_RING = """
import gc
from veenv.kernel.cpu.compile import MachineCode, host, objects_of

host()
for _ in range(5):
    code = MachineCode(objects_of("define i64 @one() {\\n  ret i64 1\\n}"))
    ring = [code]
    ring.append(ring)
    del code, ring
    gc.collect()
print("alive")
"""


@pytest.mark.whole
def test_code_in_a_ring_of_garbage_is_freed_in_order():
    """A context of LLVM that goes before its code takes the process with it."""
    assert said(_IN_A_RING) == "alive\n"
