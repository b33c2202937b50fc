"""Traces a Python function to a flat list of equations with numbered vertices.

`trace` runs `jax.make_jaxpr`, inlines nested `jit` and closed calls, and numbers every equation
output: vertex ids are 1-based and follow equation order, so a function whose equations all have
one output numbers its vertices as its equations.  As in `jax.jvp`, what does not depend on the
arguments that are differentiated by is computed at once.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend import core, source_info_util

from veenv import _compat
from veenv.graph.captured import as_one_equation, at_once
from veenv.graph.equations import Equation, Literal, Var
from veenv.graph.refs import fold_refs
from veenv.graph.shardings import loosened
from veenv.graph.sparse_matrices import written_out
from veenv.linear.barrier import pins_as_written
from veenv.rules import walk
from veenv.rules.base import has_symbols, merge_leaves, replaced, split_leaves
from veenv.rules.definitions import definition_of, with_definitions
from veenv.rules.table import facts

source_info_util.register_exclusion(__file__)
_TRACEABLE = (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct)
# Errors of JAX where a tracer's value is needed: TypeErrors, and IndexErrors of slices and masks.
_NEEDS_VALUES = (TypeError, IndexError)
_POSITIONAL = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD


@dataclass(frozen=True)
class Program:
    """A traced function: inputs, constants and equations in evaluation order.

    Variables ``0 .. num_inputs - 1`` are the leaves of the selected arguments; then come the other
    arguments and captured constants (values in `constants`); then the equation outputs.
    """

    num_inputs: int  # number of leaves to differentiate by
    # values of the variables after the inputs that are no results of equations
    constants: tuple[Any, ...]
    equations: tuple[Equation, ...]  # the equations
    outputs: tuple[Var | Literal, ...]  # a variable or `Literal` for each output leaf
    avals: tuple[Any, ...]  # shape and dtype of every variable
    out_avals: tuple[Any, ...]  # shape and dtype of every output leaf
    out_tree: Any  # pytree structure of the output (the auxiliary part excluded)
    # (variables or literals, shapes and dtypes, pytree structure) of the auxiliary output, which is
    # all arrays (`HiddenAux`); None without one
    aux: tuple[tuple[Var | Literal, ...], tuple[Any, ...], Any] | None
    replay: Callable[..., Any]  # the function as it was traced, for arguments of the same shapes
    # other traces, tried in turn where a derivative rule closes over a value of the trace: with
    # everything that does not depend on the inputs evaluated, and as one equation
    retraces: tuple[Callable[[Exception], Program], ...] = ()

    @functools.cached_property
    def vertex_variables(self) -> tuple[Var, ...]:
        """The variable of vertex id i, at index i - 1."""
        return tuple(o for e in self.equations for o in e.outvars if o is not None)

    @property
    def returned(self) -> tuple[Var | Literal, ...]:
        """A variable or literal for each output leaf, those of the auxiliary output included."""
        return *self.outputs, *(self.aux[0] if self.aux else ())

    def variable(self, node: int) -> Var:
        """Returns the variable of an input or a vertex, numbered as in a graph."""
        vertex = node - self.num_inputs
        return node if vertex < 0 else self.vertex_variables[vertex]


def trace(
    fun: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    *,
    argnums: int | Iterable[int] = 0,
    has_aux: bool = False,
    plain: bool = False,
) -> Program:
    """Traces `fun` at the shapes and dtypes of `args`.

    Args:
      fun: a JAX-traceable function of pytrees.
      args: positional arguments: arrays, `jax.ShapeDtypeStruct`s or tracers; those that are not
        differentiated by may be anything, and outside of jit their values may decide what fun does.
      kwargs: keyword arguments; never differentiated by.
      argnums: which positional arguments to differentiate by.
      has_aux: whether `fun` returns ``(output, aux)``.
      plain: see what depends on the inputs as a function, not through its derivative: rules that
        functions bring along are left out, and gradients do not stop.

    Returns:
      The flat program.

    Raises:
      TypeError: if `has_aux` is set and `fun` does not return a pair.
      jax.errors.ConcretizationTypeError: if the control flow of `fun` depends on the value of an
        argument that is differentiated by, or inside of jit of any.
    """
    kwargs = kwargs or {}
    wanted = normalise_argnums(argnums, len(args), kwargs)
    selected = tuple(args[a] for a in wanted)
    _check_arrays({a: args[a] for a in wanted})
    rest = tuple(None if i in wanted else a for i, a in enumerate(args))
    nondiff, nondiff_tree = jax.tree.flatten((rest, kwargs))
    out_trees: list[_Returned] = []

    def flat(*inputs: Any) -> Any:
        *selected, abstract = inputs
        leaves = [abstract.get(n, leaf) for n, leaf in enumerate(nondiff)]
        rest, kwargs = jax.tree.unflatten(nondiff_tree, leaves)
        full = replaced(rest, wanted, selected)
        out, aux = with_aux(fun(*full, **kwargs)) if has_aux else (fun(*full, **kwargs), ())
        (leaves, tree), (more, aux_tree) = jax.tree.flatten(out), jax.tree.flatten(aux)
        out_trees.append(_Returned(tree, len(leaves), aux_tree if has_aux else None))
        return leaves, more

    def program(closed: Any, traced: dict[int, Any]) -> Program:
        closed = with_definitions(loosened(closed))
        return _program(closed, wanted, traced, out_trees[-1], plain=plain)

    traced = {n: leaf for n, leaf in enumerate(nondiff) if isinstance(leaf, _TRACEABLE)}
    named = _named_as(fun, wanted, flat)
    closed, nondiff_inputs = _make_jaxpr(named, selected, traced)
    first = program(closed, nondiff_inputs)

    def whole(refused: Exception) -> Program:
        return as_one_equation(first, named, (*selected, nondiff_inputs), closed.out_avals, refused)

    def known(_: Exception | None = None) -> Program:
        try:
            return program(*_known_jaxpr(named, selected, traced))
        except Exception as error:  # evaluation may fail: a check in a branch not taken
            return whole(error)

    if any(map(_compat.is_over, _compat.constants_within(e.params for e in first.equations))):
        return replace(known(), retraces=(whole,))  # it may be lost in a rule inside a loop
    return replace(first, retraces=(known, whole))


def _check_arrays(arguments: dict[int, Any]) -> None:
    """Refuses arguments to differentiate by that are neither arrays nor numbers."""
    for a, argument in arguments.items():
        for path, leaf in jax.tree_util.tree_leaves_with_path(argument):
            array = isinstance(leaf, (int, float, complex)) or hasattr(leaf, "dtype")
            if not (array or hasattr(leaf, "__jax_array__")):
                where = jax.tree_util.keystr(path)
                raise TypeError(
                    f"argument {a} must hold arrays or numbers to be differentiated by, got "
                    f"{leaf!r} of type {type(leaf).__name__}{where and ' at ' + where}; argnums "
                    "selects the arguments"
                )


@dataclass(frozen=True)
class _Returned:
    """Structure of a traced function's output: everything but the values of leaves."""

    tree: Any  # pytree structure of the output
    count: int  # number of its leaves
    aux_tree: Any  # that of the auxiliary output; None without

    def put(self, leaves: Sequence[Any]) -> Any:
        """Rebuilds the function's output from the values of its leaves."""
        out = jax.tree.unflatten(self.tree, leaves[: self.count])
        if self.aux_tree is None:
            return out
        return out, jax.tree.unflatten(self.aux_tree, leaves[self.count :])


