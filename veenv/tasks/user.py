"""Makes a task of a user's function: ``MODULE:NAME`` and the arguments to trace it at."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from veenv.graph.graph import Graph
from veenv.graph.linearisation import make_graph
from veenv.tasks.task import Task

_DTYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "bool": "bool",
    "c64": "complex64",
    "c128": "complex128",
}
"""Types of `shapes`, as JAX abbreviates them."""

_SHAPE = re.compile(r"\s*(\w+)\s*(?:\[([\d\s,]*)\])?\s*(?:,|$)")
_MANY = 2**27
"""Most numbers in an argument described by its shape."""


def from_path(
    path: str, args: str | None = None, argnums: str | int | Iterable[int] | None = None
) -> Task:
    """Returns the task of a function in a module, looked for in the current folder first.

    Args:
      path: ``"MODULE:NAME"``.
      args: its arguments: a Python tuple such as ``"(1.0, [2.0, 3.0])"``, whose lists are arrays,
        or shapes such as ``"f32[3],f32[3,4]"``, for which positive numbers near one are drawn; by
        default what the function ``NAME_args()`` of the same module returns.
      argnums: arguments to differentiate by, a text such as ``"0,2"`` or numbers; by default all
        that hold floating-point numbers only.

    Returns:
      The task, named by its path.

    Raises:
      ValueError: there is no such module or function, it has no arguments, or they are not of
        that form.

    Examples:
      >>> task = from_path("math:hypot", "f32[],f32[]")
      >>> task.name, task.argnums
      ('math:hypot', (0, 1))
    """
    fun, beside = find(path)
    if not callable(fun):
        raise ValueError(f"--function {path}: expected a function, got {type(fun).__name__}")
    if args is None:
        if beside is None:
            raise ValueError(
                f"--function {path} needs --args: a tuple such as '(1.0, [2.0, 3.0])', shapes such "
                f"as 'f32[3],f32[3,4]', or a function {path.partition(':')[2]}_args() next to it "
                "that returns the tuple"
            )
        text = f"{path}_args()"
        point = _call(beside, text)
    else:
        text, point = f"--args {args}", read_point(args)
    return from_function(fun, point, argnums, name=path, text=text)


def refuse_code(path: Any, named: Any, kind: str = "function") -> NoReturn:
    """Refuses to import what a file names: files are data, and never executed.

    Args:
      path: the file.
      named: what it names.
      kind: what that is, and the option for it.

    Raises:
      ValueError: always, saying how to name it.
    """
    raise ValueError(
        f"{path} names the {kind} {named!r:.200}, and code runs only if the command line names "
        f"it: add --{kind}{' (and --args)' * (kind == 'function')}"
    )


def from_function(
    fun: Callable[..., Any],
    point: tuple[Any, ...],
    argnums: str | int | Iterable[int] | None = None,
    *,
    name: str | None = None,
    text: str = "args",
) -> Task:
    """Returns the task of a function and a point.

    Args:
      fun: the function.
      point: its arguments, a pytree of numbers or arrays for each.
      argnums: as `from_path` takes it.
      name: name of the task; the function's by default.
      text: what errors call the point.

    Returns:
      The task; floating-point numbers of 32 bits are kept in 64, for the proof of an order.

    Raises:
      ValueError: the point is no tuple of arrays, or `argnums` names no argument of it.

    Examples:
      >>> import jax.numpy as jnp
      >>> from_function(jnp.sin, (1.0,), name="sine").argnums
      (0,)
    """
    if not isinstance(point, tuple):
        raise ValueError(f"{text} must be a tuple of arguments, got {type(point).__name__}")
    try:
        wide = jax.tree.map(_as_array, point)
    except TypeError as error:
        raise ValueError(f"{text}: {error}") from None
    wanted = _argnums(argnums, wide, text)
    named = name or getattr(fun, "__name__", "function")
    return Task(named, fun, lambda: jax.tree.map(np.copy, wide), wanted, "", "")


def trace_task(task: Task) -> Graph:
    """Returns the graph of a task; errors explain why one cannot be traced.

    Args:
      task: the task.

    Raises:
      ValueError: JAX cannot trace the function at its point, naming the function and the reason.

    Examples:
      >>> import jax.numpy as jnp
      >>> trace_task(from_function(lambda x: jnp.sin(x) * x, (1.0,))).num_inputs
      1
    """
    try:
        return make_graph(task.fun, task.argnums)(*task.example_args())
    except Exception as error:
        shapes = ", ".join(str(jax.tree.map(jnp.shape, arg)) for arg in task.example_args())
        raise ValueError(
            f"{task.name} cannot be traced at arguments of shapes {shapes}: "
            f"{type(error).__name__}: {error}{_line_of(task.fun, error)}"
        ) from error


def _line_of(fun: Any, error: Exception) -> str:
    """Returns the last line of the function's file in an error's traceback."""
    file = getattr(getattr(inspect.unwrap(fun), "__code__", None), "co_filename", None)
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    return f" ({file}:{lines[-1]})" if lines else ""


def read_point(text: str) -> tuple[Any, ...]:
    """Reads arguments from text, as `from_path` takes it.

    Args:
      text: the literal of a tuple, or shapes.

    Raises:
      ValueError: it is neither.

    Examples:
      >>> [np.shape(x) for x in read_point("(1.0, [2.0, 3.0])")], read_point("f32[2]")[0].shape
      ([(), (2,)], (2,))
    """
    if re.match(r"\s*[a-z]+\d*\s*[\[,]|\s*(f|i|c|bf)\d+\s*$", text):
        return read_shapes(text)
    try:
        value = ast.literal_eval(text)
        if not isinstance(value, tuple):
            raise TypeError("not a tuple")
        return jax.tree.map(_as_array, value, is_leaf=lambda leaf: isinstance(leaf, list))
    except (ValueError, SyntaxError, TypeError) as error:
        raise ValueError(
            "--args must be a Python tuple of numbers and lists such as '(1.0, [2.0, 3.0])', or "
            f"shapes such as 'f32[3],f32[3,4]'; got {text!r} ({error})"
        ) from None


def read_shapes(text: str) -> tuple[np.ndarray, ...]:
    """Returns arrays of given types and shapes; floats are drawn between 1/2 and 3/2.

    Integers are one, booleans true.  The numbers are the same every time.

    Args:
      text: such as ``"f32[3],f32[3,4]"``; a number is ``f32[]``.

    Raises:
      ValueError: it is not of that form.

    Examples:
      >>> [(x.shape, str(x.dtype)) for x in read_shapes("f32[3], i32[]")]
      [((3,), 'float32'), ((), 'int32')]
    """
    rng, arrays, start = np.random.default_rng(0), [], 0
    while start < len(text):
        match = _SHAPE.match(text, start)
        if not match or match[1] not in _DTYPES:
            raise ValueError(
                "--args must be shapes such as 'f32[3],f32[3,4]', of types "
                f"{', '.join(_DTYPES)}; got {text[start:]!r}"
            )
        shape = tuple(int(n) for n in (match[2] or "").split(",") if n.strip())
        if np.prod(shape, dtype=float) > _MANY:
            raise ValueError(f"--args {match[0].strip(' ,')} has more than {_MANY:,} numbers")
        dtype = jnp.dtype(_DTYPES[match[1]])
        exact = not jnp.issubdtype(dtype, jnp.inexact)
        drawn = np.ones(shape) if exact else rng.uniform(0.5, 1.5, shape)
        arrays.append(np.asarray(drawn).astype(dtype))
        start = match.end()
    return tuple(arrays)


def find(path: str, option: str = "--function") -> tuple[Any, Callable[..., Any] | None]:
    """Imports the object that a path names, looked for in the current folder first.

    Args:
      path: ``"MODULE:NAME"``.
      option: what errors call it.

    Returns:
      It, and the function of its arguments if there is one.

    Raises:
      ValueError: there is no such thing.

    Examples:
      >>> import math
      >>> find("math:hypot")[0] is math.hypot
      True
    """
    module, _, name = path.partition(":")
    if not module or not name:
        raise ValueError(f"{option} must be MODULE:NAME, got {path!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        imported = importlib.import_module(module)
        named = getattr(imported, name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{option} {path}: {error}") from error
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{option} {path}: importing {module} fails: {reason}") from error
    return named, getattr(imported, f"{name}_args", None)


def _call(beside: Callable[..., Any], text: str) -> Any:
    try:
        return beside()
    except Exception as error:
        raise ValueError(f"{text} fails: {type(error).__name__}: {error}") from error


def _as_array(leaf: Any) -> np.ndarray:
    array = np.asarray(leaf)
    if not (jnp.issubdtype(array.dtype, jnp.number) or array.dtype == bool):
        raise TypeError(f"{leaf!r:.60} is not a number, an array or a list of numbers")
    wider = {"float32": np.float64, "complex64": np.complex128}.get(str(array.dtype))
    return array if wider is None else array.astype(wider)


def _argnums(
    argnums: str | int | Iterable[int] | None, point: tuple[Any, ...], text: str
) -> tuple[int, ...]:
    """Checks and returns the arguments to differentiate by."""
    if argnums is None:
        floats = lambda x: jnp.issubdtype(x.dtype, jnp.floating)  # noqa: E731
        each = enumerate(map(jax.tree.leaves, point))
        wanted = tuple(k for k, leaves in each if leaves and all(map(floats, leaves)))
        if not wanted:
            raise ValueError(
                f"{text} has no argument of floating-point numbers to differentiate by"
            )
        return wanted
    try:
        if isinstance(argnums, str):
            wanted = tuple(int(n) for n in argnums.split(","))
        else:
            wanted = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    except ValueError:
        raise ValueError(f"argnums must be numbers such as 0,2, got {argnums!r}") from None
    for n in wanted:
        if not -len(point) <= n < len(point):
            raise ValueError(f"argnums names argument {n}, but {text} has {len(point)}")
    return wanted
