"""veenv: finding fast Jacobians by vertex elimination."""

from veenv.graph import Graph
from veenv.linearise import make_graph
from veenv.rules import defelemental

__all__ = ["Graph", "defelemental", "make_graph"]
