"""Seeded random functions: as many equations as asked for, moderate values, no zero derivative."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from veenv.tasks.random_ops import BINARY, OPERATIONS, UNARY
from veenv.tasks.task import Task

MAX_TRIES = 12
SHAPE_TRIES = 4
MAX_SIZE = 16  # larger arrays are avoided and summed
VALUES = (0.1, 4.0)  # magnitudes preferred for values …
PARTIALS = (0.05, 8.0)  # … and for partial derivatives
CHANGE = 1e-4  # least change of a value when the inputs change by 2 to 5 %


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One equation: an operation on earlier values (inputs first) and a constant."""

    operation: str
    operands: tuple[int, ...]
    constant: Any = None


class _Program:
    """A random function under construction, with the value of each of its variables."""

    def __init__(self, rng: np.random.Generator, inputs: Sequence[np.ndarray], window: int | None):
        self.rng = rng
        self.values = list(inputs)
        self.near = [x * rng.uniform(1.02, 1.05, x.shape) for x in inputs]
        self.window = window
        self.instructions: list[Instruction] = []
        self.unused_inputs: list[int] = rng.permutation(len(inputs)).tolist()
        self.unused: list[int] = []
        self.used: list[int] = []

    def grow(self, num_vertices: int, num_outputs: int, fan_in: float, arrays: bool) -> None:
        """Adds all equations."""
        for remaining in range(num_vertices, 0, -1):
            counts = list(self.choices(remaining, num_outputs))
            weights = np.array([_weight(arity, a + b, fan_in) for arity, a, b in counts])
            pick = self.rng.choice(len(counts), p=weights / weights.sum())
            self.extend(counts[pick], arrays)

    def every_input_matters(self) -> bool:
        """Returns whether each input alone changes some output: (x + y) - x forgets x."""
        num_inputs = len(self.values) - len(self.instructions)
        for i in range(num_inputs):
            values = self.values[:num_inputs]
            values[i] = self.near[i]
            for step in self.instructions:
                operands = (values[j] for j in step.operands)
                with np.errstate(all="ignore"):
                    values.append(OPERATIONS[step.operation].value(*operands, step.constant))
            if all(np.allclose(values[j], self.values[j], 1e-12, 0.0) for j in self.unused):
                return False
        return True

    def choices(self, remaining: int, num_outputs: int) -> Iterator[tuple[int, int, int]]:
        """Returns numbers (operands, unused vertices, unused inputs) that allow a completion.

        A completion leaves exactly ``num_outputs`` vertices unused and no input.
        """
        for arity in (1, 2):
            for a in range(arity + 1):
                for b in range(arity + 1 - a):
                    vertices = len(self.unused) - a + 1
                    inputs = len(self.unused_inputs) - b
                    possible = (
                        len(self.unused) >= a and inputs >= 0 and (self.used or a + b == arity)
                    )
                    fits = vertices + remaining - 1 >= num_outputs
                    if possible and fits and vertices + inputs - num_outputs <= remaining - 1:
                        yield arity, a, b

    def operands(self, arity: int, a: int, b: int) -> tuple[int, ...]:
        """Chooses ``a`` unused vertices, ``b`` unused inputs and used variables for the rest."""
        recent = self.used[-self.window :] if self.window else self.used
        count = arity - a - b
        chosen: list[int] = []
        for _ in range(SHAPE_TRIES):  # two arrays of one shape give more kinds of equations
            rest = self.rng.choice(recent, count, replace=len(recent) < count) if count else ()
            vertices = self.rng.permutation(self.unused)[:a] if a else ()
            chosen = [*vertices, *self.unused_inputs[:b], *rest]
            if len({self.values[i].shape for i in chosen}) == 1:
                break
        return tuple(int(i) for i in self.rng.permutation(chosen))

    def instruction(self, operands: tuple[int, ...], arrays: bool) -> Instruction:
        """Draws an instruction on given operands."""
        if not arrays:
            return self.elementwise(UNARY if len(operands) == 1 else BINARY, operands)
        return self.unary_array(operands) if len(operands) == 1 else self.binary_array(operands)

    def elementwise(self, names: Iterable[str], operands: tuple[int, ...]) -> Instruction:
        if len(set(operands)) < len(operands):  # x - x and x / x have no derivative
            names = ("add", "mul")
        name, constant = str(self.rng.choice(list(names))), None
        if name == "scale":
            size = np.sqrt(np.mean(self.values[operands[0]] ** 2))
            constant = float(np.round(self.rng.uniform(0.7, 1.6) / size, 3))
        elif name == "shift":
            constant = float(np.round(self.rng.uniform(0.2, 1.0), 3))
        return Instruction(name, operands, constant)

    def unary_array(self, operands: tuple[int, ...]) -> Instruction:
        (i,) = operands
        x = self.values[i]
        axis = int(self.rng.integers(x.ndim)) if x.ndim else 0
        if x.size > MAX_SIZE:
            return Instruction("sum", operands, axis)
        if np.max(np.abs(x)) > VALUES[1] and self.rng.random() < 0.5:
            return self.elementwise(("scale",), operands)
        if self.rng.random() < 0.5 or not x.ndim:
            if not x.ndim and self.rng.random() < 0.3:
                return Instruction("expand", operands, int(self.rng.integers(2, 4)))
            return self.elementwise(UNARY, operands)
        structural: dict[str, Any] = {"sum": axis, "reverse": axis}
        if x.ndim > 1:
            structural["flatten"] = None
            structural["transpose"] = tuple(
                np.roll(range(x.ndim), 1 + axis % (x.ndim - 1)).tolist()
            )
        if i in self.used and x.shape[0] > 1:  # what a slice drops is used elsewhere
            structural["slice"] = int(self.rng.integers(1, x.shape[0]))
        name = str(self.rng.choice(list(structural)))
        return Instruction(name, operands, structural[name])

    def binary_array(self, operands: tuple[int, ...]) -> Instruction:
        a, b = (self.values[i] for i in operands)
        if a.shape == b.shape and self.rng.random() < 0.6:
            if a.ndim and a.size < MAX_SIZE and self.rng.random() < 0.2:
                return Instruction("concatenate", operands, int(self.rng.integers(a.ndim)))
            return self.elementwise(BINARY, operands)
        pairs: list[tuple[int, int]] = []  # contract axes of equal size until the result is small
        for i, n in enumerate(a.shape):
            free = [j for j, m in enumerate(b.shape) if m == n and j not in [q for _, q in pairs]]
            if free and (not pairs or a.size * b.size > MAX_SIZE):
                pairs.append((i, free[0]))
        return Instruction(
            "dot", operands, (tuple(p for p, _ in pairs), tuple(q for _, q in pairs))
        )

    def badness(self, instruction: Instruction) -> tuple[float, np.ndarray, np.ndarray]:
        """Measures how far an equation is from moderate; returns its values here and nearby."""
        operation = OPERATIONS[instruction.operation]
        args = [self.values[i] for i in instruction.operands]
        near_args = [self.near[i] for i in instruction.operands]
        with np.errstate(all="ignore"):
            value = np.asarray(operation.value(*args, instruction.constant))
            near = np.asarray(operation.value(*near_args, instruction.constant))
            total = _outside(value, VALUES) + max(0.0, float(np.log(value.size / MAX_SIZE)))
            # (x + 1) - x does not depend on x: the value must change with the point.
            total += _outside(near - value, (CHANGE, np.inf))
            if operation.partials is not None:
                for partial in operation.partials(*args, instruction.constant):
                    total += _outside(partial, PARTIALS)
        return (total if np.isfinite(total) else np.inf), value, near

    def extend(self, counts: tuple[int, int, int], arrays: bool) -> None:
        """Adds the first moderate equation found, or the most moderate of several."""
        best = self.instruction(self.operands(*counts), arrays)
        lowest, value, near = self.badness(best)
        for _ in range(MAX_TRIES):
            if lowest == 0.0:
                break
            other = self.instruction(self.operands(*counts), arrays)
            bad, other_value, other_near = self.badness(other)
            if bad < lowest:
                best, lowest, value, near = other, bad, other_value, other_near
        for i in best.operands:
            for pool in (self.unused, self.unused_inputs):
                if i in pool:
                    pool.remove(i)
                    self.used.append(i)
        self.unused.append(len(self.values))
        self.values.append(value)
        self.near.append(near)
        self.instructions.append(best)


