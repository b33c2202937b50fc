"""The table of JAX's primitives: one record each, with every fact that a part of veenv needs.

A primitive that is missing here is one of another library: its derivative is JAX's, its definition
that of `veenv.rules.definitions`.  What takes code stands beside what it is for: partials
in `veenv.rules`, moves of entries in `veenv.kernel`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Form = Literal[
    "entry", "same", "move", "take", "put", "reduce", "running", "window", "sort", "dot",
    "convolution", "matrix", "solve", "call", "loop", "other",
]  # fmt: skip
"""What a primitive does: compute each entry from those at its place; give back its operands; move
entries as shapes say; take them by indices, or put them there; combine them along axes, up to each
place, in windows; put them in order; multiply and add them; decompose or solve matrices; solve by
functions; run a body."""

ALL = slice(None)
"""The operands that a primitive is linear in: all of them."""
CASES = slice(1, None)
"""All but the first one, which says which."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """The facts of one primitive."""

    name: str  # its name in JAX
    form: Form = "other"  # what it does
    # the operands that its results are linear in, all taken together; None if unknown
    linear: slice | None = None
    bilinear: bool = False  # linear in each of its first two operands
    flat: bool = False  # its derivative is zero wherever it exists
    # where finite operands have infinite partials: nowhere ("finite"), only where the result is
    # infinite ("poles"), also where it is finite at zero ("root") or elsewhere ("end"); "defined":
    # nowhere where the result is finite, of zeros that a mask makes, too. What overflows, and what
    # a body does, does not count. None if unknown.
    partials: Literal["finite", "poles", "root", "end", "defined"] | None = None
    # its result is made of "entries" of the first operand, or is the "sum" of two
    result: Literal["entries", "sum"] | None = None
    singular: int | None = None  # the operand near whose zeros its partials have no bound
    # the parameter, or the operand, that says to which power it raises its first operand
    exponent: str | int | None = None
    # JAX has forward and reverse mode of it; False: of one mode it refuses one, or does more than
    # compute; None if unknown
    both: bool | None = None
    # of an entry in a loop that XLA makes: nothing ("free"), one operation ("simple"), a branch
    # ("branch"; "join" of one that is rather stored), a function of libm ("function") or one that
    # XLA repeats ("repeated"). "library": a call of a library, never in such a loop. None: a
    # program of its own.
    cost: Literal["free", "simple", "branch", "join", "function", "repeated", "library"] | None = (
        None
    )
    instruction: bool = False  # of what is expensive: processors have an instruction for it
    combine: str | None = None  # of what puts entries: how, with those that are there
    updates: int | None = None  # of what puts entries: the operand that they are in
    leaves_out: bool = False  # entries of the first operand are not in the result
    repeats: bool = False  # its result has them several times
    # the axes that it works on as a whole, all others being apart: none (""), those that a
    # parameter says (the last one if it is missing), or so many at the end of the first operand
    whole: str | int | None = None
    # its derivative rests on an assumption: a symmetric matrix, an exact solver
    assumes: bool = False
    # the function of libm that computes it for real numbers, its name here and in C
    call: str | None = None
    # the parameter that says how long axes are, of its first operand where it leaves entries out,
    # else of its results; "" if none does; None if unknown
    lengths: str | None = None
    by_parts: bool = False  # it does the same to the real and to the imaginary part

    @property
    def fused(self) -> bool:
        """XLA computes it in the loop that uses it."""
        return self.cost not in (None, "library")

    @property
    def elementwise(self) -> bool:
        """Its result has at each entry a function of the operands' entries there, with a slope."""
        return self.form == "entry" and not self.flat

    @property
    def expensive(self) -> bool:
        """It costs far more to compute than to move through memory."""
        return self.cost in ("function", "repeated")

    @property
    def stops(self) -> bool:
        """It passes on its operand, and no derivative."""
        return self.flat and self.result == "entries"

    @property
    def multiplies(self) -> bool:
        """It multiplies two operands entry by entry."""
        return self.bilinear and self.form == "entry"

    @property
    def sums(self) -> bool:
        """It adds up entries along axes that its result has lost."""
        return self.form == "reduce" and self.linear is ALL

    @property
    def selects(self) -> bool:
        """It selects each entry from one of its other operands, as the first one says."""
        return self.linear is CASES

    def power(self, params: Any) -> int | None:
        """The power of its operand that it is; None of all others."""
        return params[self.exponent] if isinstance(self.exponent, str) else None

    def linear_in(self, count: int) -> Sequence[int] | None:
        """The operands that it is linear in, of so many."""
        return None if self.linear is None else range(count)[self.linear]


class _Table(dict[str, Primitive]):
    """Records by name."""

    def __missing__(self, name: str) -> Primitive:
        raise KeyError(f"primitive {name!r} has no record in veenv/rules/table.py")


TABLE = _Table()
_UNKNOWN = Primitive("")


