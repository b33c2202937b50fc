"""Builds the parts of a report that are text, tables and bars: HTML without scripts."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from html import escape

from veenv import tasks
from veenv.graph.graph import COST_MODELS, counts_additions
from veenv.graph.playback import PlayedElimination
from veenv.measure.proof import Proof
from veenv.measure.report.source import CLASSICAL, Subject
from veenv.measure.timing import JAX_MODES, KERNEL, OURS, SAME, Timing, machine
from veenv.orders.shipped import proved_bound


def sections(
    subject: Subject,
    games: Mapping[str, Sequence[PlayedElimination]],
    proof: Proof,
    bars: Sequence[Timing],
    missing: Sequence[str],
    batch: int,
) -> dict[str, str]:
    """Returns the parts of the page, by the name of their place in it."""
    totals = {name: sum(s.cost for s in steps) for name, steps in games.items()}
    task = subject.task
    return {
        "title": escape(task.name),
        "description": escape(task.description),
        "source": f"Source: {escape(task.source)}" if task.source else "",
        "headline": _headline(subject, totals, proof, bars),
        "facts": _facts(subject),
        "totals": _totals(subject, totals),
        "proof": _proof(proof),
        "times": _times(bars, missing, batch),
        "order": escape(", ".join(map(str, subject.ids()["this order"]))),
        "code": escape(code(subject)),
        "curve": "" if subject.rows else "hidden",
        "unit": _unit(subject),
    }


def _unit(subject: Subject) -> str:
    return "operations" if counts_additions(subject.cost) else "multiplications"


def _headline(
    subject: Subject, totals: Mapping[str, int], proof: Proof, bars: Sequence[Timing]
) -> str:
    """Builds the figures in large print."""
    best = min(CLASSICAL, key=lambda name: totals[name])
    total = totals["this order"]
    ratio = f"{total / totals[best]:.3f}" if totals[best] else "–"
    cards = [
        (f"{total:,}", _unit(subject), _optimal(subject, total)),
        (ratio, f"of {best} ({totals[best]:,})", "the cheapest classical order"),
        *_speed(bars),
        (
            "right" if proof.passed else "WRONG",
            f"largest relative error {proof.error:.1e}".replace("-", "\u2011"),
            f"{proof.entries} entries at {proof.points} points, float64",
        ),
    ]
    return "".join(
        f"<li><strong>{escape(a)}</strong> <span>{escape(b)}</span> <small>{escape(c)}</small></li>"
        for a, b, c in cards
    )


def _speed(bars: Sequence[Timing]) -> list[tuple[str, str, str]]:
    """Builds the times in large print: XLA against XLA, and one kernel against XLA."""
    theirs, ours = _fastest(bars), f"{OURS}, {KERNEL}"
    hows = {OURS: "both as XLA compiles them", ours: f"one kernel against XLA{_as_well(bars)}"}
    return [
        (f"{bar.median / theirs.median:.2f}", f"of the time of {theirs.method}", hows[bar.method])
        for bar in bars
        if bar.method in hows and theirs is not None
    ]


def _as_well(bars: Sequence[Timing]) -> str:
    """Names the kernel of a JAX mode that takes no longer than the order's; empty without one."""
    timed, theirs = {bar.method: bar for bar in bars}, _fastest(bars)
    ours = timed.get(f"{OURS}, {KERNEL}")
    modes = [timed[name] for mode in JAX_MODES if (name := f"{mode}, {KERNEL}") in timed]
    best = min(modes, key=lambda bar: bar.median, default=None)
    if ours is None or best is None or theirs is None or best.median > SAME * ours.median:
        return ""
    name = best.method.partition(",")[0]
    return f"; {name} as one kernel takes {best.median / theirs.median:.2f}"


def _fastest(bars: Sequence[Timing]) -> Timing | None:
    """Returns the faster of JAX's modes as compiled by XLA; None where neither was timed."""
    modes = [bar for bar in bars if bar.method in JAX_MODES]
    return min(modes, key=lambda bar: bar.median, default=None)


def _optimal(subject: Subject, total: int) -> str:
    """Returns the package's proof of a cost; bounds in the order's file are not trusted."""
    bound = proved_bound(subject.graph, subject.cost)
    if total == bound:
        return "proved optimal"
    return f"no order takes less than {bound:,}" if bound else "for the whole Jacobian"


