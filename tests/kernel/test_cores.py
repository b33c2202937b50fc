"""A task of a kernel that begins on its caller's core goes to another one."""

import ctypes
import os
import sys
import threading

import pytest

from veenv.kernel.cpu.entries import registry

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux tells a thread's core"
)


@pytest.fixture(scope="module")
def leave():
    return ctypes.CFUNCTYPE(None, ctypes.c_int64)(registry().driver.address("veenv_leave"))


def in_a_thread(fun):
    """What a function returns in a thread of its own, whose cores are its own business."""
    found = []
    thread = threading.Thread(target=lambda: found.append(fun()))
    thread.start()
    thread.join()
    return found[0]


def core():
    return ctypes.CDLL(None).sched_getcpu()


def test_it_goes_and_may_come_back(leave):
    if len(os.sched_getaffinity(0)) == 1:
        pytest.skip("there is one core")

    def several_times():
        before, left = os.sched_getaffinity(0), []
        for _ in range(50):
            here = core()
            leave(here)
            left.append(core() != here)
        return before, os.sched_getaffinity(0), left

    before, after, left = in_a_thread(several_times)
    assert before == after
    assert sum(left) > 25  # Linux may have moved it back meanwhile


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
