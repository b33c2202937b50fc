"""`to_c`: compiled by a C compiler and compared."""

from __future__ import annotations

import contextlib
import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.sampling import spared
from veenv.export import to_c
from veenv.export.c import check_name
from veenv.kernel.scalar_program import CannotFuseError

COMPILER = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
STRICT = "-std=c99 -pedantic -Wall -Wextra -Werror -O1 -shared -fPIC".split()


def compiled(source: str, folder: Path) -> ctypes.CDLL:
    if COMPILER is None:
        pytest.skip("no C compiler")
    (folder / "kernel.c").write_text(source)
    command = [COMPILER, *STRICT, "kernel.c", "-o", "kernel.so", "-lm"]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    return ctypes.CDLL(str(folder / "kernel.so"))


def compare(
    folder: Path,
    fun: Callable[..., Any],
    point: Any,
    argnums: Any,
    rtol: float,
    oracle: Any = jax.jacrev,
) -> None:
    """One point and a batch, with the value, against a mode of JAX."""
    point = jax.tree.map(jnp.asarray, point)
    library = compiled(
        to_c("best" if argnums else "reverse", fun, *point, argnums=argnums, with_value=True),
        folder,
    )
    rng = np.random.default_rng(0)
    batch = jax.tree.map(
        lambda x: np.asarray(np.asarray(x) * rng.uniform(0.95, 1.05, (5, *x.shape)), x.dtype), point
    )
    expected = jax.vmap(lambda *p: (fun(*p), oracle(fun, argnums)(*p)))(*batch)
    expected = [np.asarray(e) for e in jax.tree.leaves(expected)]
    ins = [np.ascontiguousarray(x) for x in jax.tree.leaves(batch)]
    outs = [np.full(e.shape, 7, e.dtype) for e in expected]
    pointers = [ctypes.c_void_p(x.ctypes.data) for x in (*ins, *outs)]
    library.jacobian_batch(ctypes.c_size_t(5), *pointers)
    for got, e in zip(outs, expected, strict=True):
        np.testing.assert_allclose(got, e, rtol=rtol, atol=rtol)
    single = [np.full(e.shape[1:], 7, e.dtype) for e in expected]
    pointers = [ctypes.c_void_p(x.ctypes.data) for x in (*ins, *single)]
    library.jacobian(*pointers)
    for got, e in zip(single, expected, strict=True):
        np.testing.assert_allclose(got, e[0], rtol=rtol, atol=rtol)


@pytest.mark.parametrize(
    "name",
    spared(["RoeFlux_1d", "RobotArm_6DOF", "BlackScholes_Jacobian", "KerrMetric"], "KerrMetric"),
)
def test_tasks(name: str, tmp_path: Path, x64: None):
    task = veenv.tasks.get(name)
    compare(tmp_path, task.fun, task.example_args(), task.argnums, 1e-9)


