"""Searches for a good order: greedy, annealing, beam, windows."""