def facts(name: str) -> Primitive:
    """The record of a primitive, one without facts if there is none.

    Examples:
      >>> facts("sin").call, facts("sin").expensive, facts("somebody's").call
      ('sin', True, None)
    """
    return TABLE.get(name, _UNKNOWN)


@functools.cache
def named(**facts: Any) -> frozenset[str]:
    """The names of all primitives with some facts, for who looks for one of them in a body.

    Examples:
      >>> sorted(named(form="sort"))
      ['approx_top_k', 'sort', 'top_k']
    """
    return frozenset(
        name for name, p in TABLE.items() if all(getattr(p, k) == v for k, v in facts.items())
    )


def _add(names: str, *kinds: dict[str, Any], **facts: Any) -> None:
    """Adds the records of primitives of some kinds, with further facts."""
    known = {key: value for kind in (*kinds, facts) for key, value in kind.items()}
    call = known.pop("call", None)
    if known.get("form") == "entry":
        known.setdefault("whole", "")
    for name in names.split():
        assert name not in TABLE, name
        TABLE[name] = Primitive(name, call=name if call == "name" else call, **known)


_ENTRY: dict[str, Any] = {"form": "entry", "both": True}
_FLAT: dict[str, Any] = {"form": "entry", "flat": True}
_COMPARED: dict[str, Any] = dict(_FLAT, both=True, partials="finite", cost="simple")
_UNIT: dict[str, Any] = {"linear": ALL, "partials": "finite", "both": True, "by_parts": True}
_SAME: dict[str, Any] = {"form": "same", "linear": ALL, "by_parts": True}
_ALONE: dict[str, Any] = dict(_SAME, whole="")
_MOVE: dict[str, Any] = dict(_UNIT, form="move", result="entries", cost="free", lengths="")
_JOIN: dict[str, Any] = dict(_UNIT, form="move", cost="join", lengths="")
_REDUCE: dict[str, Any] = {"form": "reduce", "lengths": "", "whole": "axes"}
_RUNNING: dict[str, Any] = {"form": "running", "lengths": "", "whole": "axis"}
_FUNCTION: dict[str, Any] = dict(_ENTRY, cost="function", call="name")
"""A function of libm, of the name of the primitive."""

# Sums and products of entries, and what only says which entry.
_add("add add_any", _ENTRY, _UNIT, result="sum", cost="simple")
_add("sub neg", _ENTRY, _UNIT, cost="simple")
_add("mul", _ENTRY, bilinear=True, partials="finite", cost="simple")
_add("div", _ENTRY, linear=slice(1), partials="poles", singular=1,
     cost="function", instruction=True)  # fmt: skip
_add("max min clamp abs sign square", _ENTRY, partials="finite", cost="simple")
_add("select_n", _ENTRY, linear=CASES, partials="finite", cost="simple", by_parts=True)
_add("integer_pow", _ENTRY, partials="poles", singular=0, exponent="y", cost="simple")
_add("pow", _ENTRY, partials="root", singular=0, exponent=1, cost="function")
_add("rem one_minus_square", _ENTRY, cost="simple")
_add("polynomial", _ENTRY)
_add("nextafter", form="entry", call="nextafter")

# Functions.
_add("sin cos", _FUNCTION, partials="finite", cost="repeated")
_add("tan", _FUNCTION, cost="repeated")
_add("tanh erf atan", _FUNCTION, partials="finite")
_add("exp exp2 expm1 log1p", _FUNCTION, partials="poles")
_add("log", _FUNCTION, partials="poles", singular=0)
_add("log2 sinh asinh atanh cosh erfc lgamma", _FUNCTION)
_add("asin acos acosh atan2", _FUNCTION, partials="end")
_add("cbrt", _FUNCTION, partials="root", singular=0)
_add("sqrt", _FUNCTION, partials="root", singular=0, instruction=True, call=None)
_add("rsqrt", _FUNCTION, partials="poles", singular=0, instruction=True, call=None)
_add("logistic", _FUNCTION, partials="finite", call=None)
_add("erf_inv bessel_i0e bessel_i1e digamma igamma igammac", _FUNCTION, call=None)
_add("polygamma zeta regularized_incomplete_beta igamma_grad_a random_gamma_grad", form="entry")
_add("random_gamma", whole="")

# Comparisons, bits, roundings: flat.
_add("eq ne lt le gt ge and or xor not floor ceil round", _COMPARED)
_add("is_finite", _COMPARED, partials=None)
_add("stop_gradient", _COMPARED, result="entries", cost="free")
_add("shift_left shift_right_logical shift_right_arithmetic population_count clz "
     "bitcast_convert_type eq_to le_to lt_to", _FLAT)  # fmt: skip
_add("iota", flat=True, both=True, partials="finite", cost="free", whole="dimension")
_add("empty empty2")
_add("argmax argmin", flat=True, lengths="", whole="axes")
_add("reduce_and reduce_or reduce_xor", _REDUCE, flat=True)
_add("random_bits random_seed random_wrap random_unwrap random_fold_in random_split "
     "rng_bit_generator rng_uniform threefry2x32 iota_2x32_shape", flat=True)  # fmt: skip

