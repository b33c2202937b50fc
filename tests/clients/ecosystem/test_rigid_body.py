"""Rigid bodies: the kinematics and steps of MuJoCo's JAX simulator, and steps of brax."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from tests.clients.ecosystem.check import check, library, parameters
from tests.engine.corpus.case import case, uniform

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("x64")]
mujoco, mjx = library("mujoco"), library("mujoco.mjx")

PENDULUM = """
<mujoco>
  <option timestep="0.01" integrator="{integrator}"><flag constraint="disable"/></option>
  <worldbody>
    <body name="upper">
      <joint name="shoulder" type="hinge" axis="0 1 0" damping="0.1"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.5" size="0.05"/>
      <body name="lower" pos="0 0 -0.5">
        <joint name="elbow" type="hinge" axis="0 1 0.2" damping="0.1" stiffness="0.5"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.04"/>
        <site name="hand" pos="0 0 -0.4"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="elbow" gear="2"/></actuator>
</mujoco>
"""


def _model(integrator):
    return mjx.put_model(mujoco.MjModel.from_xml_string(PENDULUM.format(integrator=integrator)))


def _data(model, q, v, u):
    return mjx.make_data(model).replace(qpos=q, qvel=v, ctrl=u)


def _step(integrator):
    """Positions and speeds after a step, by positions, speeds and the motor."""

    def fun(q, v, u):
        model = _model(integrator)
        done = mjx.step(model, _data(model, q, v, u))
        return done.qpos, done.qvel

    return fun


def _kinematics(q, v, u):
    model = _model("Euler")
    return mjx.kinematics(model, _data(model, q, v, u)).site_xpos[0] * jnp.cos(q[0])


def _acceleration(q, v, u):
    model = _model("Euler")
    return mjx.forward(model, _data(model, q, v, u)).qacc


def _inverse(q, v, u):
    """The forces that a motion needs."""
    model = _model("Euler")
    data = mjx.forward(model, _data(model, q, v, u)).replace(qacc=v)
    return mjx.inverse(model, data).qfrc_inverse


Q, V, U = uniform(2), uniform(2, seed=1), uniform(1)
CASES = [
    case("kinematics", _kinematics, Q, V, U),
    case("acceleration", _acceleration, Q, V, U, argnums=(0, 1, 2)),
    case("inverse_dynamics", _inverse, Q, V, U, argnums=(0, 1)),
    case("euler_step", _step("Euler"), Q, V, U, argnums=(0, 1, 2)),
    case("implicit_step", _step("implicitfast"), Q, V, U, argnums=(0, 1, 2)),
    case("runge_kutta_step", _step("RK4"), Q, V, U, argnums=(0, 1, 2)),
]


@pytest.mark.parametrize("case", parameters(CASES))
@pytest.mark.filterwarnings("ignore")
def test_jacobian(case):
    check(case)