def _facts(subject: Subject) -> str:
    """Builds the lines of a definition list."""
    graph = subject.graph
    facts = {
        "graph": f"{graph.num_inputs} inputs, {graph.num_outputs} outputs, "
        f"{len(graph.eliminable)} vertices to eliminate, {len(graph.edges)} edges",
        "cost model": subject.cost,
        "found by": subject.order.found_by or "not recorded",
        **subject.facts,
        "machine of this report": machine(),
    }
    return "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items())


def _totals(subject: Subject, totals: Mapping[str, int]) -> str:
    """Builds the rows of the table of counts, with a bar each."""
    most, ids = max([1, *totals.values()]), subject.ids()
    rows = []
    for name, total in totals.items():
        counts = [subject.graph.cost(ids[name], cost) for cost in COST_MODELS]
        cells = "".join(f"<td>{count:,}</td>" for count in counts)
        rows.append(
            f'<tr><th scope="row">{escape(name)}</th>'
            f'<td class="bar">{_bar(total / most, name == "this order")}</td>{cells}</tr>'
        )
    return "".join(rows)


def _bar(share: float, ours: bool, light: bool = False) -> str:
    kind = ("ours" if ours else "theirs") + (" light" if light else "")
    return f'<span class="{kind}" style="width:{100 * share:.1f}%"></span>'


def _proof(proof: Proof) -> str:
    against = " and ".join(
        f"jax.{name} (largest relative error {error:.1e})" for name, error in proof.errors.items()
    )
    noise = "" if proof.noise is None else f" JAX's two modes differ by {proof.noise:.1e}."
    tried = "" if proof.tried == proof.points else f" of {proof.tried} tried"
    lines = [
        f"veenv.jacve under this order against {against or 'nothing'}, in float64, at "
        f"{proof.points} points{tried}: {proof.entries} entries compared.{noise}",
        *proof.problems,
        *(f"Not compared, as JAX gives nothing finite: {block}" for block in proof.missing),
    ]
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _times(bars: Sequence[Timing], missing: Sequence[str], batch: int) -> str:
    """Builds the table of times; empty where nothing was timed."""
    if not bars:
        return "<p>Nothing was timed (<code>--rounds 0</code>).</p>"
    longest, reference = max(bar.median for bar in bars), _fastest(bars)
    rows = []
    for bar in bars:
        ratio = f"{bar.median / reference.median:.2f}" if reference else "–"
        way, _, kernel = bar.method.partition(", ")
        rows.append(
            f'<tr><th scope="row">{escape(way)}, {kernel or "XLA"}</th>'
            f'<td class="bar">{_bar(bar.median / longest, way == OURS, bool(kernel))}'
            f"</td><td>{1e3 * bar.median:,.3g}</td><td>{ratio}</td>"
            f"<td>{1e3 * bar.low:,.3g} … {1e3 * bar.high:,.3g}</td></tr>"
        )
    named = reference.method if reference else "JAX"
    notes = "".join(f"<p>{escape(text)}</p>" for text in missing)
    return (
        f"<p>One call for a batch of {batch:,} points, all ways interleaved on the machine named "
        "below, in JAX's default precision.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Times"><table>'
        '<thead><tr><th scope="col">way</th><th scope="col" class="bar">time</th>'
        f'<th scope="col">ms</th><th scope="col">ratio to {named}, XLA</th>'
        '<th scope="col">10 … 90 %, ms</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>{notes}"
    )


def code(subject: Subject) -> str:
    """Returns a program that differentiates the function under the order and checks it by JAX."""
    ids = ", ".join(map(str, subject.ids()["this order"]))
    order = "\n".join(textwrap.wrap(ids, 84, initial_indent="    ", subsequent_indent="    "))
    task = subject.task
    if subject.imports is None and task.name in tasks.list():
        function = (
            f'task = veenv.tasks.get("{task.name}")\nf, point = task.fun, task.example_args()'
        )
    elif subject.imports is None:
        function = "f, point = …, …  # the function, and the arguments to differentiate it at"
    else:
        function = subject.imports
    return f"""\
import jax
import veenv

{function}
order = [
{order},
]
jacobian = jax.jit(veenv.jacve(f, order, argnums={task.argnums}))
blocks = jacobian(*point)  # what jax.jacrev(f, argnums)(*point) gives
"""
