"""Lists alternatives to the requested elimination: other orders, and JAX's modes.

In: a `Linearisation`, an order and a `Request`. Out: orders and `JaxMode`s that return the same
values and may well be faster. Each will be traced and priced, so unlikely ones are left out here.

An elimination leaves out what is known to be zero. A mode multiplies by it: reverse mode the zeros
that a mask lets through, forward mode the zeros of its seeds. Results are equal as long as all
factors are finite. Only finite values of the function are considered; where a value is infinite or
NaN, so is the Jacobian.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from veenv import _compat, limits
from veenv.engine.known import Known
from veenv.engine.request import Name, Request
from veenv.graph.equations import Equation
from veenv.graph.linearisation import Elemental, Linearisation
from veenv.graph.program import Program
from veenv.kernel.price import SMALL_PRODUCT, equations_of
from veenv.rules import walk
from veenv.rules.passes import REFUSALS
from veenv.rules.table import facts
from veenv.structure.structure import FREE, Link

OwnMode = Literal["jacfwd", "jacrev"]
_STORED = 8  # the ratio where reverse mode reruns loops and stores each step
_ALIKE = 1.5  # ratio of passes that are about as many
_LARGEST_POWER = 3  # exponents up to which a power counts as a product
_REAL = "fiu"  # kinds of NumPy's dtypes that are ordered
_TANGENTS = 3  # equations of a mode for one of the function: its value, and sums of products
_APART = 1e-10  # the least bound of a divisor whose powers do not overflow


class JaxMode(NamedTuple):
    """A mode of JAX of a function."""

    run: Callable[..., Any]  # of the function's arguments
    name: str
    length: int  # about how many equations it has


class Candidates(NamedTuple):
    """Ways to a Jacobian, all with the same results."""

    # results of the elimination and of other orders; empty where only JAX's modes are compared
    eliminations: list[Any]
    modes: list[JaxMode]  # JAX's own


def own_modes(lin: Linearisation) -> tuple[OwnMode, ...]:
    """Returns the modes of JAX that can take an elimination's place: of fewer passes, or both.

    Empty where a mode would return other results: where numbers are not all real and of one dtype,
    or 0 may meet infinity (`has_infinite_partials`, `shut_out`). Empty also where the elimination
    consists of the passes of one operator without a tape, as a mode would do the same.
    """
    program = lin.program
    inputs, outputs = program.avals[: program.num_inputs], program.out_avals
    avals = [*inputs, *outputs]
    if not (inputs and outputs and lin.realify) or any(not prod(a.shape) for a in avals):
        return ()
    if len({a.dtype for a in avals}) > 1 or not jnp.issubdtype(avals[0].dtype, jnp.floating):
        return ()
    every = walk.every(program.equations)
    if any(lin.reverse_only) or any(facts(e.primitive.name).both is False for e in every):
        return ()
    stores, graph = _stores(lin), lin.graph
    alone = sum(_operators(lin)) == 1 and not graph.cost(graph.reverse(), "operations")
    if (alone and not stores) or has_infinite_partials(lin):
        return ()
    forward, reverse = num_passes(program)
    more = _STORED if stores else limits.UNSURE
    modes: tuple[OwnMode, ...] = ("jacfwd",) if forward < reverse else ("jacrev",)
    if forward <= more * reverse and reverse <= limits.UNSURE * forward:
        modes = "jacfwd", "jacrev"  # forward stores nothing on its way
    return tuple(m for m in modes if not shut_out(lin, reverse=m == "jacrev"))


def _stores(lin: Linearisation) -> bool:
    """Returns whether reverse mode stores the steps of a loop."""
    return any(_length(e) is not None for e in walk.every(lin.program.equations))


def _length(equation: Any) -> int | None:
    """Returns the number of steps of a `scan`; None of other equations."""
    return getattr(walk.loop_of(equation), "length", None)


def other_orders(
    lin: Linearisation, ids: Sequence[int], name: Name | None, modes: Collection[Any]
) -> list[tuple[int, ...]]:
    """Returns orders that may well be faster than a named one, beside those of JAX's modes."""
    graph = lin.graph
    if name is None or any(lin.reverse_only) or (name == "auto" and modes):
        return []
    orders = [graph.forward()] if forward_instead(lin) else []
    if name == "auto":
        enough = graph.cost(graph.reverse(), "operations") / limits.FEWER
        orders += [graph.reverse()] if graph.cost(ids, "operations") > enough else []
    return [other for other in orders if other != tuple(ids)]


def forward_instead(lin: Linearisation) -> bool:
    """Returns whether the forward order may be faster than the reverse one, with equal results.

    Without operators (loops, decompositions, solves) it must do far fewer operations, or no more if
    both take equally many passes. With operators it must take far fewer passes, or not many more
    and do far fewer operations.
    """
    if any(lin.reverse_only):
        return False
    graph, (forward, reverse) = lin.graph, num_passes(lin.program)
    operators = any(_operators(lin))
    if operators and (forward > _ALIKE * reverse or limits.FEWER * forward <= reverse):
        return forward < reverse or (_stores(lin) and forward <= _STORED * reverse)
    share = 1 if forward == reverse and not operators else 1 / limits.FEWER
    limit = share * graph.cost(graph.reverse(), "operations")
    return graph.cost(graph.forward(), "operations") <= limit and limit > 0


