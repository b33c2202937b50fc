"""Memory that is given back to the system for every call is cleared again for the next one.

glibc takes arrays of 128 KB and more from the system one by one, and gives back what is free at the
end of its heap, until a program frees a larger array: then both limits grow, up to 32 and 64 MB. A
program that calls nothing but a kernel never does so, and would take and return the pages of all
outputs with every call, which can take longer than to compute them.

Larger arrays are always taken from the system and given back. They can at least have large pages,
of which the system has to clear and count a few hundred times fewer.
"""

from __future__ import annotations

import ctypes
import os
import sys

SWITCH = "VEENV_KEEP_MEMORY"
"""The environment variable that leaves the limits as they are, where it is 0."""
_LARGEST = (32 << 20) - (64 << 10)
"""Bytes of an array that raises the limits as far as glibc lets them grow by themselves."""


def keep_memory() -> bool:
    """Lets the process keep free memory of up to 64 MB for its next arrays; says whether it did.

    It takes a large array and frees it, unused, as any other program might. Limits that the user
    has set (``MALLOC_TRIM_THRESHOLD_`` and the like) stay what they are.
    """
    if not may_advise():
        return False
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    library.malloc.argtypes = [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    library.free(library.malloc(_LARGEST))
    return True


def may_advise() -> bool:
    """Whether the system is told how to treat memory: on Linux, unless the variable is 0."""
    return sys.platform.startswith("linux") and os.environ.get(SWITCH) != "0"