def is_symbolic(program: Program) -> bool:
    """Returns whether a program holds axes whose sizes `jax.export` knows as symbols."""
    inner = (i for e in program.equations for i in walk.inside(e.params))
    avals = itertools.chain(program.avals, *map(walk.out_avals, inner))
    return any(map(has_symbols, avals))


def refuse_symbolic(program: Program) -> None:
    """Raises where there would have to be a graph of axes of symbolic size."""
    if is_symbolic(program):
        raise ValueError(
            "arrays of symbolic size have no graph, as its operations are counted: export with the "
            'default order, "reverse" or "forward", for which JAX\'s own modes take the place of '
            "an elimination, or map the Jacobian of one point over a symbolic batch with jax.vmap"
        )


def _program(
    closed: Any,
    wanted: tuple[int, ...],
    nondiff: dict[int, Any],
    returned: _Returned,
    *,
    plain: bool,
) -> Program:
    """Builds the flat program of a jaxpr, with the values of arguments not differentiated by."""
    num_out = returned.count
    values = jax.tree.leaves(nondiff)
    num_inputs = len(_compat.open_jaxpr(closed).invars) - len(values)
    flattener = _Flattener(closed, num_inputs, values, plain=plain)
    outputs = flattener.outputs
    equations = fold_refs(flattener.equations, flattener.avals, outputs)
    return Program(
        num_inputs=num_inputs,
        constants=tuple(flattener.constants),
        equations=tuple(equations),
        outputs=tuple(outputs[:num_out]),
        avals=tuple(flattener.avals),
        out_avals=tuple(closed.out_avals[:num_out]),
        out_tree=returned.tree,
        aux=None
        if returned.aux_tree is None
        else (tuple(outputs[num_out:]), tuple(closed.out_avals[num_out:]), returned.aux_tree),
        replay=_replayed(closed, wanted, tuple(nondiff), returned),
    )


