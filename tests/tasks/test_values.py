"""The further tasks against oracles that share nothing with them: laws, other libraries, limits."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation
from scipy.stats import norm

from tests.oracles.jacobians import quick_jit
from tests.sampling import spared, thinned
from veenv import tasks
from veenv.tasks import kinetics, relativity, spiking
from veenv.tasks.hard import TASKS

NAMES = [*tasks.list(), *(task.name for task in TASKS)]


def point(name):
    return jax.tree.map(jnp.asarray, tasks.get(name).example_args())


@pytest.fixture(autouse=True)
def float64(x64):
    """Oracles need float64."""


@pytest.mark.parametrize("name", thinned(NAMES, 9))
def test_every_input_and_output_matters(name):
    task = tasks.get(name)
    args = task.example_args()
    jacobian = quick_jit(jax.jacrev(task.fun, task.argnums))(*args)
    outputs = jax.tree.leaves(jax.eval_shape(task.fun, *args))
    selected = jax.tree.leaves([args[i] for i in task.argnums])
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(jacobian)]
    assert len(leaves) == len(outputs) * len(selected)
    rows = [leaves[i : i + len(selected)] for i in range(0, len(leaves), len(selected))]
    blocks = [
        [leaf.reshape(out.size, x.size) for leaf, x in zip(row, selected, strict=True)]
        for row, out in zip(rows, outputs, strict=True)
    ]
    dense = np.block(blocks)
    assert np.all(np.isfinite(dense))
    assert np.all(np.any(dense != 0.0, axis=0)), "an input element that no output depends on"
    assert np.all(np.any(dense != 0.0, axis=1)), "an output element that depends on no input"


@pytest.mark.parametrize("name", thinned(tasks.list(), 9))
def test_float32_agrees_with_float64(name):
    task = tasks.get(name)
    args = task.example_args()
    wide = quick_jit(task.fun)(*args)
    with jax.enable_x64(False):
        narrow = quick_jit(task.fun)(*args)
    for a, b in zip(jax.tree.leaves(narrow), jax.tree.leaves(wide), strict=True):
        assert (a.dtype, b.dtype) == (np.float32, np.float64)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.max(np.abs(b)))


@pytest.mark.parametrize("name", NAMES)
def test_every_task_is_described_and_cites_its_source(name):
    task = tasks.get(name)
    assert task.description.endswith(".")
    assert len(task.source) > 8
    assert all(x.dtype == np.float64 for x in jax.tree.leaves(task.example_args()))


def test_black_scholes_against_the_textbook_formula():
    S, K, r, sigma, T = (float(x) for x in point("BlackScholes"))
    d1 = (np.log(S / K) + (r + sigma**2 / 2) * T) / (sigma * np.sqrt(T))
    expected = S * norm.cdf(d1) - K * np.exp(-r * T) * norm.cdf(d1 - sigma * np.sqrt(T))
    np.testing.assert_allclose(tasks.get("BlackScholes").fun(*point("BlackScholes")), expected)


def test_black_scholes_jacobian_is_the_gradient_and_its_jacobian_the_hessian():
    args = point("BlackScholes")
    price, greeks = tasks.get("BlackScholes").fun, tasks.get("BlackScholes_Jacobian").fun
    every = (0, 1, 2, 3, 4)
    gradient, hessian = quick_jit(
        lambda *x: (jax.grad(price, every)(*x), jax.hessian(price, every)(*x))
    )(*args)
    found, derivative = quick_jit(lambda *x: (greeks(*x), jax.jacrev(greeks, every)(*x)))(*args)
    np.testing.assert_allclose(found, gradient, rtol=1e-10)
    np.testing.assert_allclose(derivative, hessian, rtol=1e-9, atol=1e-12)


def test_lstm_against_equinox():
    x, h, c, W, U, b = point("LSTM")
    cell = eqx.nn.LSTMCell(4, 6, key=jax.random.key(0), dtype=jnp.float64)
    cell = eqx.tree_at(lambda m: (m.weight_ih, m.weight_hh, m.bias), cell, (W, U, b))
    for actual, expected in zip(
        tasks.get("LSTM").fun(x, h, c, W, U, b), cell(x, (h, c)), strict=True
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_encoder_decoder_against_scipy_softmax():
    source, target, labels, enc, dec, head = tasks.get("EncoderDecoder").example_args()

    def attend(x, y, q, k, v):
        logits = np.einsum("in,np,jm,mp->ij", x, q, y, k) / 2.0
        return scipy.special.softmax(logits, axis=1) @ (y @ v)

    def norm(layer, i, x):
        centred = x - x.mean(-1, keepdims=True)
        scale = np.sqrt(np.mean(centred**2, -1, keepdims=True) + 1e-6)
        return centred / scale * layer[f"gamma{i}"] + layer[f"beta{i}"]

    def feed(layer, x):
        inner = x @ layer["W1"] + layer["b1"][None]
        return inner * scipy.special.expit(inner) @ layer["W2"] + layer["b2"][None]

    memory = norm(enc, 0, source + attend(source, source, enc["WQ"], enc["WK"], enc["WV"]))
    memory = norm(enc, 1, memory + feed(enc, memory))
    x = norm(dec, 0, target + attend(target, target, dec["WQ"], dec["WK"], dec["WV"]))
    x = norm(dec, 1, x + attend(x, memory, dec["CQ"], dec["CK"], dec["CV"]))
    x = norm(dec, 2, x + feed(dec, x))
    expected = -np.sum(labels * scipy.special.log_softmax(x @ head, axis=-1), axis=-1)
    fun = quick_jit(tasks.get("EncoderDecoder").fun)
    actual = fun(source, target, labels, enc, dec, head)
    np.testing.assert_allclose(actual, expected, rtol=1e-10)


def test_spike_is_a_step_with_the_surrogate_derivative():
    u = jnp.array([-2.0, -0.1, 0.0, 0.3])
    value, slope = jax.jvp(spiking.spike, (u,), (jnp.ones_like(u),))
    np.testing.assert_array_equal(value, [0.0, 0.0, 0.0, 1.0])
    np.testing.assert_allclose(slope, [1 / 121, 1 / 2.25, 1.0, 1 / 6.25])


def test_spiking_steps_by_hand():
    one = jnp.ones(1)
    W, V = 2.0 * jnp.ones((1, 1)), 3.0 * jnp.ones((1, 1))
    s, i, u = spiking.lif_step(one, one, one, one, W, V, 0.5, 0.25, 0.7)
    np.testing.assert_allclose([s[0], i[0], u[0]], [1.0, 5.5, 0.25 + 5.5 - 0.7])
    z, v, a = spiking.alif_step(one, one, one, one, W, V, 0.5, 0.75, 2.0, 0.1)
    np.testing.assert_allclose([z[0], v[0], a[0]], [0.0, 0.5 + 2.5 - 2.1, 1.0])


def test_kerr_metric_identity_and_limit():
    r, theta, mass, a = point("KerrMetric")
    tt, tp, rr, thth, pp = relativity.kerr_metric(r, theta, mass, a)
    delta = r**2 - 2 * mass * r + a**2
    np.testing.assert_allclose(tp**2 - tt * pp, delta * np.sin(theta) ** 2, rtol=1e-12)
    np.testing.assert_allclose(rr * delta, thth, rtol=1e-12)
    schwarzschild = relativity.kerr_metric(r, theta, mass, 0.0 * a)
    lapse = 1 - 2 * mass / r
    np.testing.assert_allclose(
        schwarzschild, [-lapse, 0, 1 / lapse, r**2, (r * np.sin(theta)) ** 2], atol=1e-12
    )


def test_kerr_metric_jacobian_by_differences():
    r, theta, mass, a = point("KerrMetric")
    h = 1e-5
    after, before = (np.array(relativity.kerr_metric(r + k, theta, mass, a)) for k in (h, -h))
    jacobian = relativity.kerr_metric_jacobian(r, theta, mass, a)
    np.testing.assert_allclose([row[0] for row in jacobian], (after - before) / (2 * h), rtol=1e-8)


def integrate(derivative, y, h):
    return solve_ivp(lambda _, y: derivative(y), (0.0, h), y, rtol=1e-11, atol=1e-12).y[:, -1]


def test_lorenz96_against_scipy():
    x, forcing, _ = tasks.get("Lorenz96_RK4").example_args()

    def derivative(x):
        n = len(x)
        return [(x[(i + 1) % n] - x[i - 2]) * x[i - 1] - x[i] + forcing for i in range(n)]

    h = np.array(0.005)
    actual = tasks.get("Lorenz96_RK4").fun(jnp.asarray(x), forcing, h)
    np.testing.assert_allclose(actual, integrate(derivative, x, h), atol=1e-7)


def test_van_der_pol_against_scipy():
    x, v, mu, _ = (float(x) for x in point("VanDerPol_RK4"))
    actual = tasks.get("VanDerPol_RK4").fun(x, v, mu, 0.01)
    expected = integrate(lambda y: [y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]], [x, v], 0.01)
    np.testing.assert_allclose(actual, expected, rtol=1e-8)


def test_double_pendulum_keeps_its_energy_and_falls():
    args = tasks.get("DoublePendulum_RK4").example_args()
    m1, m2, l1, l2 = args[4:]

    def energy(t1, t2, w1, w2):
        height1 = -l1 * np.cos(t1)
        height2 = height1 - l2 * np.cos(t2)
        cross = 2 * l1 * l2 * w1 * w2 * np.cos(t1 - t2)
        speed2 = (l1 * w1) ** 2 + (l2 * w2) ** 2 + cross
        kinetic = 0.5 * m1 * (l1 * w1) ** 2 + 0.5 * m2 * speed2
        return kinetic + 9.81 * (m1 * height1 + m2 * height2)

    state = args[:4]
    step = jax.jit(tasks.get("DoublePendulum_RK4").fun)
    for _ in range(50):
        state = step(*state, *args[4:])
    np.testing.assert_allclose(energy(*state), energy(*args[:4]), atol=1e-4)
    # Both rods nearly at rest and hanging: the small oscillation of one pendulum.
    t1, t2, *_ = step(0.01, 0.01, 0.0, 0.0, 1.0, 1e-9, 1.0, 1.0)
    np.testing.assert_allclose(t1, 0.01 * np.cos(np.sqrt(9.81) * 0.02), rtol=1e-6)
    assert t2 != t1


def test_reprojection_against_scipy_rotation():
    omega, translation, focal, k1, k2, x, observed = tasks.get("Reprojection").example_args()
    seen = Rotation.from_rotvec(omega).apply(x) + translation
    image = -seen[:2] / seen[2]
    r2 = image @ image
    expected = focal * (1 + k1 * r2 + k2 * r2**2) * image - observed
    np.testing.assert_allclose(tasks.get("Reprojection").fun(*point("Reprojection")), expected)


def test_robertson_conserves_mass():
    rates = tasks.get("Robertson").fun(*point("Robertson"))
    np.testing.assert_allclose(rates, [-0.04 * 0.7 + 0.056, 0.028 - 0.056 - 0.12, 0.12])
    np.testing.assert_allclose(sum(rates), 0.0, atol=1e-15)


def test_hydrogen_oxygen_conserves_atoms_and_agrees_with_a_loop():
    c, T = tasks.get("HydrogenOxygen").example_args()
    rates = np.asarray(tasks.get("HydrogenOxygen").fun(jnp.asarray(c), T))
    hydrogen, oxygen = [2, 1, 0, 0, 1, 2, 1, 2], [0, 0, 1, 2, 1, 1, 2, 2]
    scale = np.max(np.abs(rates))
    np.testing.assert_allclose([rates @ hydrogen, rates @ oxygen], 0.0, atol=1e-12 * scale)

    # H2O2 + H = H2O + OH and the like by plain loops; third bodies and falloff by the definition.
    names = list(kinetics.SPECIES)

    def constant(a, n, e):
        return a * T**n * np.exp(-e / (1.98720425864 * T))

    def mixture(**efficiency):
        return sum(efficiency.get(s, 1.0) * x for s, x in zip(names, c, strict=True))

    expected = np.zeros(9)
    plain = mixture(H2=2.5, H2O=12.0)
    high = kinetics._FALLOFF
    factors = [1.0] * 15 + [plain] * 4
    for low, reaction, centre, third in (
        ((6.366e20, -1.72, 524.8), high[0], 0.8, mixture(H2=2.0, H2O=11.0, O2=0.78)),
        ((1.202e17, 0.0, 45500.0), high[1], 0.5, plain),
    ):
        reduced = constant(*low) * third / constant(*reaction[2:])
        log_c = np.log10(centre)
        shifted = np.log10(reduced) - 0.4 - 0.67 * log_c
        log_f = log_c / (1 + (shifted / (0.75 - 1.27 * log_c - 0.14 * shifted)) ** 2)
        factors.append(reduced / (1 + reduced) * 10**log_f)
    reactions = (*kinetics._ELEMENTARY, *kinetics._THIRD_BODY, *high)
    assert len(reactions) == 21
    for (reactants, products, *arrhenius), factor in zip(reactions, factors, strict=True):
        rate = constant(*arrhenius) * factor
        for name in reactants.split():
            rate *= c[names.index(name)]
        for name in reactants.split():
            expected[names.index(name)] -= rate
        for name in products.split():
            expected[names.index(name)] += rate
    np.testing.assert_allclose(rates, expected[:8], rtol=1e-10)


def test_euler_residual_conserves_and_vanishes_for_a_uniform_state():
    args = point("EulerResidual_32")
    fun = tasks.get("EulerResidual_32").fun
    for new, old, res in zip(args[:3], args[3:6], fun(*args), strict=True):
        np.testing.assert_allclose(jnp.sum(res), jnp.sum(new - old), rtol=1e-10)
    uniform = [x * jnp.ones(32) for x in (1.0, 0.4, 2.5)]
    for res in fun(*uniform, *uniform, 0.3):
        np.testing.assert_allclose(res, 0.0, atol=1e-14)


@pytest.mark.parametrize(
    ("name", "batch"),
    spared([("RoeFlux_1d", 16), ("RobotArm_6DOF", 16), ("Reprojection", 8)], ("Reprojection", 8)),
)
def test_batched_tasks_repeat_the_single_one(name, batch):
    args = point(f"{name}_batch{batch}")
    single = point(name)
    batched = jax.tree.leaves(tasks.get(f"{name}_batch{batch}").fun(*args))
    for i in (0, batch - 1):
        row = [x if x.ndim == y.ndim else x[i] for x, y in zip(args, single, strict=True)]
        for b, s in zip(batched, jax.tree.leaves(tasks.get(name).fun(*row)), strict=True):
            np.testing.assert_allclose(b[i], s, rtol=1e-12, atol=1e-12)
