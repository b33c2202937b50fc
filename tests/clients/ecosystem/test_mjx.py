"""Kinematics and a step of MuJoCo's simulator in JAX."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from tests.clients.ecosystem.check import jacobian_test, library
from tests.engine.corpus.case import case, uniform

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("x64")]
mujoco, mjx = library("mujoco"), library("mujoco.mjx")

SLIDER = """
<mujoco>
  <option timestep="0.01"><flag constraint="disable"/></option>
  <worldbody>
    <body name="cart">
      <joint type="slide" axis="1 0 0" damping="0.1"/>
      <geom type="sphere" size="0.1"/>
      <body name="pole" pos="0 0 -0.1">
        <joint type="hinge" axis="0 1 0" stiffness="0.5"/>
        <geom type="sphere" size="0.05" pos="0 0 -0.4"/>
        <site name="tip" pos="0 0 -0.4"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


def _start(q, v):
    model = mjx.put_model(mujoco.MjModel.from_xml_string(SLIDER))
    return model, mjx.make_data(model).replace(qpos=q, qvel=v)


def _kinematics(q):
    return mjx.kinematics(*_start(q, jnp.zeros(2))).site_xpos[0, ::2]


def _step(q, v):
    done = mjx.step(*_start(q, v))
    return done.qpos, done.qvel


Q, V = uniform(2), uniform(2, seed=1)
CASES = [case("kinematics", _kinematics, Q), case("step", _step, Q, V, argnums=(0, 1))]


test_jacobian = pytest.mark.filterwarnings("ignore")(jacobian_test(CASES))
