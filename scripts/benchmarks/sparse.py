"""Sparse Jacobians and second derivatives against colouring and forward Laplacians."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import veenv
from scripts.benchmarks.functions.sparse_cases import CASES, DENSE, SparseCase
from scripts.benchmarks.machine import machine
from scripts.benchmarks.markdown_table import Row, has, header, line
from scripts.benchmarks.recipes import RECIPES, recipes
from veenv.measure.timing import interleaved
from veenv.orders.documents import write_text

COLUMNS = (
    *("case", "ratio", "true", "stored", "first", "ms"),
    *("asdex first", "asdex ms", "sparsejac ms"),
)
"""Of single Jacobians; the ratio is to asdex."""

PEERS = ("asdex", "sparsejac", "folx", "diffrax")

LARGEST = 2000
"""Most unknowns that sparsejac is given: its colouring takes minutes of more."""

POINTS = 64
"""Random points whose entries other than zero, together, are the true ones."""

DENSE_COLUMNS = ("case", "ratio", "dense ms", "jacrev ms", "jacfwd ms", "dense first", "jax first")
"""Of dense ones; the ratio is to the faster mode of JAX, whose first call is shown."""


def sparse(
    case: tuple[str, ...] = tuple(CASES),
    repeats: int = 30,
    dense: tuple[str, ...] = tuple(DENSE),
    recipe: tuple[str, ...] = tuple(RECIPES),
    solutions: int = 9,
    small: bool = False,
    out: Path | None = None,
    plot: Path | None = None,
) -> None:
    """Entries, seconds of the first call and milliseconds of the next, in float64.

    Then dense Jacobians of the same functions next to JAX's two modes, and the seconds of whole
    solutions, each in several ways. asdex, sparsejac, folx and diffrax
    are measured where they are installed; no two run at once, and the methods of a case are
    measured in turn.

    Args:
        case: names of the functions.
        repeats: calls of each method, at least; brief ones are called up to twenty times as
            often, for half a second in all. The median is shown.
        dense: names of functions whose dense Jacobians are measured.
        recipe: names of the problems that are solved in several ways.
        solutions: of each way after the first, fewer of slow ways; the median is shown.
        small: solve these for few unknowns.
        out: JSON file to write.
        plot: picture to write.
    """
    print(machine())
    print(*(f"{peer} {version(peer)};" for peer in PEERS if has(peer)))
    jax.config.update("jax_enable_x64", True)
    header(COLUMNS)
    _warm()
    rows = []
    left = [f"all by {peer} (not installed)" for peer in PEERS[:2] if not has(peer)]
    for name in case:
        rows.append(_jacobians(name, CASES[name], repeats, left))
        line(rows[-1], COLUMNS)
    if left:
        print(f"\nNot measured: {'; '.join(left)}.", flush=True)
    header(DENSE_COLUMNS)
    arrays = []
    for name in dense:
        arrays.append(_dense(name, DENSE[name], repeats))
        line(arrays[-1], DENSE_COLUMNS)
    seconds = [_laplacians(repeats), _pairs(repeats)]
    for row in seconds:
        header(tuple(row))
        line(row, tuple(row))
    solved = recipes(recipe, solutions, small=small)
    if out is not None:
        document = {
            "machine": machine(),
            "jacobians": rows,
            "dense": arrays,
            "second": seconds,
            "recipes": solved,
        }
        write_text(out, json.dumps(document, indent=1) + "\n")
    if plot is not None:
        _plot(rows, plot)


def _warm() -> None:
    """Imports and what is done once in a process: the first case would pay for all."""
    x = jnp.ones(3)

    def fun(x: Any) -> Any:
        return jnp.sin(x[np.array([2, 0, 1])]) * x

    jax.block_until_ready(jax.jit(veenv.jacve(fun, sparse_representation=True))(x))
    if has("asdex"):
        asdex = importlib.import_module("asdex")
        jax.block_until_ready(jax.jit(asdex.jacobian(fun, x))(x))


def _jacobians(name: str, case: SparseCase, repeats: int, left: list[str]) -> Row:
    """A row; `left` takes what was not measured, and why."""
    fun, x = case.fun, _point(case)
    jax.eval_shape(fun, x)  # JAX remembers what it traced first: whoever comes next is faster
    ours, first, jacobian = _first(lambda: veenv.jacve(fun, sparse_representation=True), x)
    row: Row = {"case": name, "stored": jacobian.nse, "first": first}
    points = np.random.default_rng(1).normal(size=(POINTS, case.size))
    values = [jacobian.values(), *(ours(jnp.asarray(p)).values() for p in points)]
    row["true"] = int((np.stack(values) != 0).any(axis=0).sum())
    methods = {"ms": ours}
    if has("asdex"):
        asdex = importlib.import_module("asdex")
        try:
            methods["asdex ms"], row["asdex first"], _ = _first(lambda: asdex.jacobian(fun, x), x)
        except NotImplementedError:  # a primitive that it has no pattern of
            left.append(f"{name} by asdex (it has no pattern)")
    if has("sparsejac") and case.size > LARGEST:
        left.append(f"{name} by sparsejac (of more than {LARGEST:,} unknowns)")
    elif has("sparsejac"):
        peer = importlib.import_module("sparsejac")
        pattern = _ones(jacobian)  # it is given: sparsejac does not find it
        for way in ("jacrev", "jacfwd"):
            by = getattr(peer, way)
            methods[way], _, _ = _first(lambda by=by: by(fun, pattern), x)
    row |= _in_turn(methods, (x,), repeats)
    modes = [row.pop(way) for way in ("jacrev", "jacfwd") if way in row]
    row |= {"sparsejac ms": min(modes)} if modes else {}
    if "asdex ms" in row:
        row["ratio"] = f"{row['ms'] / row['asdex ms']:.2f}"
    return row


def _dense(name: str, case: SparseCase, repeats: int) -> Row:
    """A Jacobian as an array, next to JAX's."""
    fun, x = case.fun, _point(case)
    jax.eval_shape(fun, x)
    methods, first = {}, {}
    for way, make in (("dense", veenv.jacve), ("jacrev", jax.jacrev), ("jacfwd", jax.jacfwd)):
        methods[f"{way} ms"], first[way], _ = _first(lambda make=make: make(fun), x)
    row: Row = {"case": name} | _in_turn(methods, (x,), max(1, repeats // 10))
    faster = min(("jacrev", "jacfwd"), key=lambda way: row[f"{way} ms"])
    row |= {"dense first": first["dense"], "jax first": first[faster]}
    row["ratio"] = f"{row['dense ms'] / row[f'{faster} ms']:.2f}"
    return row


def _point(case: SparseCase) -> Any:
    return jnp.asarray(np.random.default_rng(0).uniform(0.5, 1.5, case.size))


def _ones(jacobian: Any) -> Any:
    bcoo = jacobian.to_bcoo()
    return type(bcoo)((jnp.ones_like(bcoo.data), bcoo.indices), shape=bcoo.shape)


def _laplacians(repeats: int) -> Row:
    rng = np.random.default_rng(0)
    weights = [jnp.asarray(rng.normal(size=s) / 5) for s in ((30, 64), (64, 64), (64, 1))]

    def mlp(x: Any) -> Any:
        for w in weights[:-1]:
            x = jnp.tanh(x @ w)
        return (x @ weights[-1])[0]

    xs = jnp.asarray(rng.normal(size=(256, 30)))
    methods = {"ms": jax.jit(jax.vmap(veenv.laplacian(mlp)))}
    methods["jax.hessian ms"] = jax.jit(jax.vmap(lambda x: jnp.trace(jax.hessian(mlp)(x))))
    methods |= _folx(mlp, batch=True)
    return {"case": "Laplacian of an MLP, batch 256"} | _in_turn(methods, (xs,), repeats)


def _pairs(repeats: int) -> Row:
    first, second = np.triu_indices(32, 1)

    def potential(x: Any) -> Any:
        d = x.reshape(-1, 3)
        d = d[first] - d[second]
        squares = jnp.sum(d * d, axis=1)
        return jnp.sum(jnp.exp(-squares) + 1 / jnp.sqrt(squares))

    x = jnp.asarray(np.random.default_rng(0).normal(size=96))
    methods = {
        "Laplacian ms": jax.jit(veenv.laplacian(potential)),
        "Hessian ms": jax.jit(veenv.hessian(potential)),
        "jax.hessian ms": jax.jit(jax.hessian(potential)),
    }
    methods |= _folx(potential, batch=False)
    return {"case": "pair potential, 96"} | _in_turn(methods, (x,), repeats)


def _folx(fun: Callable[..., Any], *, batch: bool) -> dict[str, Any]:
    if not has("folx"):
        return {}
    folx = importlib.import_module("folx")
    one = lambda x: folx.forward_laplacian(fun)(x).laplacian  # noqa: E731
    return {"folx ms": jax.jit(jax.vmap(one) if batch else one)}


def _first(make: Callable[[], Any], x: Any) -> tuple[Any, float, Any]:
    """The compiled function, the seconds until its first result, and that."""
    start = time.perf_counter()
    compiled = jax.jit(make())
    result = jax.block_until_ready(compiled(x))
    return compiled, round(time.perf_counter() - start, 3), result


def _in_turn(methods: dict[str, Any], args: tuple[Any, ...], repeats: int) -> Row:
    """Median milliseconds of each method, all called once in each round."""
    times = interleaved(methods, args, 20 * repeats, seconds=0.5, fewest=repeats)
    return {name: round(1e3 * float(np.median(t)), 4) for name, t in times.items()}


def _plot(rows: list[Row], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    ax = figure.subplots()
    places = np.arange(len(rows))
    for n, (key, label) in enumerate((("ms", "veenv"), ("asdex ms", "asdex"))):
        ax.barh(places + 0.4 * n, [row.get(key, np.nan) for row in rows], 0.4, label=label)
    ax.set(xscale="log", xlabel="milliseconds per sparse Jacobian")
    ax.set_yticks(places + 0.2, [row["case"] for row in rows])
    ax.invert_yaxis()
    ax.legend()
    figure.savefig(path)
