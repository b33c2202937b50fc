"""Differentiates functions of arrays on meshes with explicit axes by way of automatic ones.

A function of the user's is traced with such types, as it is written for them. What is computed with
its program is another one, of which nobody said where its values lie: there the compiler divides,
as on meshes with automatic axes.  Results have the types again that JAX's own modes give them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend import source_info_util
from jax.sharding import AxisType, NamedSharding, PartitionSpec, use_abstract_mesh

from veenv import _compat
from veenv.rules import walk
from veenv.rules.table import facts

source_info_util.register_exclusion(__file__)
Specs = list[PartitionSpec]
"""Partition specs of leaves: the mesh axes that divide each array axis."""
AsWritten = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Wraps a user's function for tracing, so that it sees arrays of the user's types."""


def is_explicit(mesh: Any) -> bool:
    """Returns whether a mesh has explicit axes, which the types of arrays name."""
    return AxisType.Explicit in (getattr(mesh, "axis_types", None) or ())


def explicit_mesh(tree: Any) -> Any | None:
    """Returns the mesh with explicit axes that arrays lie on, or that is set; None without."""
    arrays = (x for x in jax.tree.leaves(tree) if isinstance(x, jax.Array))
    meshes = (jax.typeof(x).sharding.mesh for x in arrays)
    every = (*meshes, jax.sharding.get_abstract_mesh())
    return next((mesh for mesh in every if is_explicit(mesh)), None)


def automatic(mesh: Any) -> Any:
    """Returns a mesh with its explicit axes made automatic."""
    axes = zip(mesh.axis_names, mesh.axis_types, strict=True)
    return mesh.update_axis_types({a: AxisType.Auto for a, t in axes if t == AxisType.Explicit})


