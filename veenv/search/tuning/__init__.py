"""Chooses the form of a Jacobian by measuring: `tune`, its contest and its records."""