def num_passes(program: Program) -> tuple[int, int]:
    """Counts the passes of forward and reverse mode: entries of the inputs and of the outputs."""
    avals = program.avals[: program.num_inputs], program.out_avals
    forward, reverse = (sum(prod(a.shape) for a in group) for group in avals)
    return forward, reverse


def _operators(lin: Linearisation) -> Iterator[bool]:
    every = (e.partial for used in lin.elementals for e in used)
    return (partial.executed.link is Link.OPERATOR for partial in every)


def other_modes(lin: Linearisation, request: Request) -> dict[OwnMode, JaxMode]:
    """Returns modes of JAX that may well be faster than an elimination, the likelier first.

    Each maps the function's arguments to the requested parts, and differentiates the function as it
    was traced, with nested calls. It raises one of `REFUSALS` where JAX lacks that mode.
    """
    name = request.compared
    if name is None:
        return {}
    compares = name == "auto" or any(_operators(lin))
    # Tracing JAX's modes, too, takes little beside a reverse order that is long.
    if not compares and lin.graph.cost(lin.graph.reverse(), "operations") < limits.LONG:
        return {}
    length = _TANGENTS * equations_of(lin.program.equations)
    return {
        name: JaxMode(mode_of(lin.program, name, request), name, length) for name in own_modes(lin)
    }


def by_jax(program: Program, request: Request, first: OwnMode | None = None) -> Callable[..., Any]:
    """Returns one of JAX's modes, that of fewer passes by default; else the other one."""
    first = first or ("jacfwd" if operator.lt(*num_passes(program)) else "jacrev")
    second = "jacrev" if first == "jacfwd" else "jacfwd"

    def run(*args: Any, **kwargs: Any) -> Any:
        with suppress(*REFUSALS):
            return mode_of(program, first, request)(*args, **kwargs)
        return mode_of(program, second, request)(*args, **kwargs)

    return run


