"""A task of a kernel that begins on its caller's core goes to another one."""

import ctypes
import os
import sys
import threading

import numpy as np
import pytest

from veenv.kernel.cpu import sharing, tiles
from veenv.kernel.cpu.entries import registry
from veenv.kernel.cpu.ffi import CallFrame

if not sys.platform.startswith("linux"):
    pytest.skip("only Linux tells a thread's core", allow_module_level=True)


def driver(name, *types):
    return ctypes.CFUNCTYPE(None, *types)(registry().driver.address(name))


@pytest.fixture(scope="module")
def leave():
    return driver("veenv_leave", ctypes.c_int64)


@pytest.fixture
def shared():
    """The record of a call whose only chunk nobody has taken, and which has no share to take."""
    entry = np.zeros(tiles.ENTRY_WORDS, np.int64)
    record = np.zeros(sharing.SHARED_WORDS, np.int64)
    record[sharing.SHARED_ENTRY] = entry.ctypes.data
    record[sharing.SHARED_MEMORY] = sharing.LINE
    record[sharing.SHARED_USERS] = 1000  # so that nobody frees it
    record[sharing.SHARED_CHUNKS] = 1
    yield record
    assert entry.sum() == 0


def in_a_thread(fun):
    """What a function returns in a thread of its own, whose cores are its own business."""
    found = []
    thread = threading.Thread(target=lambda: found.append(fun()))
    thread.start()
    thread.join()
    return found[0]


def core():
    return ctypes.CDLL(None).sched_getcpu()


def in_a_thread_that_may_move(fun):
    """As `in_a_thread`, if there is more than one core and the system moves threads when told."""

    def moved():
        cores = os.sched_getaffinity(0)
        for one in cores:
            os.sched_setaffinity(0, {one})
            if core() != one:
                return False
        return len(cores) > 1

    if not in_a_thread(moved):
        pytest.skip("this system has one core, or moves no thread")
    return in_a_thread(fun)


def test_it_goes_and_may_come_back(leave):
    def several_times():
        before, left = os.sched_getaffinity(0), []
        for _ in range(50):
            here = core()
            leave(here)
            left.append(core() != here)
        return before, os.sched_getaffinity(0), left

    before, after, left = in_a_thread_that_may_move(several_times)
    assert before == after
    assert sum(left) > 25  # Linux may have moved it back meanwhile


def test_a_task_leaves_the_core_of_its_caller_alone(shared):
    task = driver("veenv_task", ctypes.c_void_p)

    def several_times():
        left, stayed = [], []
        for _ in range(50):
            here = shared[sharing.SHARED_CORE] = core()
            task(shared.ctypes.data)
            left.append(core() != here)
            here = core()
            shared[sharing.SHARED_CORE] = here + 1
            task(shared.ctypes.data)
            stayed.append(core() == here)
        return left, stayed

    left, stayed = in_a_thread_that_may_move(several_times)
    assert sum(left) > 25
    assert sum(stayed) > 25
    assert shared[sharing.SHARED_USERS] == 900


def test_a_call_says_where_its_caller_runs(shared):
    types = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
    parallel = driver("veenv_parallel", *types)
    api = np.zeros(64, np.int64)
    frame = np.zeros(32, np.int64)
    frame[CallFrame.api.offset // 8] = api.ctypes.data
    shared[sharing.SHARED_CHUNKS] = 0  # nothing to wait for

    def on_each():
        said = []
        for one in sorted(os.sched_getaffinity(0)):
            os.sched_setaffinity(0, {one})
            parallel(frame.ctypes.data, shared.ctypes.data, 0, None)
            said.append((int(shared[sharing.SHARED_CORE]), core()))
        return said

    for said, is_on in in_a_thread(on_each):
        assert said == is_on


def test_it_stays_where_it_may_be_nowhere_else(leave):
    def on_one():
        here = min(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {here})
        leave(here)
        return {here}, os.sched_getaffinity(0), core()

    only, after, now = in_a_thread(on_one)
    assert after == only == {now}


def test_what_is_no_core_is_let_be(leave):
    def elsewhere():
        before = os.sched_getaffinity(0)
        leave(-1)
        leave(1 << 20)
        return before, os.sched_getaffinity(0)

    before, after = in_a_thread(elsewhere)
    assert before == after
