"""Reports the result of a run: the table of counts, and the proof that the order is right."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from veenv.graph.graph import CostModel, Graph, counts_additions
from veenv.measure.proof import Proof
from veenv.orders.shipped import best_for, proved_bound


def verdict(proof: Proof) -> list[str]:
    """Says how an order's Jacobian compares with those of JAX: a line, and one for each gap."""
    modes = " and ".join(f"jax.{name}" for name in proof.errors) or "jax.jacrev"
    judgement = "right" if proof.passed else f"WRONG: more than {proof.tolerance:.0e}"
    if not proof.entries and proof.missing:
        return [f"veenv.jacve against {modes}: {proof.problems[-1]}"]
    return [
        f"veenv.jacve against {modes}, float64, {points_of(proof)}, {proof.entries} entries: "
        f"largest relative error {proof.error:.1e} ({judgement})",
        *(f"not compared, as JAX gives nothing finite: {block}" for block in proof.missing),
    ]


def points_of(proof: Proof) -> str:
    """Says how many points were compared, and tried where those are more."""
    tried = "" if proof.tried == proof.points else f" (of {proof.tried} tried)"
    return f"{proof.points} points{tried}"


def optimality(graph: Graph, cost: int, cost_model: CostModel, bound: int = 0) -> str:
    """Says whether a cost is proved the least, by the given bound or that of the shipped orders."""
    bound = max(bound, proved_bound(graph, cost_model))
    if cost == bound:
        return "proven optimal"
    said = f"no order costs less than {bound:,}" if bound else "not proven optimal"
    with contextlib.suppress(ValueError):  # no order of this graph is shipped
        known = best_for(graph, cost_model).counts[cost_model]
        if known < cost:
            said += f', and order="best" costs {known:,}'
    return said


def result_table(
    classical: Mapping[str, int],
    best: int | None,
    label: str = "PPO",
    polished: int | None = None,
    cost: CostModel = "multiplications",
) -> str:
    """The costs of the classical orders and of the best one found, one line each.

    There is none where no episode was played; what a local search made of it has its own line.
    """
    reference = min(classical.values())
    rows = [*classical.items()]
    if best is not None:
        rows.append((f"best found ({label})", best))
    if polished is not None:
        rows.append((f"polished ({label} + search)", polished))
    width = max(len(name) for name, _ in rows)
    unit = "operations" if counts_additions(cost) else "multiplications"
    lines = [f"{'order':<{width}}  {unit:>15}  {'ratio to best classical':>23}"]
    for name, count in rows:
        ratio = f"{count / reference:.3f}" if reference else "-"
        lines.append(f"{name:<{width}}  {count:>15,}  {ratio:>23}")
    searched = [count for _, count in rows[len(classical) :]]
    if searched and min(searched) > reference:
        name = min(classical, key=classical.__getitem__)
        lines.append(f'{name} takes fewer: use order="{name.lower()}", or search for longer')
    return "\n".join(lines)
