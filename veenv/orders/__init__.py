"""Elimination orders: records, files, shipped ones, and how `jacve` comes by one."""

from veenv.orders.order import Order, fingerprint

__all__ = ["Order", "fingerprint"]
