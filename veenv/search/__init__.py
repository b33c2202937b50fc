"""Searches for elimination orders that do not learn: greedy, annealing, beam and exact."""

from veenv.search.budget import Budget, Progress
from veenv.search.methods import METHODS, SearchResult, search
from veenv.search.plugins import register_method

__all__ = ["METHODS", "Budget", "Progress", "SearchResult", "register_method", "search"]
