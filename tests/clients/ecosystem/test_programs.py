"""Programs of others with their Jacobians replaced in one place: what they assemble is the same."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.clients.ecosystem.check import library, usual_promotion

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("x64")]


class _Replaced:
    """JAX with Jacobians by elimination."""

    jacfwd = jacrev = staticmethod(veenv.jacve)

    def __getattr__(self, name: str) -> Any:
        return getattr(jax, name)


def pose_graph():
    """jaxls: blocks of a graph of poses in space, of jaxlie's groups."""
    jaxls, jaxlie = library("jaxls"), library("jaxlie")
    n, rng = 30, np.random.default_rng(0)
    i, j = np.append(np.arange(n - 1), [0, 3, 7]), np.append(np.arange(1, n), [9, 20, 28])
    poses = jaxlie.SE3.exp(jnp.asarray(rng.normal(size=(n, 6))))
    seen = jaxlie.SE3.exp(jnp.asarray(rng.normal(size=(len(i), 6))))

    @jaxls.Cost.factory
    def between(vals, a, b, seen):
        return (seen.inverse() @ (vals[a].inverse() @ vals[b])).log()

    variable = jaxls.SE3Var
    cost = between(variable(id=jnp.asarray(i)), variable(id=jnp.asarray(j)), seen)
    nodes = variable(id=jnp.arange(n))
    problem = jaxls.LeastSquaresProblem([cost], [nodes]).analyze()
    values = jaxls.VarValues.make([nodes.with_value(poses)])

    def blocks(values):
        none = (None,) * len(problem._stacked_costs)
        rows = problem._compute_jac_values(values, none).block_rows
        return [row.blocks_concat for row in rows]

    return blocks, values, "jaxls._problem.jax", _Replaced()


def periodic_orbit():
    """JaxCont: Newton's matrix of a limit cycle by collocation."""
    library("jaxcont")
    from jaxcont.core import scan_continuation
    from jaxcont.core.collocation import Collocation
    from jaxcont.problems.periodic import periodic_orbit_problem

    def slope(u, p, args):
        x, y = u
        return jnp.array([1 - (p + 1) * x + x**2 * y, p * x - x**2 * y])

    times = np.linspace(0, 6.4, 60)
    turns = np.stack([1 + np.cos(times), 2.5 - np.cos(times + 1)], 1)
    mesh = Collocation(ntst=20, ncol=4)
    problem = periodic_orbit_problem(slope, jnp.asarray(turns), jnp.asarray(times), 6.4, 2.5, mesh)

    def matrix(u):
        fun = lambda u, p: problem.f(u, p, problem.args)  # noqa: E731
        return scan_continuation.jacfwd(fun, argnums=0)(u, jnp.asarray(2.5))

    start = jnp.asarray(np.random.default_rng(0).normal(size=problem.u0.shape))
    return matrix, start, "jaxcont.core.scan_continuation.jacfwd", veenv.jacve


def hyperelastic_block():
    """feax: the stiffness of a hyperelastic block of hexahedra."""
    feax = library("feax")

    class Elastic(feax.Problem):
        def get_energy_density(self):
            def density(slopes, *_):
                f = slopes + jnp.eye(3)
                volume = jnp.linalg.det(f)
                return 19 * volume ** (-2 / 3) * jnp.trace(f.T @ f) + 41 * (volume - 1) ** 2

            return density

    problem = Elastic(feax.mesh.box_mesh((1.0, 1.0, 1.0), mesh_size=0.5), vec=3, dim=3)
    held = feax.DirichletBCSpec(lambda p: jnp.isclose(p[0], 0.0), "all", 0.0)
    held = feax.DirichletBCConfig([held]).create_bc(problem)
    params = feax.TracedParams(volume_vars=[], surface_vars=[])

    def stiffness(z):
        return feax.assembler.create_J_bc_csr_function(problem, held)(z, params).data

    z = jnp.asarray(0.01 * np.random.default_rng(0).normal(size=problem.num_total_dofs_all_vars))
    by_elimination = lambda fun, x: veenv.value_and_jacve(fun)(x)  # noqa: E731
    return stiffness, z, "feax.assembler._value_and_jacfwd", by_elimination


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", [pose_graph, periodic_orbit, hyperelastic_block])
def test_jacobians_of_whole_programs(program, monkeypatch):
    with usual_promotion():
        assemble, x, place, ours = program()
        expected = jax.jit(lambda x: assemble(x))(x)
        monkeypatch.setattr(place, ours)
        found = jax.jit(lambda x: assemble(x))(x)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12 * np.abs(other).max())
