"""Searches for the best order, with proof: A*, dynamic programming and their bounds."""
