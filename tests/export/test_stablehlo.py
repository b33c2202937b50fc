"""Exported StableHLO is the Jacobian."""

from __future__ import annotations

import jax
import jax.numpy as jnp

import veenv


def test_exported_stablehlo_gives_the_jacobian():
    task = veenv.tasks.get("RoeFlux_1d")
    args = jax.tree.map(jnp.float32, task.example_args())
    run = jax.jit(veenv.jacve(task.fun, "best", task.argnums))
    exported = jax.export.export(run)(*args)
    assert "stablehlo." in exported.mlir_module()
    again = jax.export.deserialize(exported.serialize())
    assert veenv.tree_allclose(again.call(*args), run(*args))
