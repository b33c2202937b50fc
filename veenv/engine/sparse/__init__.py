"""Jacobians without structural zeros: structured terms, and entries at known places."""

from veenv.engine.sparse.pattern import Pattern
from veenv.engine.sparse.tensor import SparseTensor
from veenv.engine.sparse.term import Entries, Term

__all__ = ["Entries", "Pattern", "SparseTensor", "Term"]
