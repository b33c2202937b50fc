"""Gumbel AlphaZero with the environment as its model."""
