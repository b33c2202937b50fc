"""One kernel against XLA: speed, what the order decides, and what compiling takes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

import veenv
from scripts.benchmarks.alone import times_alone
from scripts.benchmarks.cases import Case, find, orders_of, random_case, singles
from scripts.benchmarks.generated_code import casadi_times
from scripts.benchmarks.programs import MODES, Timings, compiled
from scripts.benchmarks.tables import Table, spearman
from veenv import make_graph
from veenv.kernel import primitive
from veenv.kernel.fusing import trace_point
from veenv.kernel.scalar_program import ScalarProgram
from veenv.measure.timing import machine
from veenv.orders.documents import write_text

TASKS = tuple(
    "RoeFlux_1d RobotArm_6DOF RoeFlux_3d KerrMetric KerrMetric_Jacobian DoublePendulum_RK4 "
    "VanDerPol_RK4 BlackScholes_Jacobian HumanHeartDipole PropaneCombustion".split()
)
ORDERS = "best-operations", "reverse"
SPEED = "function", "batch", "method", "ms", "ratio (10 … 90 %)", "operations", "work"
DECISIONS = (
    *("function", "operations", "reverse's", "of its work", "of its time, code alone"),
    "called by JAX",
)
CORRELATIONS = (
    *("function", "orders", "Spearman with time: operations", "work"),
    *("least work, of reverse's", "its time"),
)
COMPILATIONS = "equations", "kernel: trace + compile, s", "ns a point", "jacrev", "ns a point"
Row = dict[str, Any]
Part = Literal["speed", "orders", "compile", "casadi"]


def kernel(
    parts: tuple[Part, ...] = ("speed", "orders", "compile"),
    task: tuple[str, ...] = TASKS,
    batch: tuple[int, ...] = (1, 4096, 65536),
    repeats: int = 25,
    seconds: float = 10.0,
    turn: float = 0.02,
    num_orders: int = 50,
    orders_batch: int = 16384,
    equations: tuple[int, ...] = (500, 3000),
    jacrev_up_to: int = 0,
    figures: Path = Path("docs/kernel.json"),
) -> Iterator[Table]:
    """Tables of the Jacobian as one kernel, by XLA, and by JAX's two modes; float32, interleaved.

    Ratios are medians, over the repeats, of a method's time to that of the faster of
    vmap(jacfwd) and vmap(jacrev) in the same repeat. `writing` is a program that only fills as
    many arrays as the Jacobian has: the bound set by memory.

    Args:
        parts: what is measured: `speed` of tasks; `orders`: what the order decides, for each task
            the order with the fewest operations against reverse, and of four
            functions the correlation over many orders; what it takes to `compile`; `casadi`: the C
            that CasADi generates, on one core, where CasADi and gcc are installed.
        task: tasks of the tables of speed and orders.
        batch: batch sizes of the table of speed.
        repeats: measurements of each method, at most; of the part `orders` the least counts.
        seconds: time after which the repeats for one function and batch end (at least five).
        turn: seconds for which a method is called again and again in its turn, so that it has the
            memory that it had before; in short turns it finds that of the others in the caches.
        num_orders: how many orders of a function are timed, to compare their work with their time.
        orders_batch: batch of the part `orders`, called by JAX: enough points for all cores, and
            few enough that what is written stays in the cache. The code alone runs on one core.
        equations: sizes of the random functions of which tracing and compiling is timed.
        jacrev_up_to: the largest of them that jacrev is compiled for too (a minute for 500).
        figures: file of all figures; of parts that are not measured now it keeps what it has.
    """
    known = json.loads(figures.read_text(encoding="utf-8")) if figures.exists() else {}
    found: dict[str, Any] = {"speed": [], "orders": [], "compile": [], **known}
    found["machine"] = machine()
    for part in parts:
        found[part] = rows = []
        if part == "speed":
            yield (table := Table(*SPEED))
            for name, size in itertools.product(task, batch):
                rows += _speed(table, find(name), size, repeats, seconds, turn)
        elif part == "orders":
            yield (table := Table(*DECISIONS))
            rows += [_decision(table, find(name), orders_batch, repeats) for name in task]
            yield (table := Table(*CORRELATIONS))
            cases = *map(find, TASKS[:2]), random_case(1, 300), random_case(2, 300)
            rows += [_correlation(table, case, num_orders, repeats) for case in cases]
        elif part == "compile":
            yield (table := Table(*COMPILATIONS))
            rows += [_compilation(table, size, size <= jacrev_up_to) for size in equations]
        else:
            yield (
                table := Table("function", "kernel, ns a point, one core", "CasADi's C", "ratio")
            )
            for case in map(find, TASKS[:2]):
                (ids,) = orders_of(case, ORDERS[:1]).values()
                args = singles(case, max(batch))
                found_by = casadi_times(case, _fused(case, ids), args, repeats, turn)
                keys = "kernel_ns", "casadi_ns", "ratio"
                rows.append({"function": case.name} | dict(zip(keys, found_by, strict=True)))
                table.add(case.name, *found_by[:2], f"**{found_by[2]:.2f}**")
        write_text(figures, json.dumps(found, indent=1) + "\n")


def _traced(case: Case, order: Any) -> tuple[ScalarProgram, Any]:
    """The scalar program of a case's Jacobian in float32, and its kernel for a batch.

    The kernel returns what it writes alone: no constant blocks, no copies of arguments.
    """
    argnums = case.argnums if isinstance(case.argnums, tuple) else (case.argnums,)
    jacobian = veenv.jacve(case.fun, order, case.argnums, kernel="xla", pin=False)
    point = trace_point(jacobian, case.single().args, {}, argnums)
    program = point.program()
    kernel = primitive.Fused(program, point.xla(program.written()))
    return program, jax.vmap(lambda *args: primitive.call(kernel, *jax.tree.leaves(args)))


def _fused(case: Case, order: Any) -> Any:
    """The Jacobian of a batch as one kernel."""
    return jax.vmap(veenv.jacve(case.fun, order, case.argnums, kernel="fused"))


def _speed(
    table: Table, case: Case, batch: int, repeats: int, seconds: float, turn: float
) -> list[Row]:
    args = singles(case, batch)
    methods = {mode: jax.vmap(make(case.fun, case.argnums)) for mode, make in MODES.items()}
    programs = {}
    for name, ids in orders_of(case, ORDERS).items():
        programs[f"kernel, {name}"] = _traced(case, ids)[0]
        methods[f"kernel, {name}"] = _fused(case, ids)
        methods[f"XLA, {name}"] = jax.vmap(veenv.jacve(case.fun, ids, case.argnums, kernel="xla"))
    shapes = [leaf.shape for leaf in next(iter(programs.values())).outputs]
    first = jax.tree.leaves(args)[0].reshape(batch, -1)[:, :1]
    methods["writing"] = lambda *_: [
        (first * float(k)).reshape(batch, *(1 for _ in s)) + np.zeros(s, np.float32)
        for k, s in enumerate(shapes)
    ]
    timed = Timings(compiled(methods, args), args, seconds, repeats, turn)
    rows = []
    for method in methods:
        low, ratio, high = np.quantile(timed.ratios(method), [0.1, 0.5, 0.9]).tolist()
        row = {"function": case.name, "batch": batch, "method": method, "ratio": ratio}
        row |= {"low": low, "high": high, "ms": timed.ms(method)}
        if method in programs:
            row |= {"operations": programs[method].size, "work": programs[method].work}
        rows.append(row)
        counts = row.get("operations"), row.get("work")
        table.add(case.name, batch, method, row["ms"], timed.spread(method), *counts)
    return rows


def _compilation(table: Table, equations: int, with_jacrev: bool) -> Row:
    case = random_case(0, equations)
    args = singles(case, 65536)
    row: Row = {"equations": equations}
    methods = {"kernel": _fused(case, "reverse")}
    if with_jacrev:
        methods["jacrev"] = jax.vmap(jax.jacrev(case.fun, case.argnums))
    cells = []
    for name, program in compiled(methods, args).items():
        row[f"{name}_seconds"] = program.compile
        row[f"{name}_ns"] = Timings({name: program}, args, 20.0, 10).seconds(name) * 1e9 / 65536
        cells += [f"{program.compile:.2f}", f"{row[f'{name}_ns']:.1f}"]
    table.add(equations, *cells, *[""] * (4 - len(cells)))
    return row


def _decision(table: Table, case: Case, batch: int, repeats: int) -> Row:
    """The cheapest order by operations against reverse: counts, work and time."""
    args = singles(case, batch)
    graph = make_graph(case.fun, case.argnums)(*case.args)
    (least,) = orders_of(case, ORDERS[:1]).values()
    orders = {"reverse": graph.reverse(), "least": least}
    traced = {name: _traced(case, ids) for name, ids in orders.items()}
    programs = {name: program for name, (program, _) in traced.items()}
    runs = compiled({name: kernel for name, (_, kernel) in traced.items()}, args)
    times = {n: t.min() for n, t in Timings(runs, args, 20.0, 2 * repeats).times.items()}
    alone = times_alone(case, programs, 40 * repeats, 10.0)
    counts = {name: graph.cost(ids, "operations") for name, ids in orders.items()}
    row: Row = {"function": case.name, "order": "least operations", "ids": list(least)}
    row |= {"reverse": counts["reverse"], "operations": counts["least"]}
    for key, of in (("alone", alone), ("time", times)):
        row[f"{key}_ratio"] = float(of["least"] / of["reverse"])
    row["work_ratio"] = programs["least"].work / programs["reverse"].work
    row["alone_ns"] = alone["least"]
    ratios = f"{row['work_ratio']:.2f}", f"**{row['alone_ratio']:.2f}**", f"{row['time_ratio']:.2f}"
    table.add(case.name, row["operations"], row["reverse"], *ratios)
    return row


def _correlation(table: Table, case: Case, count: int, repeats: int) -> Row:
    """Spearman's correlation of times with `operations`, and with the whole program's work.

    `operations` is the price of the elimination alone; the work is that of the whole program, in
    which a product of the elimination may be one that the function or its partials form anyway.
    Times are those of the machine code alone, the least of all rounds, as what disturbs it only
    adds to it.
    """
    orders = _some_orders(case, count)
    graph = make_graph(case.fun, case.argnums)(*case.args)
    programs = {name: _traced(case, ids)[0] for name, ids in orders.items()}
    works = {name: program.work for name, program in programs.items()}
    counts = {name: graph.cost(ids, "operations") for name, ids in orders.items()}
    least = {n: 1e-9 * t for n, t in times_alone(case, programs, 20 * repeats, 60.0).items()}
    row: Row = {"function": case.name, "orders": len(orders)}
    for name, of in (("operations", counts), ("work", works)):
        row[name] = spearman([of[n] for n in orders], [least[n] for n in orders])
    reverse = next(name for name in orders if "reverse" in name)
    row["lightest"] = lightest = min(works, key=works.__getitem__)
    row["lightest_work_ratio"] = works[lightest] / works[reverse]
    row["lightest_time_ratio"] = least[lightest] / least[reverse]
    shown = "operations", "work", "lightest_work_ratio", "lightest_time_ratio"
    table.add(case.name, len(orders), *(f"{row[key]:.2f}" for key in shown))
    return row | {"counts": counts, "works": works, "seconds": least}


def _some_orders(case: Case, count: int) -> dict[str, Sequence[int]]:
    """Classical orders, the best shipped one, and some with vertices moved elsewhere."""
    rng = np.random.default_rng(0)
    known = orders_of(case, ("best-executed", "reverse", "forward", "markowitz"))
    found: dict[str, Sequence[int]] = dict(known)
    starts = list(known.values())
    for k in range(count - len(known)):
        order = list(starts[k % len(starts)])
        for _ in range(int(2 ** rng.uniform(0, np.log2(max(2, len(order) // 2))))):
            order.insert(int(rng.integers(len(order))), order.pop(int(rng.integers(len(order)))))
        found[f"perturbed {k}"] = order
    return found
