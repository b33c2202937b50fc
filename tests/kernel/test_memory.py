"""Free memory is kept for the next call."""

import sys
from pathlib import Path

import pytest

from tests.processes import said

PROGRAM = """
import ctypes, resource, sys
from veenv.kernel.cpu.kernel_registry import keep_memory

library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.free.argtypes = [ctypes.c_void_p]

def call():
    arrays = [library.malloc(1 << 18) for _ in range(40)]
    for array in arrays:
        ctypes.memset(array, 1, 1 << 18)
    for array in arrays:
        library.free(array)

kept = keep_memory()
call()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    call()
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def run(program=PROGRAM, **environment):
    kept, faults = said(program, **environment).split()
    return kept == "True", int(faults)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of glibc")
def test_arrays_of_the_next_call_cost_no_page_faults():
    kept, faults = run()
    assert kept
    assert faults < 100  # of 5 times 40 arrays of 64 pages


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of glibc")
def test_the_limits_stay_where_the_user_says_so():
    kept, faults = run(VEENV_KEEP_MEMORY="0")
    assert not kept
    _, usual = run(PROGRAM.replace("keep_memory()", "False"))  # none where the heap stays anyway
    assert faults >= usual / 2


LARGE = """
import resource
import jax, jax.numpy as jnp, numpy as np
import veenv

jacobian = veenv.jacve(lambda x: x * jnp.roll(x, 1), kernel="fused")
run = jax.jit(jax.vmap(jacobian)).lower(np.ones((2560, 64), np.float32)).compile()
points = jnp.ones((2560, 64))
assert float(run(points)[-1, 1, 0]) == 1
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
found = jax.block_until_ready(run(points))  # 42 MB
print(True, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.whole
@pytest.mark.skipif(
    not PAGES.exists() or "[madvise]" not in PAGES.read_text(),
    reason="Linux does not give large pages to who asks for them",
)
def test_large_results_get_large_pages():
    assert run(program=LARGE)[1] < 2500  # of 10,240 small ones
    assert run(program=LARGE, VEENV_KEEP_MEMORY="0")[1] > 8000
