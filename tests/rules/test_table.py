"""One record a primitive: no other module has facts about primitives of its own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import veenv
from veenv.rules.table import TABLE, facts

pytestmark = pytest.mark.usefixtures("x64")
ROOT = Path(veenv.__file__).parent
ALLOWED = {
    "_compat.py": "parameters that hold bodies have other names in other versions of JAX",
    "export/c.py": "operations of scalar programs, which have names of their own",
    "engine/known.py": "functions of NumPy that do the same",
    "kernel/building/builder.py": "operations of scalar programs",
    "kernel/building/complex_numbers.py": "functions that compute complex numbers by their parts",
    "kernel/cpu/codegen.py": "operations of scalar programs",
    "kernel/building/elementwise.py": "functions that unroll",
    "kernel/building/decompositions.py": "functions that compute what primitives mean",
    "kernel/building/linear.py": "functions that unroll",
    "kernel/building/data_movement.py": "functions that unroll",
    "kernel/price.py": "operations of scalar programs",
    "kernel/scalar_program.py": "operations of scalar programs",
    "kernel/building/random_numbers.py": "functions that unroll",
    "kernel/building/reductions.py": "functions that unroll",
    "measure/report/write.py": "signs that are drawn",
    "measure/arithmetic.py": "an oracle of the counts, which shares nothing with them",
    "rules/axes.py": "axes that only code tells",
    "rules/complex.py": "which parts of numbers are taken or put",
    "rules/elementwise.py": "derivatives that are functions",
    "rules/contraction.py": "identities of reductions",
    "rules/operations.py": "operations of scalar programs",
    "rules/operator_patterns.py": "functions that list entries",
    "structure/__init__.py": "names that the package exports",
    "tasks/random.py": "a family of functions",
    "tasks/random_ops.py": "a family of functions",
}
"""Modules that name primitives for another reason than a fact."""
FEW = 3
"""Names in one collection from which on they are a table."""


def _named(node: ast.AST) -> list[str]:
    """The strings of a collection that is written out."""
    if isinstance(node, (ast.Set, ast.List, ast.Tuple)):
        items = node.elts
    elif isinstance(node, ast.Dict):
        items = [key for key in node.keys if key is not None]
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        words = node.value.split()
        return words if sum(word in TABLE for word in words) > 0.7 * len(words) else []
    else:
        return []
    return [x.value for x in items if isinstance(x, ast.Constant) and isinstance(x.value, str)]


def test_no_other_module_has_a_table_of_primitives():
    tables = []
    for path in ROOT.rglob("*.py"):
        name = str(path.relative_to(ROOT))
        if name == "rules/table.py" or name in ALLOWED:
            continue
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        found = [(name, n.lineno, _named(n)) for n in nodes if isinstance(n, ast.expr)]
        tables += [one for one in found if sum(map(TABLE.__contains__, one[-1])) >= FEW]
    assert not tables, f"facts about primitives belong to veenv/rules/table.py: {tables}"


def test_a_missing_record_is_named():
    with pytest.raises(KeyError, match="'nosuch' has no record"):
        TABLE["nosuch"]
    assert facts("nosuch").linear_in(2) is None
