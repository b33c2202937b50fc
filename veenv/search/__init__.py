"""Searches for elimination orders that do not learn: greedy, annealing, beam and exact."""

from veenv.search.budget import Budget, Progress
from veenv.search.methods import METHODS, SearchResult, search

__all__ = ["METHODS", "Budget", "Progress", "SearchResult", "search"]
