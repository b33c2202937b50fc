"""Searches for elimination orders that do not learn: greedy, annealing and exact."""

import os

import lazy_loader

# Numba replaces sys.stdout and sys.stderr to colour errors while it infers types; here it runs in a
# thread, so that what other threads print meanwhile would be lost.
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