def _weight(arity: int, num_unused: int, fan_in: float) -> float:
    """Returns the weight of drawing an equation; one new operand is preferred, for long paths."""
    weight = fan_in - 1.0 if arity == 2 else 2.0 - fan_in
    if arity == 1 and num_unused == 0:  # a new branch, which a later equation has to join
        weight *= fan_in - 1.0
    return weight * (3.0 if num_unused == 1 else 1.0) + 1e-9


def _outside(array: np.ndarray, limits: tuple[float, float]) -> float:
    """Measures by how many factors of e the magnitudes leave the limits; 0 inside."""
    low, high = limits
    size = np.abs(array)
    below, above = np.max(np.log(low / size)), np.max(np.log(size / high))
    return float(np.maximum(below, 0.0) + np.maximum(above, 0.0))  # NaN stays NaN


def random_function(
    seed: int,
    num_inputs: int = 4,
    num_vertices: int = 20,
    num_outputs: int = 2,
    *,
    fan_in: float = 1.6,
    window: int | None = None,
    arrays: bool = False,
) -> tuple[Callable[..., tuple[jax.Array, ...]], tuple[np.ndarray, ...]]:
    """Makes a random function that is good to differentiate.

    The same arguments always make the same function. Its jaxpr has exactly ``num_vertices``
    equations, each on a path from an input to an output; every input is used.

    Args:
      seed: seed.
      num_inputs: number of arguments.
      num_vertices: number of equations, those of the outputs included.
      num_outputs: number of outputs.
      fan_in: mean number of operands of an equation, from 1 to 2. The mean number of uses of a
        variable follows: about ``fan_in * num_vertices / (num_vertices + num_inputs)``.
      window: operands that are used again come from the last ``window`` used ones: small windows
        make long, narrow graphs. None: any.
      arrays: inputs and intermediates are small arrays of any rank, with contractions, sums,
        broadcasts, transpositions, reshapes, slices and concatenations; otherwise scalars.

    Returns:
      The function, which returns a tuple, and a point: a tuple of float64 arrays. At the point
      values and partials have moderate size.

    Raises:
      ValueError: no such function exists.

    Examples:
      >>> fun, point = random_function(0, num_inputs=2, num_vertices=5, num_outputs=1)
      >>> len(jax.make_jaxpr(fun)(*point).eqns)
      5
    """
    if min(num_inputs, num_outputs) < 1 or num_outputs > num_vertices:
        raise ValueError(
            "a random function needs an input, an output and an equation for each output, got "
            f"{num_inputs=}, {num_outputs=}, {num_vertices=}"
        )
    if num_inputs - num_outputs > num_vertices:
        raise ValueError(
            f"{num_vertices} equations cannot join {num_inputs} inputs to {num_outputs} outputs"
        )
    if not 1.0 <= fan_in <= 2.0:
        raise ValueError(f"fan_in must be from 1 to 2, got {fan_in}")
    if window is not None and window < 1:
        raise ValueError(f"window must be at least 1, got {window}")

    rng = np.random.default_rng(seed)
    ranks = rng.integers(3, size=num_inputs) if arrays else np.zeros(num_inputs, int)
    shapes = [tuple(rng.integers(2, 4, rank)) for rank in ranks]
    point = tuple(np.asarray(rng.uniform(0.4, 1.6, shape)) for shape in shapes)
    program = _Program(rng, point, window)
    for _ in range(MAX_TRIES):
        program.grow(num_vertices, num_outputs, fan_in, arrays)
        if program.every_input_matters():
            break
        program = _Program(rng, point, window)
    return _as_function(tuple(program.instructions), tuple(sorted(program.unused))), point


def _as_function(
    instructions: tuple[Instruction, ...], outputs: tuple[int, ...]
) -> Callable[..., tuple[jax.Array, ...]]:
    def fun(*args: jax.Array) -> tuple[jax.Array, ...]:
        values = [jax.numpy.asarray(x) for x in args]
        for step in instructions:
            operands = (values[i] for i in step.operands)
            values.append(OPERATIONS[step.operation].run(*operands, step.constant))
        return tuple(values[i] for i in outputs)

    return fun


def _task(name: str, description: str, *args: int, **kwargs: Any) -> Task:
    fun, point = random_function(*args, **kwargs)
    source = f"veenv.tasks.random.random_function, seed {args[0]}"
    return Task.at(name, fun, point, description, source)


TASKS = (
    _task("RandomScalar_100", "A random function of 8 scalars, 100 equations.", 0, 8, 100, 5),
    _task(
        "RandomArray_40", "A random function of 5 arrays, 40 equations.", 0, 5, 40, 3, arrays=True
    ),
)
