"""Jacobians whose form was chosen by measuring: what is tried, how, and what is remembered."""
