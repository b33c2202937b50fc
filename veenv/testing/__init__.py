"""Checks of users' environments, orders and rules."""

from veenv.testing.elementals import check_rule
from veenv.testing.environments import check_env
from veenv.testing.proofs import check_order

__all__ = ["check_env", "check_order", "check_rule"]