def _replayed(
    closed: Any,
    wanted: tuple[int, ...],
    numbers: tuple[int, ...],
    returned: _Returned,
) -> Callable[..., Any]:
    """Returns the function that a jaxpr was traced from, for arguments of the same shapes.

    `numbers` are the leaves of the other arguments that are inputs, too.
    """

    def replay(*args: Any, **kwargs: Any) -> Any:
        selected = [args[a] for a in wanted]
        rest = tuple(None if i in wanted else a for i, a in enumerate(args))
        nondiff = jax.tree.leaves((rest, kwargs))
        inputs = [*jax.tree.leaves(selected), *(nondiff[n] for n in numbers)]
        outputs = jax.core.eval_jaxpr(_compat.open_jaxpr(closed), closed.consts, *inputs)
        return returned.put(list(map(_array, closed.out_avals, outputs)))  # constants are numbers

    return replay


def _array(aval: Any, x: Any) -> Any:
    """Converts a result of a jaxpr to the array that it stands for."""
    return x if isinstance(x, jax.Array) else _compat.as_weak_as(aval, jnp.asarray(x, aval.dtype))


def with_aux(out: Any) -> tuple[Any, Any]:
    """Checks and returns the pair (output, auxiliary output) that a function returned."""
    if not (isinstance(out, (tuple, list)) and len(out) == 2):
        raise TypeError(
            f"with has_aux=True fun must return (output, aux), got {out!r}; return such a pair, or "
            "leave out has_aux"
        )
    return out[0], out[1]


@dataclass(frozen=True, eq=False)
class _Rest:
    """Static part of an auxiliary output: its structure, and the leaves that are no tracers."""

    tree: Any  # its pytree structure
    static: dict[int, Any]  # leaves, by their number, that are no tracers


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=("computed",), meta_fields=("rest",)
)
@dataclass(frozen=True)
class HiddenAux:
    """An auxiliary output as a pytree of its computed leaves; all else is static."""

    computed: list[Any]
    rest: _Rest

    def shown(self) -> Any:
        """Rebuilds the output as the function returned it."""
        return jax.tree.unflatten(self.rest.tree, merge_leaves(self.rest.static, self.computed))


def hiding_aux(fun: Callable[..., Any], has_aux: bool) -> Callable[..., Any]:
    """Wraps a function so that its auxiliary output, which may be anything, is `HiddenAux`."""
    if not (has_aux and callable(fun)):
        return fun

    @functools.wraps(fun, updated=())
    def hiding(*args: Any, **kwargs: Any) -> tuple[Any, HiddenAux]:
        out, aux = with_aux(fun(*args, **kwargs))
        if isinstance(aux, HiddenAux):
            return out, aux
        leaves, tree = jax.tree.flatten(aux)
        static, computed = split_leaves(leaves, jax.core.Tracer)
        return out, HiddenAux(computed, _Rest(tree, static))

    return hiding


