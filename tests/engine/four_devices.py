"""Run by `test_explicit_sharding.py`: Jacobians of arrays on a mesh of four devices, checked."""

import json
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import veenv

jax.config.update("jax_enable_x64", True)
EXPLICIT = AxisType.Explicit
MESH = jax.make_mesh((2, 2), ("i", "j"), axis_types=(EXPLICIT, EXPLICIT))
LINE = jax.make_mesh((4,), ("i",), axis_types=(EXPLICIT,))
MIXED = jax.make_mesh((2, 2), ("i", "j"), axis_types=(EXPLICIT, AxisType.Auto))


def numbers(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape)


def on(mesh, x, *axes):
    return jax.device_put(jnp.asarray(x), NamedSharding(mesh, P(*axes)))


def rms(x):
    return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def loss(weights, x):
    return jnp.mean(jnp.tanh(x @ weights["w"] + weights["b"][None]) ** 2)


def scanned(x, w):
    step = lambda h, row: (jnp.tanh(h * row @ w), jnp.sum(h))  # noqa: E731
    return lax.scan(step, jax.sharding.reshard(jnp.ones(8), P("j")), x)


def gathered(x, w):
    """A contraction of what is divided, which JAX asks the user to place."""
    return jnp.sin(jnp.einsum("ab,bc->ac", x, w, out_sharding=P("i", None)))


def placed(x):
    return jax.sharding.reshard(jnp.sin(x), P(None)) ** 2


@jax.custom_jvp
def soft(x):
    return jnp.log1p(jnp.exp(x))


@soft.defjvp
def _(primals, tangents):
    return soft(*primals), jax.nn.sigmoid(*primals) * tangents[0]


@jax.custom_vjp
def clipped(x):
    return jnp.sin(x)


clipped.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (2 * ct * jnp.cos(x),))


BATCH = on(MESH, numbers(4, 6), "i")
BOTH = on(MESH, numbers(4, 8), "i", "j")
VECTOR = on(MESH, numbers(8), "i")
W = on(MESH, numbers(6, 8), None, "j")
SQUARE = on(MESH, numbers(8, 8), None, "j")
WEIGHTS = {"w": W, "b": on(MESH, numbers(8), "j")}
# For each function its arguments, and which of them it is differentiated by.
CASES = {
    "sine": (jnp.sin, (VECTOR,), 0),
    "sine on a line": (jnp.sin, (on(LINE, numbers(8), "i"),), 0),
    "sine on a mixed mesh": (jnp.sin, (on(MIXED, numbers(8), "i"),), 0),
    "rms norm": (rms, (BATCH,), 0),
    "rms norm, features": (rms, (on(MESH, numbers(4, 6), None, "j"),), 0),
    "softmax": (jax.nn.softmax, (VECTOR,), 0), "softmax of rows": (jax.nn.softmax, (BOTH,), 0),
    "layer": (lambda x, w: jnp.tanh(x @ w), (BATCH, W), (0, 1)),
    "two custom cotangents": (lambda x: clipped(clipped(x)), (VECTOR,), 0),
    "layer by input": (lambda x, w: jnp.tanh(x @ w), (BATCH, W), 0),
    "loss": (loss, (WEIGHTS, BATCH), 0), "loss, both": (loss, (WEIGHTS, BATCH), (1, 0)),
    "scan": (scanned, (on(MESH, numbers(3, 8)), SQUARE), (0, 1)),
    "contraction": (gathered, (on(MESH, numbers(4, 6), "i", "j"), on(MESH, W, "j")), (0, 1)),
    "reshard": (placed, (VECTOR,), 0),
    "custom rule": (lambda x: soft(x).sum(), (BOTH,), 0),
    "custom cotangents": (lambda x: clipped(x).sum(0), (BOTH,), 0),
    "checkpoint": (lambda x: jnp.sum(jax.checkpoint(rms)(x), 0), (BATCH,), 0),
    "where": (lambda x: jnp.where(x > 0, x, jnp.expm1(x)), (BOTH,), 0),
    "reshape": (lambda x: jnp.sin(x).reshape(4, 3, 2).sum(2), (BATCH,), 0),
    "cond": (lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), (VECTOR,), 0),
    "replicated": (rms, (on(MESH, numbers(3, 5)),), 0),
    "captured": (lambda x: jnp.tanh(x @ W), (BATCH,), 0),
    "nested jit": (lambda x: jax.jit(jax.nn.softmax)(x) * 2, (BOTH,), 0),
}  # fmt: skip


def alike(found, wanted):
    """Raises unless values, dtypes and shardings are those that JAX's own mode gives."""
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-9, 1e-9), found, wanted)
    for a, b in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
        assert jax.typeof(a) == jax.typeof(b), (jax.typeof(a), jax.typeof(b))


