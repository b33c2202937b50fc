"""Computational graphs: tracing, elemental partials, costs and classical orders."""

from veenv.graph.graph import COST_MODELS, CostModel, Graph, check_cost_model

__all__ = ["COST_MODELS", "CostModel", "Graph", "check_cost_model"]
