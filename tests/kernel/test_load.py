"""Kernels on many threads, under interrupts, with little memory, and with another XLA."""

from __future__ import annotations

import hashlib
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import serialize_executable

import veenv
from tests.processes import said
from tests.sampling import spared
from veenv.kernel.building.unrolling import unroll
from veenv.kernel.cpu import codegen, kernel_registry

START = """
import gc, sys, threading, warnings
import jax, jax.numpy as jnp, numpy as np
import veenv
from llvmlite import binding as llvm
from veenv.kernel.cpu import compile, kernel_registry

def f(x, k=1.0):
    return jnp.sin(x * k) * jnp.exp(x)

def kernel(k=1.0, kernel="fused"):
    return jax.jit(jax.vmap(veenv.jacve(lambda x: f(x, k), kernel=kernel)))

def check(found, k=1.0):
    np.testing.assert_allclose(found, jax.vmap(jax.grad(lambda x: f(x, k)))(x), 1e-4, 1e-5)

x = np.linspace(0, 1, 20_000, dtype=np.float32)
"""


def run(program, *args):
    return said(START + program, *args)


def program_of(k):
    return unroll(jax.make_jaxpr(lambda x: jnp.sin(x * k) * x)(1.0), 1000)


def test_a_finaliser_waits_for_nothing(monkeypatch):
    """Garbage may be collected by a thread for which a compiler's thread waits."""
    handles = [kernel_registry.kernel(program_of(1.0625), 64)]
    compiled = codegen.objects

    def slow(*args):
        thread = threading.Thread(target=handles.clear)
        thread.start()
        thread.join(20)
        assert not thread.is_alive()
        return compiled(*args)

    monkeypatch.setattr(codegen, "objects", slow)
    kernel_registry.kernel(program_of(2.0625), 64)
    assert not handles


def test_kernels_are_compiled_side_by_side_and_each_once(monkeypatch):
    compiled, both, count = codegen.objects, threading.Barrier(2, timeout=60), []

    def together(*args):
        count.append(args)
        both.wait()
        return compiled(*args)

    monkeypatch.setattr(codegen, "objects", together)
    programs = [program_of(k) for k in (3.0625, 4.0625)] * 2
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(lambda program: kernel_registry.kernel(program, 64), programs)]
    assert len(count) == 2
    assert found[0] is found[2] is not found[1]
    assert found[1] is found[3]


INTERRUPTS = """
import linecache
files = {kernel_registry.__file__, compile.__file__}
left, where = 0, ""

def trace(frame, event, arg):
    global left, where
    if frame.f_code.co_filename not in files:
        return None
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    if event == "line" and not line.startswith("with "):  # CPython keeps these in one piece
        left -= 1
        if left == 0:
            where = line
            raise KeyboardInterrupt
    return trace

kernel(0.5)(x)
kept, seen = {}, set()
for number in range(1, 1000):
    k = 1 + number / 64
    made, left, where = kernel(k), number, ""
    (threading if "thread" in sys.argv else sys).settrace(trace)
    try:
        made(x)
    except KeyboardInterrupt:
        pass
    threading.settrace(None)
    sys.settrace(None)
    seen.add(where)
    check(made(x), k)
    kept[k] = made
    if number % 8 == 0:  # what was interrupted is freed, and its memory taken again
        del made
        kept.clear()
        jax.clear_caches()
        gc.collect()
        kernel_registry.alive()
    if not where:
        break
check(kernel(0.5)(x), 0.5)
print(len(seen))
"""


@pytest.mark.whole
@pytest.mark.parametrize("where", spared(["main", "thread"], "main"))
def test_an_interrupt_may_come_between_any_two_statements(where):
    assert int(run(INTERRUPTS, where)) > 10


