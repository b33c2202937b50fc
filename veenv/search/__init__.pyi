from .api import METHODS, search
from .budget import Budget, Progress
from .plugins import register_method
from .result import SearchResult

__all__ = ["METHODS", "Budget", "Progress", "SearchResult", "register_method", "search"]
