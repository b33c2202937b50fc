"""Searches for a good order: greedy, annealing, a learned score."""
