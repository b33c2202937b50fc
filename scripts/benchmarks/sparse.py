"""Sparse Jacobians beside colouring, in six writings, and solutions with them."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

import veenv
from scripts.benchmarks.functions.sparse_cases import CASES, DENSE, SparseCase
from scripts.benchmarks.functions.writings import PROBLEMS, scaled, writings
from scripts.benchmarks.programs import MODES
from scripts.benchmarks.solutions import TASKS, solutions
from scripts.benchmarks.tables import Table, has
from veenv.measure.timing import interleaved

Part = Literal["sparse", "dense", "second", "solutions", "writings"]
PEERS = ("asdex", "sparsejac", "folx", "diffrax")
LARGEST = 2000
"""Most unknowns that sparsejac is given: its colouring takes minutes of more."""
POINTS = 64
"""Random points whose entries other than zero, together, are the true ones."""


def sparse(
    parts: tuple[Part, ...] = ("sparse", "dense", "second", "solutions"),
    case: tuple[str, ...] = (),
    repeats: int = 30,
    scale: float = 1.0,
) -> Iterator[Table]:
    """Entries, seconds of the first call and milliseconds of the next, in float64.

    asdex, sparsejac, folx and diffrax are measured where they are installed; the methods of a case
    are measured in turn.

    Args:
        parts: `sparse` Jacobians, with ratios to asdex; `dense` Jacobians of such functions beside
            JAX's two modes, with ratios to the faster one; `second` derivatives; the seconds of
            whole `solutions`; and Jacobians of one function in six `writings`, with ratios to the
            fastest: "over" of milliseconds, "first over" of the first call's seconds.
        case: names of functions or problems, or how they begin; all by default.
        repeats: calls of each method, at least; brief ones are called up to twenty times as
            often, for half a second in all. The median is shown.
        scale: of the sizes of `writings`, by 0.1 a tenth; below 1 `solutions` have few unknowns.
    """
    print(*(f"{peer} {version(peer)};" for peer in PEERS if has(peer)))
    jax.config.update("jax_enable_x64", True)
    warm()

    def wanted(names: Iterable[str]) -> list[str]:
        return [name for name in names if name.startswith(case or "")]

    for part in parts:
        if part == "sparse":
            yield from _sparse(wanted(CASES), repeats)
        elif part == "dense":
            yield from _dense(wanted(DENSE), repeats)
        elif part == "second":
            for name, methods, args in _second():
                times = in_turn(methods, args, repeats)
                yield (table := Table("case", *times))
                table.add(name, *map(str, times.values()))
        elif part == "solutions":
            yield from solutions(wanted(TASKS), max(1, repeats // 3), small=scale < 1)
        else:
            yield from _writings(wanted(PROBLEMS), scale, repeats)


def _sparse(names: Sequence[str], repeats: int) -> Iterator[Table]:
    columns = ("case", "ratio", "true", "stored", "first", "ms")
    table = Table(*columns, "asdex first", "asdex ms", "sparsejac ms")
    yield table
    left = [f"all by {peer} (not installed)" for peer in PEERS[:2] if not has(peer)]
    for name in names:
        row = _jacobians(name, CASES[name], repeats, left)
        table.add(*(row.get(column, "–") for column in table.columns))
    if left:
        print(f"\nNot measured: {'; '.join(left)}.", flush=True)


def _dense(names: Sequence[str], repeats: int) -> Iterator[Table]:
    columns = "case", "ratio", "dense ms", "jacrev ms", "jacfwd ms", "dense first", "jax first"
    yield (table := Table(*columns))
    for name in names:
        fun, x = DENSE[name].fun, _point(DENSE[name])
        jax.eval_shape(fun, x)
        methods = {"dense": veenv.jacve(fun), **{mode: make(fun) for mode, make in MODES.items()}}
        runs, first = ready(methods, x)
        ms = in_turn(runs, (x,), max(1, repeats // 10))
        faster = min(MODES, key=lambda mode: ms[mode])
        times = *(ms[m] for m in ("dense", "jacrev", "jacfwd")), first["dense"], first[faster]
        table.add(name, f"{ms['dense'] / ms[faster]:.2f}", *map(str, times))


def _writings(names: Sequence[str], scale: float, repeats: int) -> Iterator[Table]:
    columns = "problem", "writing", "stored", "equations", "ms", "over", "first", "first over"
    yield (table := Table(*columns, "jacfwd's"))
    for name in names:
        problem = scaled(name, scale)
        x = jnp.asarray(np.random.default_rng(0).uniform(0.1, 1, problem.size))
        runs, first, modes = {}, {}, {}
        for writing, fun in writings(problem).items():
            jax.eval_shape(fun, x)  # JAX remembers what it traced first
            modes[writing] = ready({writing: jax.jacfwd(fun)}, x)[1][writing]
            method = {writing: veenv.jacve(fun, sparse_representation=True)}
            for known, new in zip((runs, first), ready(method, x), strict=True):
                known |= new
        ms = in_turn(runs, (x,), repeats)
        for writing, run in runs.items():
            over, later = ms[writing] / min(ms.values()), first[writing] / min(first.values())
            equations = len(jax.make_jaxpr(run)(x).eqns[0].params["jaxpr"].eqns)
            numbers = run(x).nse, equations, ms[writing], round(over, 2), first[writing]
            table.add(name, writing, *map(str, numbers), f"{later:.2f}", str(modes[writing]))


def warm() -> None:
    """Imports and what is done once in a process: the first case would pay for all."""
    x = jnp.ones(3)

    def fun(x: Any) -> Any:
        return jnp.sin(x[np.array([2, 0, 1])]) * x

    methods = {"": veenv.jacve(fun, sparse_representation=True)}
    if has("asdex"):
        methods["asdex"] = importlib.import_module("asdex").jacobian(fun, x)
    ready(methods, x)


def _jacobians(name: str, case: SparseCase, repeats: int, left: list[str]) -> dict[str, Any]:
    """A row; `left` takes what was not measured, and why."""
    fun, x = case.fun, _point(case)
    jax.eval_shape(fun, x)  # JAX remembers what it traced first: whoever comes next is faster
    methods, first = ready({"ms": veenv.jacve(fun, sparse_representation=True)}, x)
    ours = methods["ms"]
    jacobian = ours(x)
    points = np.random.default_rng(1).normal(size=(POINTS, case.size))
    values = [jacobian.values(), *(ours(jnp.asarray(p)).values() for p in points)]
    true = int((np.stack(values) != 0).any(axis=0).sum())
    row = {"case": name, "true": str(true), "stored": str(jacobian.nse), "first": str(first["ms"])}
    if has("asdex"):
        asdex = importlib.import_module("asdex")
        try:
            began = time.perf_counter()
            coloured = asdex.jacobian(fun, x)
            took = time.perf_counter() - began
            runs, seconds = ready({"asdex ms": coloured}, x)
            methods |= runs
            row["asdex first"] = str(round(took + seconds["asdex ms"], 3))
        except NotImplementedError:  # a primitive that it has no pattern of
            left.append(f"{name} by asdex (it has no pattern)")
    if has("sparsejac") and case.size > LARGEST:
        left.append(f"{name} by sparsejac (of more than {LARGEST:,} unknowns)")
    elif has("sparsejac"):
        peer = importlib.import_module("sparsejac")
        bcoo = jacobian.to_bcoo()  # its pattern is given: sparsejac does not find it
        pattern = type(bcoo)((jnp.ones_like(bcoo.data), bcoo.indices), shape=bcoo.shape)
        methods |= ready({mode: getattr(peer, mode)(fun, pattern) for mode in MODES}, x)[0]
    times = in_turn(methods, (x,), repeats)
    row |= {key: str(ms) for key, ms in times.items()}
    if "jacrev" in times:
        row["sparsejac ms"] = str(min(times["jacrev"], times["jacfwd"]))
    if "asdex ms" in times:
        row["ratio"] = f"{times['ms'] / times['asdex ms']:.2f}"
    return row


def _point(case: SparseCase) -> Any:
    return jnp.asarray(np.random.default_rng(0).uniform(0.5, 1.5, case.size))


def _second() -> Iterator[tuple[str, dict[str, Callable[..., Any]], tuple[Any, ...]]]:
    """Name, ways and arguments of Laplacians and Hessians."""
    rng = np.random.default_rng(0)
    weights = [jnp.asarray(rng.normal(size=s) / 5) for s in ((30, 64), (64, 64), (64, 1))]

    def mlp(x: Any) -> Any:
        for w in weights[:-1]:
            x = jnp.tanh(x @ w)
        return (x @ weights[-1])[0]

    xs = jnp.asarray(rng.normal(size=(256, 30)))
    methods: dict[str, Callable[..., Any]] = {"ms": veenv.laplacian(mlp)}
    methods["jax.hessian ms"] = lambda x: jnp.trace(jax.hessian(mlp)(x))
    methods |= _folx(mlp)
    batched = {name: jax.jit(jax.vmap(method)) for name, method in methods.items()}
    yield "Laplacian of an MLP, batch 256", batched, (xs,)
    first, second = np.triu_indices(32, 1)

    def potential(x: Any) -> Any:
        d = x.reshape(-1, 3)
        d = d[first] - d[second]
        squares = jnp.sum(d * d, axis=1)
        return jnp.sum(jnp.exp(-squares) + 1 / jnp.sqrt(squares))

    x = jnp.asarray(np.random.default_rng(0).normal(size=96))
    methods = {
        "Laplacian ms": veenv.laplacian(potential),
        "Hessian ms": veenv.hessian(potential),
        "jax.hessian ms": jax.hessian(potential),
    } | _folx(potential)
    yield "pair potential, 96", {n: jax.jit(f) for n, f in methods.items()}, (x,)


def _folx(fun: Callable[..., Any]) -> dict[str, Any]:
    if not has("folx"):
        return {}
    folx = importlib.import_module("folx")
    return {"folx ms": lambda x: folx.forward_laplacian(fun)(x).laplacian}


def ready(methods: dict[str, Any], x: Any) -> tuple[dict[str, Any], dict[str, float]]:
    """Compiled functions, and the seconds until the first result of each."""
    runs, seconds = {}, {}
    for name, method in methods.items():
        began = time.perf_counter()
        runs[name] = jax.jit(method)
        jax.block_until_ready(runs[name](x))
        seconds[name] = round(time.perf_counter() - began, 3)
    return runs, seconds


def in_turn(methods: dict[str, Any], args: Sequence[Any], repeats: int) -> dict[str, float]:
    """Median milliseconds of each method, all called once in each round."""
    times = interleaved(methods, args, 20 * repeats, seconds=0.5, fewest=repeats)
    return {name: round(1e3 * float(np.median(t)), 4) for name, t in times.items()}