def everything(x: jax.Array, n: jax.Array) -> tuple[jax.Array, ...]:
    small = (n + 3) * n - jnp.abs(n)
    mask = (x > 1) & (n > 1) | ~(x < 2)
    bits = jax.lax.bitcast_convert_type(x, jnp.int32) & 0x7FFFFFFF
    return (
        jnp.where(mask, jnp.max(x), jnp.clip(x, 0.5, 1.5)) * small.astype(x.dtype),
        jnp.round(x * 3) + jnp.floor(x) + jax.lax.rem(x, jnp.float32(0.3)),
        x * (x.astype(jnp.int32) // 2).astype(x.dtype)
        + jax.lax.bitcast_convert_type(bits, jnp.float32),
        jnp.sign(x) * jnp.inf + jax.lax.shift_right_logical(n, n).astype(x.dtype) * x,
    )


def test_every_kind_of_operation(tmp_path: Path):
    args = (np.array([0.7, 1.3, 2.6], "f4"), np.array([1, 2, 3], "i4"))
    compare(tmp_path, everything, args, 0, 1e-5) if COMPILER else pytest.skip("no C compiler")


def looping(x: jax.Array, a: jax.Array) -> tuple[jax.Array, ...]:
    table = jnp.linspace(0.1, 1, 50)

    def step(c: jax.Array, t: jax.Array) -> tuple[jax.Array, jax.Array]:
        near = table[jnp.clip(jnp.int32(50 * c[0]), 0, 49)] + a[3:70].mean()
        c = jnp.sin(c * t) + near * x
        return c, c[0] * t

    c, ys = jax.lax.scan(step, x, a)
    _, zs = jax.lax.scan(step, x, ys, reverse=True)
    total = jax.lax.fori_loop(0, 300, lambda i, s: jnp.sin(s) + a[i] * i, c[0])
    root = jax.lax.while_loop(
        lambda v: jnp.abs(v * v - x[0]) > 1e-3, lambda v: 0.5 * (v + x[0] / v), x[1]
    )
    return total, root, zs


@pytest.mark.skipif(not COMPILER, reason="no C compiler")
def test_loops_are_loops(tmp_path: Path, x64: None):
    args = np.array([0.7, 1.3]), np.linspace(0.2, 0.9, 300)
    last = lambda *args: looping(*args)[:2]  # noqa: E731
    sizes = [
        len(to_c("reverse", last, args[0], np.ones(n), argnums=0, with_value=True))
        for n in (300, 3000)
    ]
    assert sizes[1] < 1.01 * sizes[0] < 50_000
    compare(tmp_path, looping, args, 0, 1e-9, jax.jacfwd)


def test_arguments_that_nothing_reads_and_results_without_entries(tmp_path: Path, x64: None):
    def linear(x, y):
        return x[:0] * y[0], 2 * x

    args = (np.array([0.7, 1.3]), np.array([1.0, 2.0, 3.0]))
    compare(tmp_path, linear, args, 0, 1e-12)
    compiled(to_c("reverse", linear, *args), tmp_path)  # strict: a warning is an error


def test_what_has_no_form_in_c():
    with pytest.raises(CannotFuseError, match="eigh"):
        to_c("reverse", jnp.linalg.eigvalsh, jnp.eye(5))
    for name in (
        "for", "3d", "", "a b", "size_t", "NULL", "sin", "sinf", "printf", "free", "_Bool",
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"C identifier, got '{name}'"):
            to_c("reverse", jnp.sin, 1.0, name=name)


@pytest.mark.parametrize("name", "in0 out0 v0 i count x sum complex jacobian_batch I _j".split())
def test_a_function_can_have_any_name_that_is_free(name: str, tmp_path: Path):
    def fun(x, n):  # with a helper, too
        return jnp.sin(x) * x.astype(jnp.int32).astype(x.dtype) + n.astype(x.dtype)

    x, n = np.array([1.5, 2.5], "f4"), np.array([1, 2], "i4")
    library = compiled(to_c("reverse", fun, x, n, name=name), tmp_path)
    out = np.full((3, 2, 2), 7, "f4")
    many = [np.stack([a] * 3) for a in (x, n)]
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*many, out)]
    library[f"{name}_batch"](ctypes.c_size_t(3), *pointers)
    expected = jax.jacrev(fun)(x, n)
    np.testing.assert_allclose(out, np.stack([expected] * 3), rtol=1e-6)
    library[name](*pointers)


def test_no_name_of_the_headers_can_be_given():
    """What a compiler knows after the headers, in three versions of C: refused, or compiled."""
    if COMPILER is None or "gcc" not in COMPILER:
        pytest.skip("no gcc")

    def run(text: str, *options: str) -> str:
        command = [COMPILER, *options, "-xc", "-"]
        return subprocess.run(
            command, input=text, capture_output=True, text=True, check=True
        ).stdout

    headers = re.findall("#include .*\n", to_c("reverse", jnp.sin, 1.0))
    for version in ("c99", "gnu17", "gnu2x"):
        option, text = f"-std={version}", "".join(headers)
        known = run(text, option, "-E") + run(text, option, "-E", "-dM")
        free = []
        for name in sorted(
            {*re.findall(r"\b[A-Za-z]\w*", known), *"auto typeof asm atomic".split()}
        ):
            with contextlib.suppress(ValueError):
                check_name(name)
                free.append(f"void {name}(const float *restrict in0) {{ (void)in0; }}\n")
        run("".join([*headers, *free]), option, "-Wall", "-Wextra", "-Werror", "-fsyntax-only")
        assert len(free) > 20


def test_shapes_stand_for_arrays():
    shape = jax.ShapeDtypeStruct((2,), jnp.float32)
    source = to_c("forward", lambda x, y: x * y, shape, shape, name="product")
    assert "void product_batch(size_t count, const float *restrict in0" in source
    assert "//   out0: float[2][2]" in source


def test_the_default_order_is_an_elimination():
    fun, x = lambda x: jnp.sin(x) * jnp.roll(x, 1), jnp.linspace(0.1, 1.0, 8)
    operations = {
        order: len(re.findall(r" [-+*/] ", to_c(order, fun, x))) for order in ("auto", "reverse")
    }
    assert operations["auto"] <= operations["reverse"]
