from .api import METHODS, SearchResult, search
from .budget import Budget, Progress
from .plugins import register_method

__all__ = ["METHODS", "Budget", "Progress", "SearchResult", "register_method", "search"]
