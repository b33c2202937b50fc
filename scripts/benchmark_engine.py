"""The engine against JAX's two modes: ratios of paired, interleaved measurements in one run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from benchmark_machine import machine

import veenv
from veenv.tasks import Task


def lorenz_rollout(x: jax.Array) -> jax.Array:
    """State after 50 Runge-Kutta steps of the Lorenz system; x: [3]."""

    def slope(x: jax.Array) -> jax.Array:
        a, b, c = x
        return jnp.stack([10.0 * (b - a), a * (28.0 - c) - b, a * b - 8.0 / 3.0 * c])

    def step(x: jax.Array, _: None) -> tuple[jax.Array, None]:
        k1 = slope(x)
        k2 = slope(x + 0.005 * k1)
        k3 = slope(x + 0.005 * k2)
        k4 = slope(x + 0.01 * k3)
        return x + 0.01 / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    return jax.lax.scan(step, x, None, length=50)[0]


def banded_residual(x: jax.Array) -> jax.Array:
    """A residual in which each entry depends on three neighbours; x: [n]."""
    left, middle, right = x[:-2], x[1:-1], x[2:]
    inner = jnp.sin(left) * middle + middle * middle * right - jnp.exp(-right * right) * left
    return jnp.concatenate([x[:1] ** 2, inner, x[-1:] * x[-2:-1]])


EXTRA = {"lorenz_rollout": (lorenz_rollout, (np.array([1.0, 2.0, 20.0]),), (0,))}
DEFAULT = (
    "RoeFlux_1d",
    "RoeFlux_3d",
    "RobotArm_6DOF",
    "HumanHeartDipole",
    "PropaneCombustion",
    "mlp",
    "Encoder",
    "lorenz_rollout",
)


def engine(
    task: tuple[str, ...] = DEFAULT,
    batch: tuple[int, ...] = (1, 4096, 65536),
    orders: tuple[str, ...] = ("forward", "reverse", "markowitz", "best"),
    repeats: int = 15,
) -> None:
    """Time of vmap(jacve(f, order)) beside jax.jacfwd and jax.jacrev, float32, jitted.

    Every repeat times all methods once, one after the other; the ratio shown is the median over
    repeats of a method's time to the faster of jacfwd and jacrev in the same repeat.

    Args:
        task: tasks, and `lorenz_rollout`.
        batch: batch sizes of the outer vmap; at 1 the time is mostly dispatch.
        orders: orders for jacve; `best` is the shipped order.
        repeats: measurements of each method.
    """
    print(machine())
    print(
        f"{'task':<20} {'batch':>6} {'method':<12} {'median':>10} {'ratio':>6} {'spread':>12} "
        f"{'flops/point':>12} {'compile':>8}"
    )
    for name in task:
        fun, args, argnums = EXTRA[name] if name in EXTRA else _task(veenv.tasks.get(name))
        for size in batch:
            _compare(name, fun, args, argnums, size, orders, repeats)


def _task(task: Task) -> tuple[Callable[..., Any], tuple[Any, ...], Any]:
    return task.fun, tuple(task.example_args()), task.argnums


def _compare(
    name: str,
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    argnums: Any,
    size: int,
    orders: tuple[str, ...],
    repeats: int,
) -> None:
    rng = np.random.default_rng(0)
    inputs = jax.tree.map(
        lambda a: jnp.asarray(
            np.asarray(a, np.float32) * rng.uniform(0.99, 1.01, (size, *np.shape(a))),
            jnp.float32,
        ),
        args,
    )
    methods: dict[str, Callable[..., Any]] = {
        "jacfwd": jax.jacfwd(fun, argnums),
        "jacrev": jax.jacrev(fun, argnums),
    }
    for order in orders:
        if order != "best" or name not in EXTRA:
            methods[order] = veenv.jacve(fun, order, argnums)
    compiled, seconds = {}, {}
    for method, jacobian in methods.items():
        start = time.perf_counter()
        compiled[method] = jax.jit(jax.vmap(jacobian)).lower(*inputs).compile()
        seconds[method] = time.perf_counter() - start
    times = interleaved(compiled, inputs, repeats)
    faster = np.minimum(times["jacfwd"], times["jacrev"])
    for method, program in compiled.items():
        ratios = times[method] / faster
        flops = (program.cost_analysis() or {}).get("flops", 0.0) / size
        low, high = np.quantile(ratios, [0.1, 0.9])
        print(
            f"{name:<20} {size:>6} {method:<12} {np.median(times[method]) * 1e3:>7.2f} ms "
            f"{np.median(ratios):>6.2f} {low:>5.2f} …{high:>5.2f}"
            f" {flops:>12.0f} {seconds[method]:>6.2f} s",
            flush=True,
        )


def interleaved(
    programs: dict[str, Callable[..., Any]], inputs: tuple[Any, ...], repeats: int
) -> dict[str, np.ndarray]:
    """Seconds of each program in each repeat; all programs run once in every repeat."""
    times: dict[str, list[float]] = {name: [] for name in programs}
    for program in programs.values():
        jax.block_until_ready(program(*inputs))
    for _ in range(repeats):
        for name, program in programs.items():
            start = time.perf_counter()
            jax.block_until_ready(program(*inputs))
            times[name].append(time.perf_counter() - start)
    return {name: np.array(t) for name, t in times.items()}


def sparse(n: int = 1000, large: int = 100_000, batch: int = 512, repeats: int = 15) -> None:
    """Sparse Jacobians: a banded residual, and a vmapped function, against dense ones of JAX.

    Args:
        n: size of the banded residual that is compared.
        large: size at which only the memory of the sparse one is shown.
        batch: batch of the vmapped RoeFlux_1d.
        repeats: measurements of each method.
    """
    print(machine())
    x = jnp.linspace(0.1, 1.0, n)
    _sparse_case("banded residual", banded_residual, (x,), 0, repeats)
    roe = veenv.tasks.get("RoeFlux_1d")
    args = tuple(jnp.full(batch, float(a), jnp.float32) for a in roe.example_args())
    _sparse_case(f"vmap(RoeFlux_1d), {batch}", jax.vmap(roe.fun), args, roe.argnums, repeats)
    for size in (large // 100, large // 10, large):
        x = jnp.linspace(0.1, 1.0, size)
        jacobian = veenv.jacve(banded_residual, sparse_representation=True)
        memory = jax.jit(jacobian).lower(x).compile().memory_analysis()
        if memory is None:
            raise SystemExit("this backend does not say how much memory a program takes")
        total = memory.temp_size_in_bytes + memory.output_size_in_bytes
        print(f"banded residual, n = {size}: {total / size:.1f} bytes an entry of x")


def _sparse_case(
    name: str, fun: Callable[..., Any], args: tuple[Any, ...], argnums: Any, repeats: int
) -> None:
    programs = {
        method: jax.jit(jacobian).lower(*args).compile()
        for method, jacobian in {
            "jacfwd": jax.jacfwd(fun, argnums),
            "jacrev": jax.jacrev(fun, argnums),
            "jacve, sparse": veenv.jacve(fun, "reverse", argnums, sparse_representation=True),
        }.items()
    }
    times = interleaved(programs, args, repeats)
    faster = np.minimum(times["jacfwd"], times["jacrev"])
    for method, seconds in times.items():
        ratio = np.median(seconds / faster)
        against = np.median(seconds / times["jacrev"])
        print(
            f"{name:<26} {method:<14} {np.median(seconds) * 1e3:>8.3f} ms  "
            f"{ratio:.4f} of the faster, {against:.4f} of jacrev"
        )


def tracing(sizes: tuple[int, ...] = (1000, 10_000)) -> None:
    """Seconds to trace a reverse elimination of a function of many scalar equations.

    Args:
        sizes: numbers of equations.
    """
    print(machine())
    for size in sizes:
        fun = _long_program(size)
        start = time.perf_counter()
        jax.make_jaxpr(veenv.jacve(fun, "reverse"))(jnp.full(4, 0.3))
        ours = time.perf_counter() - start
        start = time.perf_counter()
        jax.make_jaxpr(jax.jacrev(fun))(jnp.full(4, 0.3))
        print(f"{size} equations: jacve {ours:.2f} s, jacrev {time.perf_counter() - start:.2f} s")


def _long_program(size: int) -> Callable[[jax.Array], jax.Array]:
    picks = np.random.default_rng(0).integers(0, 4, (size // 2, 2))

    def fun(x: jax.Array) -> jax.Array:
        values = list(x)
        for i, j in picks:
            values[i] = jnp.sin(values[i] * values[j])
        return jnp.stack(values)

    return fun