def _named_as(
    fun: Callable[..., Any], wanted: Sequence[int], flat: Callable[..., Any]
) -> Callable[..., Any]:
    """Gives `flat` the user's signature, so that JAX's errors name his function and its line."""
    try:
        positional = [
            p.name for p in inspect.signature(fun).parameters.values() if p.kind in _POSITIONAL
        ]
    except (TypeError, ValueError):  # functions written in C
        positional = []
    names = [positional[a] if a < len(positional) else f"args_{a}" for a in wanted]
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in names]
    nondiff = inspect.Parameter("_others", inspect.Parameter.POSITIONAL_ONLY)
    fun = inspect.unwrap(fun)
    while isinstance(fun, functools.partial):
        fun = inspect.unwrap(fun.func)
    if not hasattr(fun, "__code__"):
        fun = type(fun).__call__  # a callable object
    vars(flat).update(__wrapped__=fun, __signature__=inspect.Signature([*parameters, nondiff]))
    return flat


def _make_jaxpr(
    fun: Callable[..., Any], selected: Any, nondiff: dict[int, Any]
) -> tuple[Any, dict[int, Any]]:
    """Traces ``fun(*selected, nondiff)``; returns the jaxpr and its inputs among `nondiff`.

    All become inputs, so that vertices have the same numbers inside and outside of jit, unless fun
    needs values: for its control flow, a shape, or NumPy. Then first what only depends on captured
    arrays is evaluated, and at last what depends on `nondiff`, as `jax.jacrev` does; inside of jit,
    where `nondiff` have no values, such a function fails there too.
    """
    for attempt in (lambda: fun, lambda: at_once(fun)):
        with suppress(*_NEEDS_VALUES), pins_as_written():
            return jax.make_jaxpr(attempt())(*selected, nondiff), nondiff
    return _known_jaxpr(fun, selected, nondiff)


def _known_jaxpr(
    fun: Callable[..., Any], selected: Any, nondiff: dict[int, Any]
) -> tuple[Any, dict[int, Any]]:
    """Traces as `_make_jaxpr`, and evaluates everything that does not depend on `selected`."""
    abstract = {n: leaf for n, leaf in nondiff.items() if isinstance(leaf, jax.ShapeDtypeStruct)}
    try:
        with pins_as_written():
            return jax.make_jaxpr(at_once(fun))(*selected, abstract), abstract
    except jax.errors.ConcretizationTypeError as error:
        error.add_note(
            "What is differentiated by is traced by its shape, as by jax.jit, though jax.jacrev "
            "knows its value: see errors.html#python-branches-on-traced-values"
        )
        raise


