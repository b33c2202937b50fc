"""Where console commands start."""

import subprocess
import sys

import pytest

FREED = """
import resource
import numpy as np
from veenv.agents.cli.entry import keep_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        np.empty(5 * 2**23, np.uint8)[::4096] = 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

often = faults()
keep_memory()
faults()
print(often, faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_memory_that_was_freed_is_used_again_without_faults():
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    often, seldom = map(int, done.stdout.split())
    assert seldom * 10 <= often
