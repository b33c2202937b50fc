"""Proximal policy optimisation."""
