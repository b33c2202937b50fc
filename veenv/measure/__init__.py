"""Seconds and bytes of Jacobians, and the proof of an order."""
