"""Compiled inner loops of the searches, and the tables they read."""