class _Flattener:
    """Flattens a closed jaxpr, with calls inlined, to equations over numbered variables."""

    def __init__(self, closed: Any, num_inputs: int, nondiff: Sequence[Any], *, plain: bool):
        self.plain = plain
        self.active: set[Var] = set(range(num_inputs))
        jaxpr = _compat.open_jaxpr(closed)
        self.constants: list[Any] = []
        self.equations: list[Equation] = []
        self.avals: list[Any] = []
        for var in jaxpr.invars[:num_inputs]:
            self._new(var.aval)
        env: dict[Any, Var | Literal] = dict(zip(jaxpr.invars, range(num_inputs), strict=False))
        for var, value in zip(jaxpr.invars[num_inputs:], nondiff, strict=True):
            env[var] = self._constant(var.aval, value)
        for var, value in zip(jaxpr.constvars, closed.consts, strict=True):
            env[var] = self._constant(var.aval, value)
        self._walk(jaxpr, env)
        self.outputs = [self._read(env, v) for v in jaxpr.outvars]

    def _new(self, aval: Any) -> Var:
        self.avals.append(aval)
        return len(self.avals) - 1

    def _constant(self, aval: Any, value: Any) -> Var:
        self.constants.append(value)
        return self._new(aval)

    @staticmethod
    def _read(env: dict[Any, Var | Literal], atom: Any) -> Var | Literal:
        if isinstance(atom, core.Literal):
            aval: Any = atom.aval
            return Literal(np.asarray(atom.val, dtype=aval.dtype))
        return env[atom]

    def _is_active(self, env: dict[Any, Var | Literal], atom: Any) -> bool:
        """Returns whether a variable depends on the inputs."""
        read = self._read(env, atom)
        return isinstance(read, int) and read in self.active

    def _walk(self, jaxpr: Any, env: dict[Any, Var | Literal], call: str = "") -> None:
        """Appends a jaxpr's equations; `call` is the line where the jaxpr was called."""
        for eqn in jaxpr.eqns:
            plain = self.plain and any(self._is_active(env, a) for a in eqn.invars)
            inner = _compat.inlinable(eqn)
            branch = _compat.default_branch(eqn)
            source = _compat.source_line(eqn) or call  # a function traced earlier has no line
            if plain:
                inner = _compat.call_body(eqn.primitive.name, eqn.params) or definition_of(eqn)
            if eqn.primitive.name.startswith(("bcoo_", "bcsr_")):
                inner = written_out(eqn)
            if plain and facts(eqn.primitive.name).stops:
                env[eqn.outvars[0]] = self._read(env, eqn.invars[0])
            elif inner is not None:
                self._inline(eqn, inner, env, source)
            elif branch is not None:
                self._inline(eqn, branch, env, source, skip=1)
            else:
                self._append(eqn, env, source)

    def _inline(
        self, eqn: Any, inner: Any, env: dict[Any, Var | Literal], source: str, *, skip: int = 0
    ) -> None:
        """Appends the equations of a call, whose first `skip` operands its body does not have."""
        body = _compat.open_jaxpr(inner)
        scope: dict[Any, Var | Literal] = {}
        for var, value in zip(body.constvars, getattr(inner, "consts", ()), strict=True):
            scope[var] = Literal(value)
        for var, atom in zip(body.invars, eqn.invars[skip:], strict=True):
            scope[var] = self._read(env, atom)
        self._walk(body, scope, source)
        for var, atom in zip(eqn.outvars, body.outvars, strict=True):
            env[var] = self._read(scope, atom)

    def _append(self, eqn: Any, env: dict[Any, Var | Literal], source: str) -> None:
        inputs = tuple(self._read(env, a) for a in eqn.invars)
        outputs: list[Var | None] = []
        for var in eqn.outvars:
            if _compat.is_dropped(var):
                outputs.append(None)
                continue
            variable = self._new(var.aval)
            env[var] = variable
            outputs.append(variable)
        if any(isinstance(a, int) and a in self.active for a in inputs):
            self.active.update(o for o in outputs if o is not None)
        self.equations.append(
            Equation(
                eqn.primitive,
                eqn.params,
                inputs,
                tuple(outputs),
                tuple(a.aval for a in eqn.invars),
                tuple(v.aval for v in eqn.outvars),
                source,
                _compat.effects_of(eqn),
            )
        )


def plain_argnums(argnums: int | Iterable[int]) -> int | tuple[int, ...]:
    """Returns argnums as an int or a tuple of ints; accepts ranges and NumPy integers, too."""
    try:
        return operator.index(argnums)  # type: ignore[arg-type]
    except TypeError:
        pass
    try:
        return tuple(operator.index(a) for a in argnums)  # type: ignore[union-attr]
    except TypeError:
        raise TypeError(f"argnums must be an int or a sequence of ints, got {argnums!r}") from None


def normalise_argnums(
    argnums: int | Iterable[int], num_args: int, named: Iterable[str] = ()
) -> tuple[int, ...]:
    """Returns argnums as a tuple of non-negative ints; `named` are keyword arguments."""
    plain = plain_argnums(argnums)
    result = []
    for index in (plain,) if isinstance(plain, int) else plain:
        if not -num_args <= index < num_args:
            hint = "" if num_args else ": give the arguments at which it is traced"
            names = ", ".join(map(repr, named))
            hint = f"; pass these keyword arguments by position: {names}" if names else hint
            known = f", expected {-num_args} .. {num_args - 1}" if num_args else ""
            raise ValueError(
                f"argnums {argnums!r} is out of range for a function called with {num_args} "
                f"positional arguments{known}{hint}"
            )
        result.append(index % num_args)
    if len(set(result)) != len(result):
        raise ValueError(f"argnums must not repeat an argument, got {argnums!r}")
    return tuple(result)