SMALL_STACK = """
scales, x = np.linspace(0, 1, 1500), -x[:2000]

def long(x):
    values = [x * float(s + 1) + float(s) for s in scales]  # all of them are kept
    found = x
    for first, last in zip(values, values[::-1]):
        found = found * first + last
    return found

compiled = jax.jit(jax.vmap(veenv.jacve(long, kernel="fused"))).lower(x).compile()
threading.stack_size(256 * 1024)
found = []
threads = [threading.Thread(target=lambda: found.append(compiled(x))) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
value, slope = x, np.ones_like(x)
for s, t in zip(scales, scales[::-1]):
    first, last = x * (s + 1) + s, x * (t + 1) + t
    value, slope = value * first + last, slope * first + value * (s + 1) + t + 1
for values in found:
    np.testing.assert_allclose(values, slope, rtol=1e-2, atol=1e-3)
print(len(found))
"""


@pytest.mark.whole
def test_a_long_kernel_runs_on_a_small_stack():
    assert int(run(SMALL_STACK)) == 4


NO_MEMORY = """
real = compile.ctypes.cast(compile.ctypes.CDLL(None)[sys.argv[1]], compile.ctypes.c_void_p).value
size = "i64 %bytes" if sys.argv[1] == "malloc" else "i64 %line, i64 %bytes"
code = compile.MachineCode(compile.objects_of(f'''
@count = global i64 0
define ptr @none({size}) {{
  %before = atomicrmw add ptr @count, i64 1 acq_rel
  %rest = urem i64 %before, {sys.argv[2]}
  %fails = icmp eq i64 %rest, 0
  br i1 %fails, label %no, label %yes
no:
  ret ptr null
yes:
  %made = call ptr inttoptr (i64 {real} to ptr)({size})
  ret ptr %made
}}'''))
llvm.add_symbol(sys.argv[1], code.address("none"))
made, done, failed = kernel(), 0, 0
for _ in range(40):
    try:
        check(made(x))
        done += 1
    except jax.errors.JaxRuntimeError as error:
        assert "RESOURCE_EXHAUSTED: no memory is left" in str(error), error
        failed += 1
print(done, failed)
"""


@pytest.mark.whole
@pytest.mark.parametrize(
    ("function", "every"),
    spared(product(["malloc", "aligned_alloc"], [1, 3]), ("malloc", 1), ("aligned_alloc", 3)),
)
def test_where_there_is_no_memory_a_call_fails_or_the_caller_works_alone(function, every):
    done, failed = map(int, run(NO_MEMORY, function, every).split())
    assert failed == 40 if every == 1 else done > 0


@pytest.mark.whole
@pytest.mark.parametrize("kernel", spared(["fused", "auto"], "auto"))
def test_xla_takes_the_place_of_kernels_that_it_would_call_in_an_unknown_way(kernel):
    program = f"""
kernel_registry.TESTED = ((0, 99),)
with warnings.catch_warnings(record=True) as caught:
    for k in (1.0, 2.0):
        check(kernel(k, {kernel!r})(x), k)
print({{str(w.message) for w in caught}})
"""
    text = (Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h").read_text()
    version = re.findall(r"define XLA_FFI_API_M(?:AJ|IN)OR (\d+)", text)
    warned = run(program)
    assert f"version {version[0]}.{version[1]} of XLA's foreign function interface" in warned
    assert warned.rstrip().endswith('(but in 0.99); XLA takes their place"}')


DRIVER = Path(kernel_registry.__file__).with_name("driver.c")


def test_the_ir_of_the_driver_is_made_of_its_source():
    """Else: ``python scripts/data/refresh_driver.py``."""
    digest = hashlib.sha256(DRIVER.read_bytes()).hexdigest()
    assert DRIVER.with_suffix(".ll").read_text().startswith(f"; of driver.c {digest}\n")


def test_an_executable_with_a_kernel_is_not_serialized():
    compiled = jax.jit(jax.vmap(veenv.jacve(lambda x: jnp.sin(x) * x, kernel="fused"))).lower(
        np.ones(8, np.float32)
    )
    with pytest.raises(ValueError, match="machine code of this process"):
        serialize_executable.serialize(compiled.compile())
