"""The tables of edge cases say what JAX and veenv give."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from tests.paths import DOCS
from tests.sampling import thinned

PAGES = [DOCS / "internals" / "edge_cases.md"]
OTHER_ORDERS = ("forward", "markowitz")


class Row(NamedTuple):
    """A line of the table: source of a function and of a point, three Jacobians, a verdict."""

    function: str
    point: str
    jacrev: str
    jacfwd: str
    jacve: str
    verdict: str


def rows() -> list[Row]:
    lines = [line for page in PAGES for line in page.read_text(encoding="utf-8").splitlines()]
    cells = [re.split(r" \| ", line[2:-2]) for line in lines if line.startswith("| `")]
    return [Row(*(c.strip("`") for c in row[:5]), row[5]) for row in cells]


@cache
def jacobians(function: str, point: str) -> dict[str, np.ndarray | None]:
    """Jacobians of a row's function by name; None where there is an error."""
    makers = {"jacrev": jax.jacrev, "jacfwd": jax.jacfwd, "reverse": veenv.jacve}
    return computed(function, point, makers)


def computed(function: str, point: str, makers: Mapping[str, Any]) -> dict[str, np.ndarray | None]:
    """Outside of jit, where XLA drops products of zero that are NaN by the letter."""
    names = {"jax": jax, "jnp": jnp, "lax": lax, "inf": np.inf}
    with jax.enable_x64(True):
        fun, x = eval(f"lambda x: {function}", names), jnp.asarray(eval(point, names)) * 1.0
        found: dict[str, np.ndarray | None] = {}
        for name, make in makers.items():
            try:
                found[name] = np.asarray(make(fun)(x))
            except (TypeError, NotImplementedError, ValueError):
                found[name] = None
    return found


def text(jacobian: np.ndarray | None) -> str:
    """A Jacobian with four digits, as the table writes it."""
    if jacobian is None:
        return "error"
    return re.sub(r"-(?=0[,\]]|0$)", "", _text(jacobian.tolist()))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return f"{value:.4g}"


def same(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    if a is None or b is None:
        return a is b
    return bool(np.allclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True))


@pytest.fixture(scope="module", params=thinned(rows(), 4), ids=lambda row: row.function)
def row(request):
    """Of the module, so that all tests of a row follow each other, and share its Jacobians."""
    return request.param


@pytest.mark.whole
def test_the_verdict_holds(row):
    found = jacobians(row.function, row.point)
    rev, fwd, ours = found["jacrev"], found["jacfwd"], found["reverse"]
    assert ours is not None
    if rev is not None and fwd is not None and not row.verdict.startswith("better"):
        sure = np.isfinite(rev) & np.isfinite(fwd) & np.isclose(rev, fwd)
        np.testing.assert_allclose(ours[sure], rev[sure], rtol=1e-9, atol=1e-12)
    as_rev_and_fwd = {
        "equal": (True, True), "as jacrev": (True, False), "as jacfwd": (False, True),
        "better": (False, False),
    }  # fmt: skip
    kind = re.match(r"equal$|as jacrev|as jacfwd|better(?=: \w)", row.verdict)
    assert kind, row.verdict
    assert (same(ours, rev), same(ours, fwd)) == as_rev_and_fwd[kind[0]]
    if kind[0] == "better":
        assert all(j is None or np.isfinite(ours).sum() > np.isfinite(j).sum() for j in (rev, fwd))


@pytest.mark.parametrize("row", thinned(rows(), 16), ids=lambda row: row.function)
@pytest.mark.whole
def test_other_orders_give_the_same(row):
    makers = {order: (lambda f, order=order: veenv.jacve(f, order)) for order in OTHER_ORDERS}
    ours = jacobians(row.function, row.point)["reverse"]
    for order, got in computed(row.function, row.point, makers).items():
        assert same(got, ours), order


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the page shows what the newest JAX gives")
@pytest.mark.whole
def test_the_table_shows_what_is_computed(row):
    found = jacobians(row.function, row.point)
    assert row.jacrev == text(found["jacrev"])
    assert row.jacfwd == text(found["jacfwd"])
    assert row.jacve == text(found["reverse"])


def test_the_pages_have_tables():
    assert len(rows()) > 50


@pytest.mark.parametrize("index", [2**32, 2**62])
def test_an_index_about_which_jax_contradicts_itself(index):
    """Its value is that of another index than its derivative's; a kernel has what its page says."""
    with jax.enable_x64(True):
        x, take = jnp.array([1.0, 2.0]), lambda x: jnp.take(x, jnp.asarray(index))
        assert float(take(x)) == 1.0
        assert jax.jacfwd(take)(x).tolist() == [1.0, 0.0]
        for jacobian in (jax.jacrev, veenv.jacve, lambda f: jax.jit(veenv.jacve(f))):
            assert jacobian(take)(x).tolist() == [0.0, 0.0]
        assert np.isnan(veenv.fuse(take)(x))
