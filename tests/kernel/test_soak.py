"""Kernels under load: threads, functions in cycles, garbage collected all the time."""

import json
import os
import sys

import pytest

from tests.processes import said

PROGRAM = """
import faulthandler, gc, json, random, statistics, sys, threading, time
import jax, jax.numpy as jnp, numpy as np
import veenv
from veenv.kernel import primitive
from veenv.kernel.cpu import kernel_registry

seconds, started = 60 * float(sys.argv[1]), time.monotonic()
settled = min(120.0, seconds / 2)
x = np.linspace(0.1, 1, 3000, dtype=np.float32)
counts, failures, memory = [0] * 8, [], []

class Model:
    def __init__(self, scale, depth):
        self.scale, self.depth, self.fun = scale, depth, self  # a cycle
        self.call = lambda x: self.value(x)

    def value(self, x):
        for k in range(self.depth):
            x = jnp.sin(x * self.scale) + x * (k + 0.5)
        return x

    def slope(self, x):
        x, slope = x.astype(float), 1.0
        for k in range(self.depth):
            slope = slope * (self.scale * np.cos(x * self.scale) + k + 0.5)
            x = np.sin(x * self.scale) + x * (k + 0.5)
        return slope

def work(number):
    draw = random.Random(number)
    while time.monotonic() - started < seconds:
        try:
            model = Model(draw.uniform(0.1, 0.9), draw.choice([1, 2, 5]))
            mapped = jax.vmap(veenv.jacve(model.call, kernel="fused"))
            found = (jax.jit(mapped) if draw.random() < 0.5 else mapped)(x)
            expected = model.slope(x)
            np.testing.assert_allclose(found, expected, atol=1e-4 * abs(expected).max())
        except BaseException as error:
            failures.append(repr(error))
            raise
        counts[number] += 1

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6

gc.set_threshold(20)
threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(8)]
for thread in threads:
    thread.start()
before = sum(counts)
faulthandler.dump_traceback_later(180, exit=True)
while any(thread.is_alive() for thread in threads):
    time.sleep(1)
    memory.append((time.monotonic() - started, resident()))
    if sum(counts) > before:  # somebody gets on
        before = sum(counts)
        faulthandler.dump_traceback_later(180, exit=True)
del threads, thread
primitive.forget()
jax.clear_caches()
gc.collect()
part = (seconds - settled) / 4
early = [m for t, m in memory if settled <= t < settled + part]
late = [m for t, m in memory if t >= seconds - part]
print(json.dumps({
    "calls": counts, "failures": failures, "alive": kernel_registry.alive(),
    "early": statistics.median(early), "late": statistics.median(late),
}))
"""


@pytest.mark.soak
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_kernels_for_minutes_on_eight_threads():
    minutes = os.environ.get("VEENV_SOAK_MINUTES", "10")
    counted = said(PROGRAM, minutes, timeout=None)
    print(counted)
    found = json.loads(counted)
    assert not found["failures"]
    assert min(found["calls"]) > 0
    assert found["alive"] == 0
    assert found["late"] <= 1.05 * found["early"]
