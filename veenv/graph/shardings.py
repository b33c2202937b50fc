"""Functions of arrays on meshes with explicit axes, whose types say how they lie on devices.

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
"""Of leaves: which mesh axes divide each axis."""
AsWritten = Callable[[Callable[..., Any]], Callable[..., Any]]
"""From a function of the user's to what is traced, which sees arrays of the user's types."""


def is_explicit(mesh: Any) -> bool:
    """Whether a mesh has axes that types of arrays speak of."""
    return AxisType.Explicit in (getattr(mesh, "axis_types", None) or ())


def explicit_mesh(tree: Any) -> Any | None:
    """The mesh with explicit axes that arrays lie on, or that is set; None without."""
    arrays = (x for x in jax.tree.leaves(tree) if isinstance(x, jax.Array))
    meshes = (jax.typeof(x).sharding.mesh for x in arrays)
    every = (*meshes, jax.sharding.get_abstract_mesh())
    return next((mesh for mesh in every if is_explicit(mesh)), None)


def automatic(mesh: Any) -> Any:
    """A mesh with its explicit axes left to the compiler."""
    axes = zip(mesh.axis_names, mesh.axis_types, strict=True)
    return mesh.update_axis_types({a: AxisType.Auto for a, t in axes if t == AxisType.Explicit})


def with_automatic_axes(
    make: Callable[[Callable[..., Any], AsWritten], Callable[..., Any]],
    fun: Callable[..., Any],
    typed: Callable[[Any, Sequence[Any], Specs], Any],
) -> Callable[..., Any]:
    """A transformation of a function, on meshes with explicit axes as on others.

    Args:
      make: the transformation, of what is traced; it gets what else of the user's is traced by.
      fun: the function, which sees arrays of the types that the user's have.
      typed: from a result, the arguments and fun's shardings, a leaf each, to those of the result.
    """
    plain = make(fun, lambda fun: fun)

    @functools.wraps(plain, updated=())
    def run(*args: Any, **kwargs: Any) -> Any:
        mesh = explicit_mesh((args, kwargs))
        if mesh is None:
            return plain(*args, **kwargs)
        own: Specs = list(map(spec_of, jax.tree.leaves((args, kwargs))))
        returned: list[Specs] = []

        def seen(fun: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(fun, updated=())
            def written(*args: Any, **kwargs: Any) -> Any:
                with use_abstract_mesh(mesh):
                    args, kwargs = _lie(mesh, (args, kwargs), own)
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
    """How the type of an array, or of anything, divides its axes."""
    if isinstance(x, jax.Array) and is_explicit(jax.typeof(x).sharding.mesh):
        return jax.typeof(x).sharding.spec
    return PartitionSpec()


def anywhere(tree: Any) -> Any:
    """Arrays with types that don't say where they lie, for the automatic mesh that is set."""

    def loose(x: Any) -> Any:
        if not isinstance(x, jax.Array) or not is_explicit(jax.typeof(x).sharding.mesh):
            return x
        return jax.sharding.reshard(x, PartitionSpec(*[None] * x.ndim))

    return jax.tree.map(loose, tree)


def _lie(mesh: Any, tree: Any, specs: Specs) -> Any:
    """Arrays with types of a mesh, the axes that a sharding does not have undivided in front."""
    leaves, structure = jax.tree.flatten(tree)

    def one(x: Any, spec: PartitionSpec) -> Any:
        if not isinstance(x, jax.Array):
            return x
        full = PartitionSpec(*[None] * (x.ndim - len(spec)), *spec)
        return jax.sharding.reshard(x, NamedSharding(mesh, full))

    return jax.tree.unflatten(structure, list(map(one, leaves, specs)))


def loosened(closed: Any) -> Any:
    """A closed jaxpr without the types that say where its values lie."""
    jaxpr = _compat.open_jaxpr(closed)
    every = (*jaxpr.invars, *jaxpr.constvars, *(v for e in jaxpr.eqns for v in e.outvars))
    meshes = (getattr(getattr(v.aval, "sharding", None), "mesh", None) for v in every)
    mesh = next(filter(is_explicit, meshes), None)
    if mesh is None:
        return closed
    with use_abstract_mesh(automatic(mesh)):
        return _Loosened(mesh).jaxpr(closed, closed.consts)


class _Loosened:
    """Programs of arrays on a mesh, as programs of arrays on the same with automatic axes."""

    def __init__(self, mesh: Any):
        self._mesh = mesh

    def jaxpr(self, jaxpr: Any, consts: Sequence[Any]) -> Any:
        """The closed jaxpr of one, open or closed, with these constants."""
        shapes = [_compat.abstract(v.aval) for v in _compat.open_jaxpr(jaxpr).invars]
        return jax.make_jaxpr(lambda *args: self._results(jaxpr, [*consts, *args]))(*shapes)

    def _results(self, jaxpr: Any, values: Sequence[Any]) -> list[Any]:
        body = _compat.open_jaxpr(jaxpr)
        variables = (*body.constvars, *body.invars)
        known = dict(zip(variables, anywhere(list(values)), strict=True))
        return list(map(walk.run(body, known, self._step), body.outvars))

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
            own = {key: self._param(value) for key, value in params.items()}
            return _compat.bind(equation.primitive, own, operands)

    def _ruled(self, equation: Any) -> Callable[..., list[Any]]:
        """A call with a derivative rule, which is applied to arrays of the types it is made for."""
        name, params = equation.primitive.name, equation.params
        body = _compat.call_body(name, params)
        ins, outs = (
            [aval.sharding.spec for aval in some(equation)]
            for some in (walk.in_avals, walk.out_avals)
        )

        def value(*given: Any) -> list[Any]:
            return self._results(body, [*getattr(body, "consts", ()), *given])

        def written(*given: Any) -> list[Any]:
            return _compat.bind(equation.primitive, params, given)

        def derived(run: Callable[..., Any], *given: tuple[Any, Specs]) -> Any:
            with use_abstract_mesh(self._mesh):
                found = run(*(_lie(self._mesh, x, specs) for x, specs in given))
            with use_abstract_mesh(automatic(self._mesh)):
                return anywhere(found)

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
            lambda *given: (value(*given), given),
            lambda given, cotangents: derived(
                lambda x, ct: jax.vjp(written, *x)[1](ct), (given, ins), (cotangents, outs)
            ),
        )
        return pulled

    def _param(self, value: Any) -> Any:
        """A parameter of an equation, without explicit shardings."""
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
