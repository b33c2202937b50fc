"""Structure of partial derivatives: the values they store, and the cost of products and sums."""

from veenv.structure.product import Plan, multiply
from veenv.structure.structure import (
    FREE,
    Link,
    Structure,
    add,
    dense,
    diagonal,
    make,
    scaled,
    stored,
    transpose,
)

__all__ = [
    "FREE",
    "Link",
    "Plan",
    "Structure",
    "add",
    "dense",
    "diagonal",
    "make",
    "multiply",
    "scaled",
    "stored",
    "transpose",
]