def mode_of(program: Program, name: str, request: Request) -> Callable[..., Any]:
    """Returns a mode of JAX: from arguments to the requested parts."""
    replay, inputs = program.replay, program.avals[: program.num_inputs]

    def run(*args: Any, **kwargs: Any) -> Any:
        def twice(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
            returned = replay(*args, **kwargs)
            return (returned[0] if request.has_aux else returned), returned

        mode = getattr(jax, name)(twice, argnums=request.argnums, has_aux=True)
        with jax.enable_checks(False):  # JAX checks nothing where it binds an equation
            jacobian, returned = mode(*args, **kwargs)
        blocks, tree = jax.tree.flatten(jacobian)  # jacfwd loses weak types
        blocks = map(_compat.as_weak_as, itertools.cycle(inputs), blocks)
        return request.result(returned, jax.tree.unflatten(tree, blocks))

    return run


def modes_alone(
    lin: Linearisation, ids: Sequence[int], modes: Mapping[OwnMode, JaxMode]
) -> list[JaxMode]:
    """Returns the modes that are compared where no elimination is faster; none elsewhere.

    Forward mode comes first, and is the only one if it takes no more passes: reverse mode runs a
    loop twice and stores its values at each step.
    """
    if not (modes and (are_loops(lin) or are_small_products(lin, ids))):
        return []
    forward, reverse = num_passes(lin.program)
    present = [modes[name] for name in ("jacfwd", "jacrev") if name in modes]
    return present[:1] if forward <= reverse else present


def are_small_products(lin: Linearisation, ids: Sequence[int]) -> bool:
    """Returns whether an order does a mode's work in more programs, too long for a kernel.

    XLA compiles each product of an elimination as a separate loop. A mode has fewer of them, with
    more vectors each, so an elimination with as many multiplications is slower.
    """
    cost = lin.graph.cost
    if any(_operators(lin)) or cost(ids, "operations") <= limits.FEWER * limits.MAX_OPERATIONS:
        return False
    done = cost(ids, "executed")
    if done > SMALL_PRODUCT * len(ids):
        return False
    a_pass = sum(e.partial.executed.num_entries for used in lin.elementals for e in used)
    return done >= limits.FULL * min(num_passes(lin.program)) * a_pass


def are_loops(lin: Linearisation) -> bool:
    """Returns whether no elimination does better than JAX's modes, without tracing one.

    That is so if `scan`s do nearly all of the function's work, and each takes about as many passes
    as the whole function, because nothing before or after it is narrower.
    """
    program = lin.program
    numbered = enumerate(program.equations)
    loops = [k for k, e in numbered if _length(e) is not None and lin.elementals[k]]
    inside = sum(_entries(program.equations[k]) for k in loops)
    if not loops or inside < limits.MOSTLY * sum(map(_entries, program.equations)):
        return False
    passes = min(num_passes(program))
    return all(_narrowest(lin, lin.elementals[k]) >= limits.MOSTLY * passes for k in loops)


def _entries(equation: Any) -> int:
    """Counts the numbers that an equation computes, those of each step of a loop."""
    bodies, steps = walk.inside(equation.params, lambda _: False), _length(equation) or 1
    return sum(prod(a.shape) for a in walk.out_avals(equation)) + steps * sum(map(_entries, bodies))


def _narrowest(lin: Linearisation, used: Iterable[Elemental]) -> int:
    """Counts the numbers a Jacobian goes through at a loop: its operands or its results.

    Zero where a partial is diagonal along an axis: it takes fewer passes than there are numbers.
    """
    used = list(used)
    if any(e.partial.diagonal or {*e.partial.executed.pairs} - {FREE} for e in used):
        return 0
    ends = {e.source for e in used}, {e.target for e in used}
    shapes = lin.graph.shapes
    return min(sum(prod(shapes[node]) for node in nodes) for nodes in ends)


def has_infinite_partials(lin: Linearisation) -> bool:
    """Returns whether partials can be infinite where the function is finite.

    An example is a root at zero. A power with a known exponent that is no root has none.
    """
    known = Known(lin.program)
    pairs = zip(lin.program.equations, lin.elementals, strict=True)
    if any(used and _is_root(equation, known) for equation, used in pairs):
        return True
    return any(has_infinite_partials(c.linearisation) for c in lin.customs if c is not None)


def _is_root(equation: Equation, known: Known) -> bool:
    """Returns whether an equation may have infinite partials where its result is finite."""
    of = facts(equation.primitive.name)
    if of.partials not in ("root", "end"):
        return False
    if not isinstance(of.exponent, int):
        return True
    exponent = known.quickly(equation.invars[of.exponent])
    return exponent is None or not bool(((exponent <= 0) | (exponent >= 1)).all())


def meets_infinity(lin: Linearisation) -> bool:
    """Returns whether a stored zero may meet an infinite partial.

    The infinite partial is a root's, a pole's behind a mask, or a coefficient of a custom rule.
    """
    known, masks = Known(lin.program), _masks(lin)
    return has_infinite_partials(lin) or any(
        (masks or lin.customs[number] is not None) and not _is_total(lin, number, known)
        for number, used in enumerate(lin.elementals)
        if used
    )


def shut_out(lin: Linearisation, *, reverse: bool) -> bool:
    """Returns whether a mode might multiply by infinity the zeros that a mask makes.

    Reverse mode has zeros where a mask shuts a value out, so every equation before the mask must be
    total. Forward mode selects between tangents and has zeros after the mask, so every equation
    after it must be total, too.
    """
    values = Known(lin.program)
    infinite, computed, finite = set[int](), False, True
    for number, used in enumerate(lin.elementals):
        if not used:
            continue
        equation, custom = lin.program.equations[number], lin.customs[number]
        known, total = facts(equation.primitive.name), _is_total(lin, number, values)
        masked = [e for e in used if e.partial.mask is not None]
        if custom is not None and _masks(custom.linearisation):
            masked = list(used)
            if not total:
                return True
        finite = finite and total
        if not reverse and known.selects:
            computed = computed or bool(masked and values.quickly(equation.invars[0]) is None)
            masked = []
        if any(e.source in infinite for e in masked):
            return True
        if known.partials != "defined":
            infinite.update(e.target for e in used if not total or e.source in infinite)
    return computed and not finite


def _masks(lin: Linearisation) -> bool:
    """Returns whether there is a mask anywhere in a function."""
    masked = any(e.partial.mask is not None for used in lin.elementals for e in used)
    return masked or any(_masks(c.linearisation) for c in lin.customs if c is not None)


def _is_total(lin: Linearisation, number: int, values: Known) -> bool:
    """Returns whether an equation has finite values and partials at all finite operands."""
    equation, custom = lin.program.equations[number], lin.customs[number]
    if custom is not None:  # coefficients of the rule depend on the operands alone
        return all(map(_is_total_anywhere, custom.linearisation.program.equations))
    known = facts(equation.primitive.name)
    if known.singular is None or known.power(equation.params) is not None:
        return _is_total_anywhere(equation)
    value = values.quickly(equation.invars[known.singular])
    if value is None or (known.partials != "poles" and value.dtype.kind not in _REAL):
        return False
    return bool(((np.abs(value) if known.partials == "poles" else value) >= _APART).all())


def _is_total_anywhere(equation: Any) -> bool:
    """Returns whether an equation, bodies included, is total for any operands."""
    return all(map(_is_total_itself, (equation, *walk.inside(equation.params))))


def _is_total_itself(equation: Any) -> bool:
    known, params = facts(equation.primitive.name), equation.params
    power = known.power(params)
    if power is not None:
        return 0 <= power <= _LARGEST_POWER
    fills = known.form == "take" and "FILL" in str(params.get("mode")).upper()  # with NaN
    return known.partials == "finite" and not fills
