"""Elemental partials of JAX's primitives: structure and values, as data."""

from veenv.rules import contraction, elementwise, operator, shape  # noqa: F401  (rules)
from veenv.rules.base import Pairs, Partial, Row, Rule, Site, Values, defelemental, find, is_complex
from veenv.rules.complex import complex_rule
from veenv.rules.operator import generic

__all__ = ["Pairs", "Partial", "Row", "Rule", "Site", "Values", "defelemental", "find", "partials"]


def partials(site: Site) -> list[list[Partial | None]]:
    """The partials of one equation: for each result, for each operand; None where zero.

    Args:
      site: the equation.

    Returns:
      One row for each result, in it one partial for each operand.

    Raises:
      ValueError: if a rule returns the wrong number of rows or partials.

    Examples:
      >>> import jax
      >>> from jax import lax
      >>> x = jax.ShapeDtypeStruct((3,), "float32")
      >>> [[by_x, by_y]] = partials(Site(lax.mul_p, {}, (x, x), (x,), (True, False), ""))
      >>> by_x.executed.describe(), by_y
      ('i,i:i', None)
    """
    rule = find(site.primitive.name) or generic
    if site.realify and any(is_complex(a) for a in (*site.in_avals, *site.out_avals)):
        rule = complex_rule(site) or rule
    rows = rule(site)
    if len(rows) != len(site.out_avals) or any(len(r) != len(site.in_avals) for r in rows):
        raise ValueError(
            f"the rule of primitive {site.primitive.name!r} must give {len(site.out_avals)} rows "
            f"of {len(site.in_avals)} partials, got {[len(r) for r in rows]} ({site.source})"
        )
    return [[p if a else None for p, a in zip(r, site.active, strict=True)] for r in rows]
