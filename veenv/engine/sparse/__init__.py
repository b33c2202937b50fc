"""Jacobians without structural zeros: structured terms, and entries at known places."""

from veenv.engine.sparse.computed import Computed
from veenv.engine.sparse.pattern import Pattern
from veenv.engine.sparse.summands import Entries, Term
from veenv.engine.sparse.tensor import SparseTensor

__all__ = ["Computed", "Entries", "Pattern", "SparseTensor", "Term"]
