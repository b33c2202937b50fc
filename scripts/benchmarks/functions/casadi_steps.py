"""Steps of `steps.py`, written for CasADi: from its module to a function of a point's arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def _kinetics(ca: Any) -> Any:
    y, h, z = ca.SX.sym("y", 3), ca.SX.sym("h"), ca.SX.sym("z", 3)
    slow, fast, back = 0.04 * z[0], 3e7 * z[1] ** 2, 1e4 * z[1] * z[2]
    r = z - y - h * ca.vertcat(back - slow, slow - fast - back, fast)
    newton = ca.Function("newton", [z, y, h], [r, ca.jacobian(r, z)])
    found = y
    for _ in range(4):
        value, slope = newton(found, y, h)
        found = found - ca.solve(slope, value)
    return ca.Function("whole_step", [y, h], [found])


def _tracking(ca: Any) -> Any:
    s, p, seen = ca.SX.sym("s", 5), ca.SX.sym("p", 5, 5), ca.SX.sym("seen", 2)
    moved = ca.vertcat(
        s[0] + 0.1 * s[2] * ca.cos(s[3]), s[1] + 0.1 * s[2] * ca.sin(s[3]), s[2],
        s[3] + 0.1 * s[4], s[4],
    )  # fmt: skip
    looked = ca.vertcat(ca.sqrt(s[0] ** 2 + s[1] ** 2), ca.atan2(s[1], s[0]))
    move = ca.Function("move", [s], [moved, ca.jacobian(moved, s)])
    look = ca.Function("look", [s], [looked, ca.jacobian(looked, s)])
    after, f = move(s)  # p comes row by row
    spread = f @ p.T @ f.T + 0.01 * ca.SX.eye(5)
    expected, h = look(after)
    gain = ca.solve(h @ spread @ h.T + 0.1 * ca.SX.eye(2), h @ spread).T
    found = after + gain @ (seen - expected)
    return ca.Function(  # not `step`, which glibc has, too
        "whole_step", [s, p, seen], [ca.vertcat(found, ca.vec(spread - gain @ h @ spread))]
    )


def _reaching(ca: Any) -> Any:
    q, goal = ca.SX.sym("q", 6), ca.SX.sym("goal", 3)
    x, y, z = ca.SX(0), ca.SX(0), ca.SX(0)
    for joint in reversed(range(6)):
        z, c, s = z + 0.3, ca.cos(q[joint]), ca.sin(q[joint])
        x, y, z = (c * x - s * y, s * x + c * y, z) if joint % 2 else (
            c * x + s * z, y, c * z - s * x
        )  # fmt: skip
    place = ca.vertcat(x, y, z)
    hand = ca.Function("hand", [q], [place, ca.jacobian(place, q)])
    found = q
    for _ in range(10):
        value, slope = hand(found)
        force = ca.solve(slope @ slope.T + 0.01 * ca.SX.eye(3), goal - value)
        found = found + slope.T @ force
    return ca.Function("whole_step", [q, goal], [found])


STEPS: Mapping[str, Callable[[Any], Any]] = {
    "implicit Euler, kinetics": _kinetics,
    "extended Kalman filter": _tracking,
    "inverse kinematics": _reaching,
}
"""By the name in `steps.STEPS`; results are one vector, matrices column by column."""
