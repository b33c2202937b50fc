"""What a user's file may write, and what type checkers have to refuse in it; read, never run.

Each `ignore` is needed: checkers report those that are not.
"""

from typing import assert_type

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import veenv


def residual(x: Array, rate: float, *, steps: int = 3) -> Array:
    return x * rate * steps


def energy(x: Array) -> Array:
    return jnp.sum(x**3)


@veenv.fuse
def newton(x: Array, a: float) -> tuple[Array, int]:
    return x - a, 1


ones = jnp.ones(3)
assert_type(newton(ones, 2.0), tuple[Array, int])
newton(ones)  # type: ignore[call-arg]
newton(ones, 2.0, sloppy=1)  # type: ignore[call-arg]
jax.jit(jax.vmap(newton, (0, None)))(ones, 2.0)

dense = veenv.jacve(residual, "reverse", argnums=(0, 1))
dense(ones, 2.0, steps=1)[0].sum()
dense(ones, "fast")  # type: ignore[arg-type]
dense(ones, 2.0, step=1)  # type: ignore[call-arg]

sparse = veenv.jacve(residual, sparse_representation=True, kernel="xla")
assert_type(sparse(ones, 2.0), veenv.SparseTensor)
sparse(ones, 2.0).to_scipy("csc")
sparse(ones, 2.0).to_scypi()  # type: ignore[attr-defined]
sparse()  # type: ignore[call-arg]
value, jacobian = veenv.value_and_jacve(residual, sparse_representation=True)(ones, 2.0)
assert_type(value, Array)
assert_type(jacobian, veenv.SparseTensor)
curvature = veenv.hessian(energy, sparse_representation=True)(ones)
assert_type(curvature, veenv.SparseTensor)
assert_type(veenv.laplacian(residual)(ones, 2.0), Array)
veenv.jacve(residual, sparse=True)  # type: ignore[call-overload]
several = veenv.jacve(residual, argnums=(0, 1), sparse_representation=True)(ones, 2.0)
print(several[0].nse, several[1].nse)

env = veenv.make("RoeFlux_1d")
_, state = env.reset()
for action in (0, np.int64(0), jnp.argmax(env.action_mask(state))):
    env.step(None, state, action)
env.step(None, state, "first")  # type: ignore[arg-type]
