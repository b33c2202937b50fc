"""Computes Jacobians without structural zeros: structured terms, and entries at known places."""

from veenv.engine.sparse.entries import Entries
from veenv.engine.sparse.pattern import Pattern
from veenv.engine.sparse.summands import Term
from veenv.engine.sparse.tensor import SparseTensor

__all__ = ["Entries", "Pattern", "SparseTensor", "Term"]