def check(name, how):
    fun, args, argnums = CASES[name]
    options = {"kernel": "xla"} if how == "xla" else {}
    mesh = args[-1].sharding.mesh
    if how in ("jit", "xla"):  # both in one program
        ours, theirs = veenv.jacve(fun, argnums=argnums, **options), jax.jacrev(fun, argnums)
        with jax.set_mesh(mesh):
            return alike(*jax.jit(lambda *a: (ours(*a), theirs(*a)))(*args))
    with jax.set_mesh(mesh):
        wanted = jax.jit(jax.jacrev(fun, argnums))(*args)
    if how == "eager":
        return alike(veenv.jacve(fun, argnums=argnums)(*args), wanted)
    with jax.set_mesh(mesh):
        if how == "set mesh":
            return alike(veenv.jacve(fun, argnums=argnums)(*args), wanted)
        if how == "value":
            found, jacobian = jax.jit(veenv.value_and_jacve(fun, argnums=argnums))(*args)
            alike(found, jax.jit(fun)(*args))
            return alike(jacobian, wanted)
        if how == "sparse":
            found = veenv.jacve(fun, argnums=argnums, sparse_representation=True)
            blocks = jax.jit(
                lambda *a: jax.tree.map(
                    lambda b: b.todense(), found(*a), is_leaf=lambda b: hasattr(b, "todense")
                )
            )(*args)
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-9, 1e-9), blocks, wanted)
            return None
        if how == "hessian":
            scalar = lambda *a: sum(jnp.sum(x**2) for x in jax.tree.leaves(fun(*a)))  # noqa: E731
            wanted = jax.jit(jax.hessian(scalar, argnums))(*args)
            return alike(jax.jit(veenv.hessian(scalar, argnums=argnums))(*args), wanted)
        return alike(jax.jit(veenv.jacve(fun, how, argnums=argnums))(*args), wanted)


# For each function of one point the batches that are mapped over.
MAPPED = {
    "rms norm": (rms, (BOTH,)),
    "layer": (lambda x, w: jnp.tanh(x @ w), (BATCH, None)),
    "product": (lambda x, y: jnp.sin(x * y), (on(MESH, numbers(4), "i"), BOTH)),
}


def check_mapped(name, how):
    fun, args = MAPPED[name]
    full = tuple(W if a is None else a for a in args)
    axes = tuple(None if a is None else 0 for a in args)
    make = {
        "vmap": veenv.jacve,
        "vmap, fused": lambda f: veenv.jacve(f, kernel="fused"),
        "vmap, fuse": lambda f: veenv.fuse(jax.jacrev(f)),
    }[how]
    with jax.set_mesh(MESH):
        wanted = jax.jit(jax.vmap(jax.jacrev(fun), axes))(*full)
        alike(jax.jit(jax.vmap(make(fun), axes))(*full), wanted)
        alike(jax.vmap(make(fun), axes)(*full), wanted)


MAPPINGS = ["vmap", "vmap, fused", "vmap, fuse"]
LAID_OUT = {"vector": on(MESH, numbers(4), "i"), "matrix": BOTH}


def check_laid_out(name, how):
    x = LAID_OUT[name]
    spec = jax.typeof(x).sharding.spec
    fun = lambda x: jnp.sin(x) * x**2  # noqa: E731
    with jax.set_mesh(MESH):
        if how == "shard_map":
            each = lambda f: jax.shard_map(f, mesh=MESH, in_specs=spec, out_specs=spec)  # noqa: E731
            alike(jax.jit(each(veenv.jacve(fun)))(x), jax.jit(each(jax.jacrev(fun)))(x))
            return
        scalar = lambda x: jnp.sum(fun(x))  # noqa: E731
        found = jax.jit(veenv.laplacian(scalar))(x)
        hessian = np.asarray(jax.hessian(scalar)(np.asarray(x)))
        np.testing.assert_allclose(found, np.trace(hessian.reshape(x.size, x.size)), 1e-9)
        assert jax.typeof(found).sharding == jax.typeof(jax.jit(scalar)(x)).sharding


if __name__ == "__main__":
    found = {}
    for how in sys.argv[1].split(";"):
        cases, run = (MAPPED, check_mapped) if how in MAPPINGS else (CASES, check)
        if how in ("laplacian", "shard_map"):
            cases, run = LAID_OUT, check_laid_out
        if how == "laplacian" and jax.__version_info__ < (0, 12):
            cases = {"vector": ...}  # JAX does not reshape what lies along several axes
        for name in cases:
            found[f"{name}, {how}"] = "as JAX"
            try:
                run(name, how)
            except Exception as error:
                found[f"{name}, {how}"] = f"{type(error).__name__}: {str(error)[:600]}"
    print(json.dumps(found))
