"""Networks of flax, by their parameters and by their inputs: linen and nnx."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from tests.clients.ecosystem.check import filled, jacobian_test, library, usual_promotion
from tests.engine.corpus.case import case, normal

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("x64")]
nn = library("flax.linen")
from flax import nnx

F64 = {"dtype": jnp.float64, "param_dtype": jnp.float64}


class _Perceptron(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.gelu(nn.Dense(4, **F64)(x))
        return nn.Dense(2, **F64)(nn.LayerNorm(**F64)(x))


class _Convolution(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(3, (2, 2), **F64)(x) + 0.1)
        x = nn.avg_pool(x, (2, 2), (2, 2))
        return nn.Dense(2, **F64)(nn.GroupNorm(num_groups=1, **F64)(x).reshape(x.shape[0], -1))


class _Attention(nn.Module):
    @nn.compact
    def __call__(self, x):
        attention = nn.MultiHeadDotProductAttention(num_heads=2, qkv_features=4, **F64)
        return attention(x, x, mask=nn.make_causal_mask(jnp.ones(x.shape[:1])))


class _Scanned(nn.Module):
    """Layers of equal shape, one compiled body for all, recomputed in the reverse pass."""

    @nn.compact
    def __call__(self, x):
        body = nn.remat(lambda cell, x, _: (jnp.tanh(cell(x)), None))
        scan = nn.scan(body, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        return scan(nn.Dense(3, **F64), x, None)[0]


class _Recurrent(nn.Module):
    cell: type = nn.OptimizedLSTMCell

    @nn.compact
    def __call__(self, x):
        return nn.RNN(self.cell(3, **F64))(x)


@usual_promotion()
def _linen(module, x, **options):
    """A case that differentiates by a linen module's parameters and its input."""
    variables = filled(jax.eval_shape(module.init, jax.random.key(0), x))
    rest = {name: value for name, value in variables.items() if name != "params"}

    def fun(parameters, x):
        return module.apply({"params": parameters, **rest}, x, mutable=[*rest])[0]

    return case(options.pop("name"), fun, variables["params"], x, argnums=(0, 1), **options)


@usual_promotion()
def _nnx(name, make, *shape):
    """A case that differentiates by an nnx module's parameters and its input."""
    graph, shapes = nnx.split(nnx.eval_shape(lambda: make(nnx.Rngs(0))))
    values = filled(nnx.to_pure_dict(shapes))

    def fun(values, x):
        nnx.replace_by_pure_dict(shapes, values)
        return nnx.merge(graph, shapes)(x)

    return case(name, fun, values, normal(*shape), argnums=(0, 1))


class _Residual(nnx.Module):
    def __init__(self, rngs):
        self.inner = nnx.Linear(3, 4, rngs=rngs, **F64)
        self.outer = nnx.Linear(4, 3, rngs=rngs, **F64)
        self.norm = nnx.RMSNorm(3, rngs=rngs, **F64)

    def __call__(self, x):
        return self.norm(x + self.outer(nnx.swish(self.inner(x))))


def _cases():
    with jax.enable_x64(True):
        return [
            _linen(_Perceptron(), normal(2, 3), name="perceptron"),
            _linen(_Convolution(), normal(2, 4, 4, 1), name="convolution"),
            _linen(_Attention(), normal(3, 4), name="attention", zero=True),
            _linen(_Scanned(), normal(2, 3), name="scanned_remat"),
            _linen(_Recurrent(), normal(2, 3, 2), name="lstm"),
            _nnx("nnx_residual", _Residual, 2, 3),
        ]


test_jacobian = jacobian_test(_cases())
