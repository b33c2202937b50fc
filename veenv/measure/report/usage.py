"""The code that a report shows: how to use its order."""

from __future__ import annotations

import textwrap

from veenv import tasks
from veenv.measure.report.source import Subject


def code(subject: Subject) -> str:
    """A program that differentiates the function under the order and checks it against JAX."""
    ids = ", ".join(map(str, subject.ids()["this order"]))
    order = "\n".join(textwrap.wrap(ids, 84, initial_indent="    ", subsequent_indent="    "))
    task = subject.task
    if subject.imports is None and task.name in tasks.list():
        function = (
            f'task = veenv.tasks.get("{task.name}")\nf, point = task.fun, task.example_args()'
        )
    elif subject.imports is None:
        function = "f, point = …, …  # the function, and the arguments to differentiate it at"
    else:
        function = subject.imports
    return f"""\
import jax
import veenv

{function}
order = [
{order},
]
jacobian = jax.jit(veenv.jacve(f, order, argnums={task.argnums}))
blocks = jacobian(*point)  # what jax.jacrev(f, argnums)(*point) gives
"""
