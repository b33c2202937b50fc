"""Every differentiable function of `jax.nn`, and the layers and models built from them."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, nn

from tests.engine.corpus.case import case, distinct, inside, normal, promoted, uniform

X = distinct(2, 4)
Q, K, V = (normal(1, 3, 2, 2, seed=s) for s in range(3))
COVERED_ELSEWHERE = {
    "get_scaled_dot_general_config",  # a configuration, not a function of arrays
    "initializers",  # a module
    "one_hot",  # gather-one_hot_lookup: constant
    "scaled_dot_general",  # quantises; JAX implements it for some GPUs only
    "scaled_matmul",  # the same
}

ACTIVATIONS = {
    "celu": nn.celu, "elu": nn.elu,
    "gelu": lambda x: nn.gelu(x) + nn.gelu(2 * x, approximate=False),
    "glu": nn.glu,
    "hard_sigmoid": lambda x: nn.hard_sigmoid(4 * x),
    "hard_silu": nn.hard_silu, "hard_swish": nn.hard_swish, "hard_tanh": nn.hard_tanh,
    "identity": nn.identity, "leaky_relu": nn.leaky_relu,
    "log1mexp": lambda x: nn.log1mexp(x * x + 0.1), "log_sigmoid": nn.log_sigmoid,
    "log_softmax": nn.log_softmax,
    "logmeanexp": lambda x: nn.logmeanexp(x, axis=1),
    "logsumexp": lambda x: nn.logsumexp(x, axis=0, b=np.array([[1.0], [0.5]])),
    "mish": nn.mish, "relu": nn.relu, "relu6": lambda x: nn.relu6(8 * x), "selu": nn.selu,
    "sigmoid": nn.sigmoid, "silu": nn.silu, "soft_sign": nn.soft_sign,
    "softmax": lambda x: nn.softmax(x) + nn.softmax(x, axis=0, where=np.abs(X) < 1.2),
    "softplus": nn.softplus, "sparse_plus": nn.sparse_plus, "sparse_sigmoid": nn.sparse_sigmoid,
    "squareplus": nn.squareplus,
    "standardize": lambda x: nn.standardize(x, epsilon=1e-3),
    "swish": nn.swish, "tanh": nn.tanh,
}  # fmt: skip
_SAME_SHAPE = {"glu", "logmeanexp", "logsumexp"}

FUNCTIONS = [
    *(case(name, (lambda x, f=f: f(1.1 * x) * 2) if name in _SAME_SHAPE else inside(f),
        X) for name, f in ACTIVATIONS.items()),
    case("dot_product_attention", promoted(lambda q, k, v: nn.dot_product_attention(q * q, k, v)),
        Q, K, V, argnums=(0, 1, 2), tol=2e-5),
    # JAX takes the softmax in float32 and promotes itself
    case("dot_product_attention_causal", promoted(lambda q, b: nn.dot_product_attention(q, K, q
        * V, bias=b, is_causal=True)), Q, normal(1, 2, 3, 3), argnums=(0, 1), tol=2e-5),
    case("relu_at_zero", lambda x: nn.relu(x * x) + nn.relu6(x), np.array([0.0, 0.5, -1.0])),
]  # fmt: skip


def _layer_norm(x, scale, shift):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale[None] + shift[None]


def _attention(x, w):
    q, k, v = (x @ w[n] for n in "qkv")
    return nn.softmax(q @ k.T / np.sqrt(2.0)) @ v


def _transformer_block(params, x):
    x = x + _attention(_layer_norm(x, *params["norm"]), params)
    return x + nn.gelu(x @ params["up"]) @ params["down"]


def _lstm(params, xs):
    def cell(state, x):
        h, c = state
        i, f, g, o = jnp.split(params["wx"] @ x + params["wh"] @ h + params["b"], 4)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
        h = nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(cell, (jnp.zeros(2), jnp.zeros(2)), xs)[1]


def _gru(params, xs):
    def cell(h, x):
        z, r = jnp.split(nn.sigmoid(params["zr"] @ jnp.concatenate([x, h])), 2)
        new = jnp.tanh(params["h"] @ jnp.concatenate([x, r * h]))
        h = (1 - z) * h + z * new
        return h, None

    return lax.scan(cell, jnp.zeros(2), xs)[0]


def _conv_net(params, image):
    x = lax.conv_general_dilated(image, params["k1"], (1, 1), "SAME")
    x = nn.relu(x + params["b1"][None, :, None, None])
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    x = lax.conv_general_dilated(x, params["k2"], (1, 1), "VALID")
    return nn.log_softmax(jnp.tanh(x).reshape(1, -1) @ params["out"])


def _mlp(params, x):
    for w, b in params[:-1]:
        x = jnp.tanh(w @ x + b)
    w, b = params[-1]
    return w @ x + b


def _cross_entropy(params, x, labels):
    logits = jax.vmap(lambda r: _mlp(params, r))(x)
    return -jnp.mean(jnp.take_along_axis(nn.log_softmax(logits), labels[:, None], 1))


def _lorenz(state):
    x, y, z = state
    return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])


def _runge_kutta(state):
    def step(s, _):
        k1 = _lorenz(s)
        k2 = _lorenz(s + 0.005 * k1)
        k3 = _lorenz(s + 0.005 * k2)
        k4 = _lorenz(s + 0.01 * k3)
        return s + 0.01 / 6 * (k1 + 2 * k2 + 2 * k3 + k4), s[0]

    return lax.scan(step, state, None, length=5)


def _kalman(mean, cov, y):
    a, h = np.array([[1.0, 0.1], [0.0, 1.0]]), np.array([[1.0, 0.5]])
    mean, cov = a @ mean, a @ cov @ a.T + 0.1 * np.eye(2)
    gain = jnp.linalg.solve(h @ cov @ h.T + 0.2 * np.eye(1), h @ cov).T
    return mean + gain @ (y - h @ mean), (np.eye(2) - gain @ h) @ cov


def _mixture(logits, means, log_scales, x):
    z = (x[:, None] - means[None]) * jnp.exp(-log_scales)[None]
    return nn.logsumexp((nn.log_softmax(logits) - log_scales)[None] - 0.5 * z * z, axis=1).sum()


def _equinox(parameters, x):
    model = eqx.nn.MLP(2, 2, 3, 1, activation=jnp.tanh, key=jax.random.key(0))
    arrays, static = eqx.partition(model, eqx.is_inexact_array)
    leaves, tree = jax.tree.flatten(arrays)
    moved = jax.tree.unflatten(tree, [a + parameters[i] for i, a in enumerate(leaves)])
    return eqx.combine(moved, static)(x)


LSTM = {"wx": normal(8, 2), "wh": normal(8, 2, seed=1), "b": normal(8)}
GRU = {"zr": normal(4, 4), "h": normal(2, 4)}
CNN = {"k1": normal(2, 1, 2, 2), "b1": normal(2), "k2": normal(2, 2, 2, 2), "out": normal(2, 3)}
MLP = [(normal(3, 2), normal(3)), (normal(2, 3), normal(2))]
BLOCK = {n: normal(2, 2, seed=i) for i, n in enumerate("qkv")}
BLOCK |= {"norm": (uniform(2), normal(2)), "up": normal(2, 3), "down": normal(3, 2)}

MODELS = [
    case("layer_norm", _layer_norm, normal(2, 4), uniform(4), normal(4), argnums=(0, 1, 2)),
    case("attention", lambda x, w: _attention(x, w), normal(3, 2), BLOCK, zero=True,
        argnums=(0, 1)),
    case("transformer_block", _transformer_block, BLOCK, normal(3, 2), argnums=(0, 1), slow=True),
    case("lstm", _lstm, LSTM, normal(3, 2), argnums=(0, 1)),
    case("gru", _gru, GRU, normal(3, 2), argnums=(0, 1)),
    case("conv_net", _conv_net, CNN, distinct(1, 1, 4, 4), argnums=(0, 1)),
    case("mlp", _mlp, MLP, normal(2), argnums=(0, 1)),
    case("cross_entropy", _cross_entropy, MLP, normal(3, 2), np.array([0, 1, 1]), argnums=(0, 1),
        slow=True),
    case("equinox_mlp", _equinox, normal(4), normal(2), argnums=(0, 1)),
    case("ode_loop", _runge_kutta, np.array([1.0, 2.0, 20.0])),
    case("kalman_step", _kalman, normal(2), np.array([[1.0, 0.2], [0.2, 0.5]]), normal(1),
        argnums=(0, 1, 2), zero=True),
    case("mixture", _mixture, normal(3), normal(3, seed=1), normal(3, seed=2), normal(4),
        argnums=(0, 1, 2)),
    case("gradient_of_loss", lambda p, x: jax.grad(lambda p: jnp.sum(_mlp(p, x) ** 2))(p), MLP,
        normal(2), slow=True),
    case("fixed_point_sweeps", lambda x: lax.fori_loop(0, 8,
        lambda _, z: jnp.tanh(0.3 * np.eye(3)[::-1] @ z + x), jnp.zeros(3)), normal(3)),
]  # fmt: skip
