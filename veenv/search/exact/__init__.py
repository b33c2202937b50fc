"""Searches for the best order, with proof: A* and its bounds."""
