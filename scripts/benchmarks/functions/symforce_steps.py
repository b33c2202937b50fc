"""Steps of `steps.py`, written for SymForce: functions of its symbols, from its module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Step = tuple[Callable[..., Any], list[Any], int]
"""A function of symbols to a column, the types of its arguments, and how often it is called.

Each call but the first has the result of the one before as its first argument.
"""


def _kinetics(sf: Any) -> Step:
    v, y0, h0 = sf.V3.symbolic("v"), sf.V3.symbolic("y0"), sf.Symbol("h0")
    slow, fast, back = 0.04 * v[0], 3e7 * v[1] ** 2, 1e4 * v[1] * v[2]
    residual = v - y0 - h0 * sf.V3(back - slow, slow - fast - back, fast)
    change = residual.jacobian(v).inv() * residual

    def step(y: Any, h: Any) -> Any:
        found = y
        for _ in range(4):
            found = found - change.subs([(v, found), (y0, y), (h0, h)])
        return found

    return step, [sf.V3, sf.Scalar], 1


def _tracking(sf: Any) -> Step:
    v = sf.V5.symbolic("v")
    moved = sf.V5(
        v[0] + 0.1 * v[2] * sf.cos(v[3]), v[1] + 0.1 * v[2] * sf.sin(v[3]), v[2],
        v[3] + 0.1 * v[4], v[4],
    )  # fmt: skip
    looked = sf.V2(sf.sqrt(v[0] ** 2 + v[1] ** 2), sf.atan2(v[1], v[0], epsilon=0))
    slopes = moved.jacobian(v), looked.jacobian(v)

    def step(s: Any, p: Any, seen: Any) -> Any:
        f, after = slopes[0].subs(v, s), moved.subs(v, s)
        spread = f * p.T * f.T + 0.01 * sf.M55.eye()  # p comes row by row
        expected, h = looked.subs(v, after), slopes[1].subs(v, after)
        gain = ((h * spread * h.T + 0.1 * sf.M22.eye()).inv() * h * spread).T
        found, left = after + gain * (seen - expected), spread - gain * h * spread
        return sf.Matrix([*found.to_storage(), *left.to_storage()])

    return step, [sf.V5, sf.M55, sf.V2], 1


def _reaching(sf: Any) -> Step:
    v = sf.V6.symbolic("v")
    x, y, z = 0, 0, 0
    for joint in reversed(range(6)):
        z, c, s = z + 0.3, sf.cos(v[joint]), sf.sin(v[joint])
        x, y, z = (c * x - s * y, s * x + c * y, z) if joint % 2 else (
            c * x + s * z, y, c * z - s * x
        )  # fmt: skip
    place = sf.V3(x, y, z)
    slopes = place.jacobian(v)

    def step(q: Any, goal: Any) -> Any:
        slope = slopes.subs(v, q)
        damped = slope * slope.T + 0.01 * sf.M33.eye()
        return q + slope.T * damped.inv() * (goal - place.subs(v, q))

    return step, [sf.V6, sf.V3], 10  # as one expression it takes minutes to generate


STEPS: Mapping[str, Callable[[Any], Step]] = {
    "implicit Euler, kinetics": _kinetics,
    "extended Kalman filter": _tracking,
    "inverse kinematics": _reaching,
}
"""By the name in `steps.STEPS`; matrices column by column."""
