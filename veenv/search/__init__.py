"""Searches for elimination orders that do not learn: greedy, annealing and exact."""

import os

import lazy_loader

# To colour its errors, which are many while it infers types, numba exchanges sys.stdout and
# sys.stderr; here it does so in a thread, and what others print meanwhile would go astray.
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