# The operand itself, and parts of complex numbers.
_add("convert_element_type", _ALONE, _UNIT, cost="free")
_add("copy name layout_constraint xla_metadata_value pvary pbroadcast reshard "
     "sharding_constraint", _ALONE, _UNIT, result="entries", cost="free")  # fmt: skip
_add("device_put optimization_barrier veenv_batch_barrier", _SAME)
_add("reduce_precision conj complex", _ENTRY, linear=ALL)
_add("real imag", _ENTRY, linear=ALL, cost="simple")

# Moves of entries, as shapes say and by indices.
_add("broadcast_in_dim", _MOVE, lengths="shape", repeats=True)
_add("reshape", _MOVE, lengths="new_sizes")
_add("transpose rev squeeze expand_dims", _MOVE)
_add("slice", _MOVE, leaves_out=True, lengths="limit_indices")
_add("split unstack", _MOVE, leaves_out=True)
_add("concatenate stack", _JOIN)
_add("pad", _JOIN, cost="branch")
_add("tile", _JOIN, both=None, partials=None, repeats=True)
_add("gather", form="take", linear=slice(1), both=True, partials="finite", leaves_out=True,
     lengths="slice_sizes")  # fmt: skip
_add("dynamic_slice", _UNIT, form="take", linear=slice(1), result="entries", leaves_out=True,
     lengths="slice_sizes")  # fmt: skip
_add("dynamic_update_slice", _UNIT, form="put", linear=slice(2), updates=1)
_PUT: dict[str, Any] = {"form": "put", "updates": 2}
_ADDED: dict[str, Any] = dict(_PUT, linear=slice(0, 3, 2))
_add("scatter", _ADDED, partials="poles", lengths="")
_add("scatter-add", _ADDED, both=True, partials="finite", combine="add", lengths="")
_add("scatter_add", _ADDED, combine="add")
_add("scatter-sub scatter_sub", _ADDED, combine="sub")
for _how in ("mul", "min", "max"):
    _add(f"scatter-{_how} scatter_{_how}", _PUT, combine=_how)
_add("sort", form="sort", partials="finite", cost="library", lengths="", whole="dimension")
_add("top_k", form="sort", whole="axis")
_add("approx_top_k", form="sort", whole="reduction_dimension")

# Sums along axes, in windows, of products.
_add("reduce_sum", _UNIT, _REDUCE)
_add("reduce_max reduce_min", _REDUCE, both=True, partials="finite", result="entries")
_add("reduce_prod", _REDUCE)
_add("reduce", form="reduce", whole="dimensions")
_add("cumsum", _UNIT, _RUNNING)
_add("cumprod cummax cummin cumlogsumexp", _RUNNING)
_add("reduce_window_sum", form="window", linear=ALL)
_add("reduce_window_max reduce_window_min reduce_window", form="window")
_add("select_and_gather_add select_and_scatter_add", form="window", linear=slice(1))
_add("dot_general", form="dot", both=True, bilinear=True, partials="finite", lengths="")
_add("ragged_dot_general", bilinear=True)
_add("conv_general_dilated", form="convolution", bilinear=True, partials="finite", cost="library")
_add("fft", linear=ALL, both=True)
_add("psum psum_invariant all_gather ppermute all_to_all reduce_scatter", linear=ALL)

# Decompositions and solves.
_MATRIX: dict[str, Any] = {"form": "matrix", "cost": "library", "whole": 2}
_add("cholesky", _MATRIX, both=True, partials="defined", lengths="")
_add("triangular_solve", _MATRIX, linear=slice(1, 2), both=True, partials="poles", lengths="",
     whole=None)  # fmt: skip
_add("lu", _MATRIX, partials="poles", lengths="")
_add("eigh", _MATRIX, assumes=True)
_add("eig svd qr householder_product", _MATRIX)
_add("cholesky_update hessenberg schur symmetric_product tridiagonal geqrf geqp3 ormqr",
     form="matrix", whole=2)  # fmt: skip
_add("tridiagonal_solve", linear=slice(3, 4))
_add("lu_pivots_to_permutation", lengths="", whole=1)
_add("custom_linear_solve", form="solve", partials="poles", assumes=True)

# Bodies, and what does more than compute.
_add("jit closed_call", form="call", both=True, partials="finite")
_add("custom_jvp_call", form="call", partials="finite")
_add("custom_vjp_call", form="call", both=False)
_add("custom_lin", form="call", both=False, assumes=True)
_add("linear_call", form="call", both=False, assumes=True)
_add("call_hi_primitive", form="call")
_add("scan", form="loop", both=True, partials="finite")
_add("cond", form="loop", both=True)
_add("while", form="loop", both=False)
_add("pure_callback io_callback", both=False, cost="library")
_add("debug_callback debug_print run_state refs", both=False)