def with_automatic_axes(
    make: Callable[[Callable[..., Any], AsWritten], Callable[..., Any]],
    fun: Callable[..., Any],
    typed: Callable[[Any, Sequence[Any], Specs], Any],
) -> Callable[..., Any]:
    """Applies a transformation of functions to one that may run on explicit axes.

    Args:
      make: the transformation: of the traced function, and of a wrapper for any other function of
        the user's that is traced.
      fun: the function, which sees arrays of the types that the user's have.
      typed: from a result, the arguments and the specs of fun's leaves to the specs of the result.
    """
    plain = make(fun, lambda fun: fun)

    @functools.wraps(plain, updated=())
    def run(*args: Any, **kwargs: Any) -> Any:
        mesh = explicit_mesh((args, kwargs))
        if mesh is None:
            return plain(*args, **kwargs)
        arg_specs: Specs = list(map(spec_of, jax.tree.leaves((args, kwargs))))
        returned: list[Specs] = []

        def seen(fun: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(fun, updated=())
            def written(*args: Any, **kwargs: Any) -> Any:
                with use_abstract_mesh(mesh):
                    args, kwargs = _lie(mesh, (args, kwargs), arg_specs)
                    out = fun(*args, **kwargs)
                    returned.append(list(map(spec_of, jax.tree.leaves(out))))
                with use_abstract_mesh(automatic(mesh)):
                    return anywhere(out)

            return written

        with use_abstract_mesh(automatic(mesh)):
            loose, named = anywhere((args, kwargs))
            result = make(seen(fun), seen)(*loose, **named)
        return _lie(mesh, result, typed(result, args, returned[0]))

    return run


def spec_of(x: Any) -> PartitionSpec:
    """Returns an array's partition spec by its type; an empty one for anything else."""
    if isinstance(x, jax.Array) and is_explicit(jax.typeof(x).sharding.mesh):
        return jax.typeof(x).sharding.spec
    return PartitionSpec()


def anywhere(tree: Any) -> Any:
    """Reshards arrays to the automatic mesh that is set, undivided along its explicit axes."""

    def loose(x: Any) -> Any:
        if not isinstance(x, jax.Array) or not is_explicit(jax.typeof(x).sharding.mesh):
            return x
        return jax.sharding.reshard(x, PartitionSpec(*[None] * x.ndim))

    return jax.tree.map(loose, tree)


def _lie(mesh: Any, tree: Any, specs: Specs) -> Any:
    """Reshards arrays to specs of a mesh; leading axes that a spec lacks stay undivided."""
    leaves, structure = jax.tree.flatten(tree)

    def one(x: Any, spec: PartitionSpec) -> Any:
        if not isinstance(x, jax.Array):
            return x
        full = PartitionSpec(*[None] * (x.ndim - len(spec)), *spec)
        return jax.sharding.reshard(x, NamedSharding(mesh, full))

    return jax.tree.unflatten(structure, list(map(one, leaves, specs)))


def loosened(closed: Any) -> Any:
    """Removes explicit shardings from a closed jaxpr."""
    jaxpr = _compat.open_jaxpr(closed)
    every = (*jaxpr.invars, *jaxpr.constvars, *(v for e in jaxpr.eqns for v in e.outvars))
    meshes = (getattr(getattr(v.aval, "sharding", None), "mesh", None) for v in every)
    mesh = next(filter(is_explicit, meshes), None)
    if mesh is None:
        return closed
    with use_abstract_mesh(automatic(mesh)):
        return _Loosened(mesh).jaxpr(closed, closed.consts)


class _Loosened:
    """Rewrites programs on a mesh with explicit axes as programs on automatic ones."""

    def __init__(self, mesh: Any):
        self._mesh = mesh

    def jaxpr(self, jaxpr: Any, consts: Sequence[Any]) -> Any:
        """Returns the closed jaxpr of one, open or closed, with these constants."""
        shapes = [_compat.abstract(v.aval) for v in _compat.open_jaxpr(jaxpr).invars]
        return jax.make_jaxpr(lambda *args: self._results(jaxpr, [*consts, *args]))(*shapes)

    def _results(self, jaxpr: Any, values: Sequence[Any]) -> list[Any]:
        return walk.results(jaxpr, anywhere(list(values)), self._step)

    def _step(self, equation: Any, operands: Sequence[Any]) -> Sequence[Any]:
        name, params = equation.primitive.name, equation.params
        places_only = facts(name).form == "same" and "new_dtype" not in params
        if places_only and any(map(_is_place, jax.tree.leaves(params))):
            return operands
        body = _compat.inlinable_body(name, params)
        if body is not None:
            return self._results(body, [*getattr(body, "consts", ()), *operands])
        with source_info_util.user_context(equation.source_info.traceback):
            if _compat.own_rule(equation.primitive, params) and _compat.call_body(name, params):
                return self._ruled(equation)(*operands)
            loose_params = {key: self._param(value) for key, value in params.items()}
            return _compat.bind(equation.primitive, loose_params, operands)

    def _ruled(self, equation: Any) -> Callable[..., list[Any]]:
        """Rewrites a call with a derivative rule; the rule still sees explicit types."""
        name, params = equation.primitive.name, equation.params
        body = _compat.call_body(name, params)
        ins, outs = (
            [aval.sharding.spec for aval in avals_of(equation)]
            for avals_of in (walk.in_avals, walk.out_avals)
        )

        def value(*args: Any) -> list[Any]:
            return self._results(body, [*getattr(body, "consts", ()), *args])

        def written(*args: Any) -> list[Any]:
            return _compat.bind(equation.primitive, params, args)

        def derived(run: Callable[..., Any], *args: tuple[Any, Specs]) -> Any:
            with use_abstract_mesh(self._mesh):
                out = run(*(_lie(self._mesh, x, specs) for x, specs in args))
            with use_abstract_mesh(automatic(self._mesh)):
                return anywhere(out)

        if _compat.own_rule(equation.primitive, params) == "jvp":
            pushed = jax.custom_jvp(value)
            pushed.defjvp(
                lambda primals, tangents: derived(
                    lambda p, t: jax.jvp(written, p, t), (primals, ins), (tangents, ins)
                )
            )
            return pushed
        pulled = jax.custom_vjp(value)
        pulled.defvjp(
            lambda *args: (value(*args), args),
            lambda args, cotangents: derived(
                lambda x, ct: jax.vjp(written, *x)[1](ct), (args, ins), (cotangents, outs)
            ),
        )
        return pulled

    def _param(self, value: Any) -> Any:
        """Returns a parameter of an equation without explicit shardings."""
        if type(value) in (tuple, list):
            return type(value)(map(self._param, value))
        if _is_place(value):
            return None
        if is_explicit(value):  # a mesh
            return automatic(value)
        body = _compat.open_jaxpr(value)
        if not hasattr(body, "eqns"):
            return value
        closed = self.jaxpr(value, getattr(value, "consts", ()))
        return _compat.open_jaxpr(closed) if body is value else closed


def _is_place(x: Any) -> bool:
    return isinstance(x, NamedSharding) and is_explicit(x.mesh)
