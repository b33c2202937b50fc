"""Elimination orders: records, files, shipped orders, and the resolution of `order` arguments."""

from veenv.orders.order import Order, fingerprint

__all__ = ["Order", "fingerprint"]
