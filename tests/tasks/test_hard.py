"""The tasks of ``hard`` against laws and formulas that share nothing with them."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from scipy.spatial.transform import Rotation

from tests.oracles.jacobians import quick_jit
from veenv import make_graph, tasks
from veenv.env.rewards import classical_cost
from veenv.orders.order import fingerprint
from veenv.tasks import bodies, estimates
from veenv.tasks.evaluation_sets import evaluation_set, known_of
from veenv.tasks.hard import TASKS

NAMES = [task.name for task in TASKS]


@pytest.fixture(autouse=True)
def float64(x64):
    """Oracles need float64."""


def point(name):
    return np.array(tasks.get(name).example_args())


def value(name, x):
    return np.array(quick_jit(tasks.get(name).fun)(*x))


@pytest.fixture(scope="module")
def graphs():
    return {t.name: make_graph(t.fun, t.argnums)(*t.example_args()) for t in TASKS}


def test_sizes_and_references(graphs):
    chosen = evaluation_set("hard").tasks
    assert len(chosen) >= 24
    assert set(chosen) <= set(NAMES)
    assert not set(NAMES) & set(tasks.list())
    assert len({fingerprint(graph) for graph in graphs.values()}) == len(NAMES)
    for name, graph in graphs.items():
        assert 150 <= len(graph.eliminable) <= 2000
        known = known_of(graph)
        assert known is not None
        assert known.task == name
        assert known.classical <= classical_cost(graph, "multiplications")
        assert known.bound <= known.cost == graph.cost(known.order)
        open_still = known.bound < known.cost  # the others are solved
        assert (name in chosen) == (open_still and known.classical >= 1.03 * known.cost)


def test_a_quadrotor_falls_and_its_quaternion_keeps_its_length():
    x = point("Quadrotor_RK4")
    x[6:10] /= np.linalg.norm(x[6:10])
    x[10:13] = x[13:] = 0.0
    after = value("Quadrotor_RK4", x)
    np.testing.assert_allclose(after[3:6], x[3:6] - [0, 0, 9.81 * 0.02])
    x = point("Quadrotor_RK4")
    x[6:10] /= np.linalg.norm(x[6:10])
    after = value("Quadrotor_RK4", x)
    assert abs(np.linalg.norm(after[6:10]) - 1) < 1e-9
    push = np.array(after[3:6]) - x[3:6] + [0, 0, 9.81 * 0.02]
    up = Rotation.from_quat(np.roll(0.5 * (x[6:10] + after[6:10]), -1)).apply([0, 0, 1])
    thrust = 0.02 * 1.2e-5 * (x[13:] ** 2).sum() / 0.8
    np.testing.assert_allclose(push, thrust * up, atol=1e-3 * thrust)


def test_an_arm_obeys_lagrange():
    q, v, _ = point("InverseDynamics_7DOF").reshape(3, 7)

    zero, units = np.zeros(7), np.eye(7)

    @quick_jit
    @jax.vmap
    def torque(q, v, a, way):
        """And how it changes where the arm moves that way: one program for all that is asked."""
        return jax.jvp(lambda q: jnp.stack(bodies.inverse_dynamics(*q, *v, *a)), (q,), (way,))

    points = [*((q, zero, unit, v) for unit in units), (q, zero, zero, v), (q, v, zero, zero)]
    points += [(q, zero, zero, unit) for unit in units]
    values, changes = map(np.asarray, torque(*map(np.array, zip(*points, strict=True))))
    inertia, change, curl = values[:7] - values[7], changes[:7] - changes[7], changes[9:]
    np.testing.assert_allclose(inertia, inertia.T, atol=1e-12)
    assert np.linalg.eigvalsh(inertia).min() > 0
    np.testing.assert_allclose(curl, curl.T, atol=1e-10)  # weights are a gradient
    turning = values[8] - values[7]  # power goes into kinetic energy, and nowhere else
    np.testing.assert_allclose(v @ turning, 0.5 * v @ change @ v, rtol=1e-10)


@pytest.mark.parametrize(
    ("name", "masses"),
    [("ThreeBodies_RK4", np.array([1.0, 1.1, 0.9])), ("LennardJones_Verlet", np.ones(6))],
)
def test_bodies_keep_their_momentum(name, masses):
    x, half = point(name), 2 * len(masses)
    before, after = (masses @ y[half:][:half].reshape(-1, 2) for y in (x, value(name, x)))
    np.testing.assert_allclose(after, before, atol=1e-12)
    assert not np.allclose(value(name, x)[half:], x[half : 2 * half])


def test_a_satellite_without_bulge_keeps_its_energy_and_a_bulge_pulls():
    x = point("Satellite_RK4")
    x[7] = 0.0

    def energy(y):
        return 0.5 * y[3:6] @ y[3:6] - 1 / np.linalg.norm(y[:3])

    after = value("Satellite_RK4", x)
    assert abs(energy(after) - energy(x)) < 1e-6
    np.testing.assert_allclose(np.cross(after[:3], after[3:]), np.cross(x[:3], x[3:6]), atol=1e-6)

    def potential(p, j2):
        r = jnp.sqrt(p @ p)
        return -1 / r + j2 / (2 * r**3) * (3 * p[2] ** 2 / r**2 - 1)

    x[7], x[3:6] = 1e-2, 0.0
    pull = -jax.grad(potential)(jnp.array(x[:3]), 1e-2)
    np.testing.assert_allclose(value("Satellite_RK4", x)[3:] / 0.1, pull, rtol=0.02)


def test_a_chain_keeps_its_energy():
    x = point("FermiPastaUlam")

    def energy(y):
        stretch = np.diff(np.concatenate([[0.0], y[:12], [0.0]]))
        springs = stretch**2 / 2 + 0.25 * stretch**3 / 3 + 0.7 * stretch**4 / 4
        return 0.5 * y[12:24] @ y[12:24] + springs.sum()

    after = value("FermiPastaUlam", x)
    assert abs(energy(after) / energy(x) - 1) < 0.1
    assert np.abs(after - x[:24]).max() > 0.1


def test_reactions_keep_what_they_should():
    x = point("HighIrradiance_RK4")
    after = value("HighIrradiance_RK4", x)
    assert abs((after[6] + after[7]) - (x[6] + x[7])) < 1e-12  # bound and free enzyme
    x = point("Pollution_RK4")
    after = value("Pollution_RK4", x)
    nitrogen = [0, 1, 12, 14, 18, 19, 19]  # of it the last, N2O5, has two
    assert np.abs(after - x).max() > 1e-3
    assert after[nitrogen].sum() == pytest.approx(x[nitrogen].sum())
    sulphur = [16, 17]
    assert after[sulphur].sum() == pytest.approx(x[sulphur].sum())


def test_a_clock_turns_over_its_protein():
    x = point("CircadianClock_RK4")
    x[7:9] = 0.0  # none is made, none decays
    after = value("CircadianClock_RK4", x)
    assert after[1:].sum() == pytest.approx(x[1:5].sum())
    assert np.abs(after - x[:5]).max() > 1e-2


def test_genes_in_a_ring_are_alike():
    x = point("Repressilator_RK4")
    turned = np.concatenate([np.roll(x[:3], 1), np.roll(x[3:6], 1), x[6:]])
    after, later = value("Repressilator_RK4", x), value("Repressilator_RK4", turned)
    np.testing.assert_allclose(np.roll(after.reshape(2, 3), 1, axis=1).ravel(), later, rtol=1e-12)
    x[6:8] = 0.0  # nothing is made: messengers decay
    np.testing.assert_allclose(value("Repressilator_RK4", x)[:3], x[:3] * np.exp(-0.05), rtol=1e-8)


def test_reactants_in_cells_rest_and_spread():
    x = point("Brusselator_6")
    x[:6], x[6:12] = x[12], x[13] / x[12]
    np.testing.assert_allclose(value("Brusselator_6", x), x[:12], rtol=1e-12)
    x = point("Brusselator_6")
    x[12:14] = 0.0
    after = value("Brusselator_6", x)
    u = x[:6] + x[6:12]  # what reacts becomes the other, and decays
    assert after.sum() == pytest.approx(u.sum() - 0.05 * x[:6].sum(), rel=0.02)


def test_a_car_drives_straight_and_the_same_whatever_its_heading():
    x = point("Car_RK4")
    x[4:7] = 0.0
    after, h = value("Car_RK4", x), 0.05
    way = x[3] * h + 0.5 * x[7] * h**2
    expected = [x[0] + way * np.cos(x[2]), x[1] + way * np.sin(x[2]), x[2], x[3] + h * x[7], 0, 0]
    np.testing.assert_allclose(after, expected, atol=1e-12)
    x = point("Car_RK4")
    turned = x + np.eye(11)[2]
    after, later = value("Car_RK4", x), value("Car_RK4", turned)
    np.testing.assert_allclose(later[3:], after[3:], rtol=1e-12)
    turn = Rotation.from_euler("z", 1.0).as_matrix()[:2, :2]
    np.testing.assert_allclose(later[:2] - x[:2], turn @ (after[:2] - x[:2]), rtol=1e-9)
    x[4], x[5], x[6] = 0.0, 0.0, 1e-6  # small slip: stiffness is that of a linear tyre
    force = x[8] * x[9] * x[10] * x[6]
    assert value("Car_RK4", x)[5] == pytest.approx(h * 1.2 * force / 2600.0, rel=0.2)


def test_an_orbit_obeys_hamilton():
    x = point("Schwarzschild_RK4")
    energy, turn, mass = x[6:]

    def hamiltonian(q):
        r, theta, along, over = q
        lapse = 1 - 2 * mass / r
        kinetic = lapse * along**2 + (over**2 + turn**2 / jnp.sin(theta) ** 2) / r**2
        return 0.5 * (kinetic - energy**2 / lapse)

    def rate(q):
        r, theta, along, over = jax.grad(hamiltonian)(q)
        return jnp.stack([along, over, -r, -theta])

    @quick_jit
    def step(q, h):
        a = rate(q)
        b = rate(q + 0.5 * h * a)
        c = rate(q + 0.5 * h * b)
        return q + h / 6 * (a + 2 * b + 2 * c + rate(q + h * c))

    after = value("Schwarzschild_RK4", x)
    expected = step(jnp.array([x[0], x[1], x[4], x[5]]), 0.5)
    np.testing.assert_allclose(after[[0, 1, 4, 5]], expected, rtol=1e-10)
    rates = (after[2:4] - x[2:4]) / 0.5
    assert rates[0] == pytest.approx(turn / (x[0] * np.sin(x[1])) ** 2, rel=0.02)
    assert rates[1] == pytest.approx(energy / (1 - 2 * mass / x[0]), rel=0.02)


def test_readings_of_a_sensor_against_scipy():
    x = point("Preintegration_4")
    rates, pushes = (x[6:].reshape(4, 2, 3) - x[:6].reshape(2, 3)).transpose(1, 0, 2)
    turn, speed, way, h = Rotation.identity(), np.zeros(3), np.zeros(3), 0.05
    for rate, push in zip(rates, pushes, strict=True):
        force = turn.apply(push)
        way, speed = way + h * speed + 0.5 * h**2 * force, speed + h * force
        turn *= Rotation.from_rotvec(h * rate)
    expected = np.concatenate([np.roll(turn.as_quat(), 1), speed, way])
    np.testing.assert_allclose(value("Preintegration_4", x), expected, rtol=1e-9)


def test_a_robot_finds_itself_as_matrices_say():
    x = point("Localisation_EKF")
    pose, move, landmark, seen = jnp.array(x[:3]), x[9:11], x[11:13], x[13:15]
    upper = np.triu_indices(3)
    spread = np.zeros((3, 3))
    spread[upper] = x[3:9]
    spread = spread + np.triu(spread, 1).T

    def moved(pose, move):
        ahead = move[0] * jnp.stack([jnp.cos(pose[2]), jnp.sin(pose[2])])
        return pose + 0.5 * jnp.append(ahead, move[1])

    def look(pose):
        apart = landmark - pose[:2]
        return jnp.stack([jnp.hypot(*apart), jnp.arctan2(apart[1], apart[0]) - pose[2]])

    f, w = jax.jacfwd(moved, (0, 1))(pose, jnp.array(move))
    pose = moved(pose, move)
    spread = f @ spread @ f.T + w @ np.diag(x[15:17]) @ w.T
    h = jax.jacfwd(look)(pose)
    gain = spread @ h.T @ np.linalg.inv(h @ spread @ h.T + np.diag(x[17:]))
    expected = pose + gain @ (seen - look(pose)), (spread - gain @ h @ spread)[upper]
    np.testing.assert_allclose(value("Localisation_EKF", x), np.concatenate(expected), rtol=1e-9)


def test_a_smile_has_its_limits():
    x = point("SABR_Smile")
    forward, alpha, rho, nu, time = x[:5]
    level = alpha / np.sqrt(forward)
    skew = level**2 / 96 + rho * nu * level / 8 + (2 - 3 * rho**2) / 24 * nu**2
    x[5:] = forward * (1 + 1e-6)  # at the money, by the formula of its own
    np.testing.assert_allclose(value("SABR_Smile", x), level * (1 + skew * time), rtol=1e-5)
    x = point("SABR_Smile")
    x[3], x[4] = 1e-7, 1e-12  # without its own volatility: distance over the integral of 1 / σ(F)
    expected = alpha * np.log(forward / x[5:]) / (2 * (np.sqrt(forward) - np.sqrt(x[5:])))
    np.testing.assert_allclose(value("SABR_Smile", x), expected, rtol=1e-4)


def test_a_neuron_at_rest_stays():
    x = np.array([-65.0, 0.0529, 0.5961, 0.3177, 0.0, 120.0, 36.0, 0.3, 50.0, -77.0, -54.387])
    np.testing.assert_allclose(value("HodgkinHuxley_RK4", x), x[:4], atol=1e-3)


def test_the_smoother_is_the_mean_of_all_that_is_known():
    x = point("KalmanSmoother")
    seen, (noise, shock, h, place, speed) = x[:6], x[6:]
    motion = np.array([[1, h], [0, 1]])
    drive = h**2 * shock * np.array([[h**2 / 4, h / 2], [h / 2, 1]])
    # Of all states together: the first, before any measurement, then one for each measurement.
    powers = [np.linalg.matrix_power(motion, k) for k in range(7)]
    spread = np.zeros((14, 14))
    for i in range(7):
        for j in range(7):
            both = [powers[i - k] @ drive @ powers[j - k].T for k in range(min(i, j) + 1)]
            spread[2 * i : 2 * i + 2, 2 * j : 2 * j + 2] = sum(both)
    mean = np.concatenate([p @ [place, speed] for p in powers])
    shown = np.eye(14)[2::2]
    gain = spread @ shown.T @ np.linalg.inv(shown @ spread @ shown.T + noise * np.eye(6))
    expected = (mean + gain @ (seen - shown @ mean)).reshape(7, 2)[:0:-1]
    np.testing.assert_allclose(value("KalmanSmoother", x), expected.ravel(), atol=1e-9)


def test_a_camera_against_scipy():
    x = point("BundleAdjustment_6")
    moved = Rotation.from_rotvec(x[:3]).apply(x[9:].reshape(6, 3)) + x[3:6]
    flat = -moved[:, :2] / moved[:, 2:]
    square = (flat**2).sum(1, keepdims=True)
    expected = x[6] * (1 + x[7] * square + x[8] * square**2) * flat
    np.testing.assert_allclose(value("BundleAdjustment_6", x), expected.ravel())


def test_a_lens_of_air_bends_nothing_and_a_thin_one_has_its_focal_length():
    x = point("CookeTriplet")
    x[12:15] = 1.0
    px, py, dx, dy = x[15:]
    length = x[6:12].sum() / np.sqrt(1 - dx**2 - dy**2)
    expected = px + length * dx, py + length * dy, dx, dy
    np.testing.assert_allclose(value("CookeTriplet", x), expected, rtol=1e-12)
    x = point("CookeTriplet")
    x[2:6] = x[6:11] = x[17:] = 0.0
    x[0], x[1], x[15:17], x[11] = 0.01, -0.01, 1e-3, 100.0
    slope = value("CookeTriplet", x)[2]
    assert slope == pytest.approx(-1e-3 * (x[12] - 1) * 0.02, rel=1e-6)


def test_powers_are_those_of_the_admittance_matrix():
    x = point("PowerFlow_9")
    volts = x[:9] * np.exp(1j * x[9:])
    admittance = np.zeros((9, 9), complex)
    for i, j, r, reactance, charge in estimates.LINES:
        y = 1 / (r + 1j * reactance)
        for a, b in ((i, j), (j, i)):
            admittance[a, a] += y + 0.5j * charge
            admittance[a, b] -= y
    power = volts * np.conj(admittance @ volts)
    np.testing.assert_allclose(value("PowerFlow_9", x), [*power.real, *power.imag], rtol=1e-10)


def test_swaps_telescope():
    x = point("SwapCurve")
    par, fixed = x[:15], x[15:]
    discounts = []
    for rate in par:
        discounts.append((1 - rate * sum(discounts)) / (1 + rate))
    logs = np.interp(np.arange(1, 31) / 2, np.arange(16), [0.0, *np.log(discounts)])
    grid = np.exp(logs)
    for k, worth in enumerate(value("SwapCurve", x)):
        flows = grid[2 * k + 1 : 2 * k + 24]
        assert worth == pytest.approx(grid[2 * k] - flows[-1] - 0.5 * fixed[k] * flows.sum())


def test_flows_keep_what_flows():
    x = point("Burgers_MUSCL")
    after = value("Burgers_MUSCL", x)
    assert after.sum() == pytest.approx(x.sum())
    assert after.max() - after.min() <= x.max() - x.min() + 1e-3
    x = point("LatticeBoltzmann_D2Q9")
    after, before = value("LatticeBoltzmann_D2Q9", x).reshape(6, 9), x[:-1].reshape(6, 9)
    ways = np.array([(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)])
    assert after.sum() == pytest.approx(before.sum())
    np.testing.assert_allclose((after @ ways).sum(0), (before @ ways).sum(0), atol=1e-12)
    still = np.tile([4 / 9, *[1 / 9] * 4, *[1 / 36] * 4], 6)
    np.testing.assert_allclose(value("LatticeBoltzmann_D2Q9", [*still, 1.3]), still)


def test_the_recurrent_unit_against_equinox():
    x = point("GRU_Unrolled")
    inputs, (z, r, n), h = x[:6], x[6:30].reshape(3, 2, 4), x[30:]
    cell = eqx.nn.GRUCell(1, 2, key=jax.random.key(0), dtype=jnp.float64)
    stacked = np.concatenate([r, z, n])
    cell = eqx.tree_at(
        lambda m: (m.weight_ih, m.weight_hh, m.bias, m.bias_n),
        cell,
        (jnp.array(stacked[:, 1:2]), jnp.array(stacked[:, 2:]), jnp.array(stacked[:, 0]),
         jnp.zeros(2)),
    )  # fmt: skip
    states, held = [], jnp.array(h)
    # equinox resets behind the product of the state, the first paper before it: without state
    # weights of the candidate the two are one.
    x = x.copy()
    x[6:30].reshape(3, 2, 4)[2, :, 2:] = 0.0
    cell = eqx.tree_at(lambda m: m.weight_hh, cell, cell.weight_hh.at[4:].set(0.0))
    for number in inputs:
        held = cell(jnp.array([number]), held)
        states += list(np.array(held))
    np.testing.assert_allclose(value("GRU_Unrolled", x), states, rtol=1e-10)


def test_attention_against_numpy():
    x = point("Attention_TwoLayers")
    tokens = x[:8].reshape(4, 2)
    for layer in range(2):
        query, key, mix = x[8 + 12 * layer :][:12].reshape(3, 2, 2)
        shares = scipy.special.softmax(tokens @ query @ (tokens @ key).T, axis=1)
        tokens = tokens + np.tanh(shares @ tokens @ mix)
    np.testing.assert_allclose(value("Attention_TwoLayers", x), tokens.ravel(), rtol=1e-10)
