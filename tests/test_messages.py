"""Messages of the commonest misuses: what came, what is expected, what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from veenv.env import random_action

X = jnp.ones(3)
SINES = lambda x: jnp.sin(jnp.sin(jnp.sin(x)))  # noqa: E731
NAMES = "forward, fwd, reverse, rev, markowitz, best, .* got"


def square(x: Any) -> Any:
    return x * x


def product(x: Any, y: Any) -> Any:
    return x * y


def jacobian(fun: Callable[..., Any] = square, *args: Any, **options: Any) -> Callable[[], Any]:
    return lambda: veenv.jacve(fun, **options)(*(args or (X,)))


def fused(fun: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    return lambda: veenv.fuse(fun)(*(args or (X,)))


def robertson(play: Callable[..., Any], **options: Any) -> Callable[[], Any]:
    """A call with the environment, and its first state."""

    def run() -> Any:
        env = veenv.make("Robertson", **options)
        return play(env, env.init())

    return run


def optimize(**options: Any) -> Callable[[], Any]:
    return lambda: veenv.optimize("Robertson", **options)


BUDGET = "budget must be a time such as '10s', .* number of evaluations, got "
MISUSES: dict[str, tuple[type[Exception], str, Callable[[], Any]]] = {
    # functions and arguments
    "the result": (TypeError, "fun must be callable, got Array", lambda: veenv.jacve(square(X))),
    "a string": (TypeError, "argument 0 must hold arrays or numbers .* got 'abc' of type str; "
                 "argnums", jacobian(square, "abc")),
    "an object": (TypeError, "of type object at .'a'.; argnums",
                  jacobian(lambda d: d["x"], {"x": X, "a": object()})),
    "integers": (TypeError, r"floating-point arguments, got dtype int32 of shape \(3,\); pass "
                 r"floats \(1.0, x.astype\(float\)\), or allow_int",
                 jacobian(square, jnp.arange(3))),
    "a bool": (TypeError, "got dtype bool", jacobian(lambda x: jnp.where(x, 1.0, 2.0), True)),
    "complex output": (TypeError, "real outputs, got dtype complex64 .* holomorphic=True",
                       jacobian(lambda x: jax.lax.complex(x, x))),
    "complex argument": (TypeError, "dtype complex64 .*holomorphic=True",
                         jacobian(square, jnp.ones(3, "complex64"))),
    "integer output": (TypeError, "real outputs, got dtype int32 .* has_aux=True",
                       jacobian(lambda x: (x > 0).astype(int))),
    "aux forgotten": (TypeError, r"dtype int32 of shape \(\) at \[1\]; pass has_aux=True",
                      jacobian(lambda x: (x * x, jnp.argmax(x)))),
    "no aux": (TypeError, r"must return \(output, aux\), got .*leave out has_aux",
               jacobian(has_aux=True)),
    "holomorphic": (TypeError, "complex arguments, got dtype float32 .* leave holomorphic away",
                    jacobian(holomorphic=True)),
    "a string out": (TypeError, "<class 'str'> at output component", jacobian(lambda x: [x, "a"])),
    "an argument too few": (TypeError, "missing 1 required positional", jacobian(product)),
    "shapes": (TypeError, r"got \(3,\) and \(4,\)", jacobian(lambda x: x @ jnp.ones(4))),
    "a branch": (jax.errors.TracerBoolConversionError, "value of the argument x",
                 jacobian(lambda x: x if x[0] > 0 else -x)),
    "argnums too large": (ValueError, "argnums 3 is out of range .* 1 positional arguments, "
                          r"expected -1 \.\. 0", jacobian(argnums=3)),
    "argnums twice": (ValueError, r"must not repeat an argument, got \(0, 0\)",
                      jacobian(product, X, X, argnums=(0, 0))),
    "argnums of floats": (TypeError, "an int or a sequence of ints, got 1.5",
                          jacobian(argnums=1.5)),
    "argnums by name": (TypeError, "an int or a sequence of ints, got 'x'", jacobian(argnums="x")),
    "by keyword": (ValueError, "pass these keyword arguments by position: 'x'",
                   lambda: veenv.jacve(square)(x=X)),
    "laplacian": (ValueError, r"argnums 2 is out of range .*expected -1 \.\. 0",
                  lambda: veenv.laplacian(square, argnum=2)(X)),
    "hessian": (TypeError, "got 'abc' of type str", lambda: veenv.hessian(square)("abc")),
    # options
    "an option": (TypeError, "unexpected keyword argument 'argnum'", jacobian(argnum=0)),
    "kernel": (ValueError, "one of auto, xla, fused .*, got 'fuse'", jacobian(kernel="fuse")),
    "pin": (ValueError, "\"auto\", True or False, got 'yes'", jacobian(pin="yes")),
    "batch": (ValueError, "positive number of points, got 'a'",
              lambda: veenv.explain(square, X, batch="a")),
    # orders
    "argnums as the order": (ValueError, r"vertex 0, .* 1 \.\. 1 .*argnums=\(0, 1\)",
                             jacobian(product, X, X, order=(0, 1))),
    "a number as the order": (TypeError, NAMES + " 1; did you mean argnums=1", jacobian(order=1)),
    "an order's name": (ValueError, NAMES + " 'revers'; did you mean 'reverse'",
                        jacobian(order="revers")),
    "a vertex too few": (ValueError, "misses 1 of 2 .*: 2; an order names each vertex of "
                         "graph.eliminable once", jacobian(SINES, order=(1,))),
    "a vertex twice": (ValueError, "repeats vertex 1; an order names each",
                       jacobian(SINES, order=(1, 1))),
    "no such vertex": (ValueError, r"vertex 9, but the graph's vertices are 1 \.\. 3",
                       jacobian(SINES, order=(1, 2, 9))),
    "another graph's order": (ValueError, "'Robertson' is for another graph: vertices 8 against 1",
                              jacobian(order=veenv.best_order("Robertson"))),
    "no order file": (FileNotFoundError, "no order file; Order.save writes one, .*'nofile.json'",
                      jacobian(order="nofile.json")),
    "seconds": (ValueError, "positive number, got '10 s'", lambda: veenv.Auto(seconds="10 s")),
    "best order": (ValueError, "'Robertsn'; did you mean Robertson",
                   lambda: veenv.best_order("Robertsn")),
    "best order of a function": (TypeError, "a task's name, got .*veenv.optimize",
                                 lambda: veenv.best_order(square)),
    # kernels
    "an array": (TypeError, "a function of one point, got Array", lambda: veenv.fuse(X)),
    "vmap forgotten": (ValueError, r"more than 60,000 entries.*jax\.vmap around",
                       fused(lambda x: x.sum(), jnp.ones(70_000))),
    "printing": (ValueError, "'debug_print' cannot be fused: print what the kernel returns",
                 fused(lambda x: (jax.debug.print("{}", x), x)[1])),
    "a callback": (ValueError, "'pure_callback' .*throw=False",
                   fused(lambda x: jax.pure_callback(np.sin, x, x))),
    "eigenvalues": (ValueError, "'eig' cannot be fused: take jnp.linalg.eigh",
                    fused(jnp.linalg.eigvals, jnp.eye(3))),
    "a dtype": (ValueError, "float8_e4m3fn cannot be fused; a kernel takes floats of 16 to 64",
                fused(square, X.astype(jnp.float8_e4m3fn))),
    "a static argument": (ValueError, r"static_argnums=\(5,\), but only accepts 1",
                          lambda: veenv.fuse(square, static_argnums=5)(X)),
    # environments
    "a set": (ValueError, "unknown set 'scalar-smal'; known: .*scalar-small,",
              lambda: veenv.sets("scalar-smal")),
    "shaping": (ValueError, "one of forward, reverse, markowitz, classical, .* got 'rev'",
                robertson(lambda e, s: e, shaping="rev")),
    "normalize": (TypeError, "unexpected keyword argument 'normalize'",
                  robertson(lambda e, s: e, normalize=True)),
    "no vertex": (ValueError, "no vertex to eliminate.*see argnums",
                  lambda: veenv.make(lambda x: x, 1.0)),
    "a mask": (TypeError, "takes a mask .*, got State: pass state.action_mask",
               robertson(lambda e, s: random_action(jax.random.key(0), s))),
    "no key": (TypeError, "missing 1 required positional argument: 'action'",
               robertson(lambda e, s: e.step(s, 1))),
    "Gymnasium's name": (gymnasium.error.NameNotFound, "Did you mean: `Robertson`",
                         lambda: gymnasium.make("veenv/Robertsn-v0")),
    "Gymnasium's option": (TypeError, "unexpected keyword argument 'normalize'",
                           lambda: gymnasium.make("veenv/Robertson-v0", normalize=True)),
    # searches and policies
    "no unit": (ValueError, BUDGET + "'10 parsecs'", optimize(budget="10 parsecs")),
    "a negative budget": (ValueError, BUDGET + "-1", optimize(budget=-1)),
    "no budget": (ValueError, BUDGET + "'0s'", optimize(budget="0s")),
    "a method": (ValueError, "one of auto, anneal, .* got 'anneall'", optimize(method="anneall")),
    "scores": (TypeError, "integers, the slots; got dtype float32: .*jnp.argmax",
               lambda: veenv.evaluate(lambda key, obs, mask: mask.astype(float).sum(-1),
                                      ["Robertson"])),
    "no policy": (ValueError, "'nofolder' is neither a file or folder nor a method",
                  lambda: veenv.evaluate("nofolder", ["Robertson"])),
    "a drawing": (TypeError, "a graph, a task's name, an order or a state, got function",
                  lambda: veenv.draw(square)),
}  # fmt: skip


@pytest.mark.parametrize("name", MISUSES)
def test_misuses(name: str) -> None:
    kind, message, misuse = MISUSES[name]
    with pytest.raises(kind, match=f"(?s){message}"):
        misuse()
