"""Mutation testing: small wrong changes to the code, and the tests that notice them.

A mutant changes one operator, constant, condition or statement of a function. The tests that run
its line are run on it, fast ones first, until one fails. Those where none does are survivors:

    python tests/mutants.py --number 450

writes tests/data/mutants.json: counts by module, and each survivor with the reason that this file
had for it. The tests are those of the package, the corpus and sparse Jacobians among them, that the
default suite runs.

One process imports JAX, then forks for each mutant, whose code object takes the place of the
function's. Which test runs which line is recorded on a first run, and kept in the folder of
`--state`, with all verdicts. Code outside of functions, messages of errors, assertions, `strict`
of `zip` and names for the eye are not mutated. Needs Python 3.12 and a system with `fork`.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import copy
import dataclasses
import functools
import importlib
import itertools
import json
import os
import random
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import jax
import pytest

MONITORING: Any = getattr(sys, "monitoring", None)
ROOT = Path(__file__).resolve().parents[1]
MODULES = (
    *("structure.axis_sets", "structure.packed", "structure.packed_product"),
    *("structure.product", "structure.structure", "graph.tableau", "graph.precedence"),
    *("engine.edge_product", "engine.sums", "engine.edge", "engine.elimination"),
    *("env.rules_array", "env.rules_scalar"),
    *("rules.shape", "rules.contraction", "rules.indexmap"),
)
FILES = {str(ROOT / "veenv" / (m.replace(".", "/") + ".py")): m for m in MODULES}
TESTS = ["tests/test_invariant.py", "tests/test_three_way.py"]
TESTS += [f"tests/{name}" for name in ("structure", "linear", "rules", "graph", "engine", "env")]
COMPILED = ("tests/env", "tests/test_three_way")
"""Tests whose programs another test may have traced before."""
LEFT = ("survived", "died")
"""Verdicts that no test has made."""
EYES = ("__repr__", "__str__", "describe")
MEMORY = 6 << 30
"""Bytes of data that a mutant may have."""

EXACT = {ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn}
EXACT |= {new: old for old, new in EXACT.items()}
OPERATORS = {
    **EXACT,
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
    **{ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd},
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult},
    **{ast.Mod: ast.FloorDiv, ast.BitXor: ast.BitAnd},
    **{ast.LShift: ast.RShift, ast.RShift: ast.LShift},
}
NAMES = {"any": "all", "all": "any", "min": "max", "max": "min", "out": "in", "in": "out"}


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One changed node of one function."""

    module: str
    function: tuple[str, ...]  # the classes around it, and its name
    lines: tuple[int, int]  # first and last line that is changed
    body: tuple[int, int]  # and of the function's body
    column: int  # where the change begins
    number: int  # of the node, as `ast.walk` meets it
    change: str  # of the changes of this node
    text: str  # what it was and what it is

    @property
    def name(self) -> str:
        """A name that is the same in every run on the same source."""
        return f"{self.module}:{self.lines[0]}:{self.column} {self.change} {self.text}"


def changes(node: ast.AST) -> dict[str, Callable[[Any], ast.AST]]:
    """What a node may become, by the kind of change."""
    found: dict[str, Callable[[Any], ast.AST]] = {}

    def put(kind: str, **fields: Any) -> None:
        found[kind] = lambda n: ast.copy_location(type(n)(**{**vars(n), **fields}), n)

    match node:
        case ast.Compare(ops=[op, *rest]) if type(op) in OPERATORS:
            put("compare", ops=[OPERATORS[type(op)](), *rest])
        case ast.BoolOp(op=op) | ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in OPERATORS:
            put("operator", op=OPERATORS[type(op)]())
        case ast.UnaryOp():
            found["unary"] = lambda n: n.operand
        case ast.Constant(value=bool() as value):
            put("constant", value=not value)
        case ast.Constant(value=int() as value):
            put("constant", value=value + 1)
        case ast.Constant(value="out" | "in" as value):
            put("constant", value=NAMES[value])
        case ast.Name(id="any" | "all" | "min" | "max" as name):
            put("name", id=NAMES[name])
        case ast.Return(value=value) if value and getattr(value, "value", 0) is not None:
            put("return", value=ast.Constant(None))
        case ast.comprehension(ifs=[_, *_]):
            put("filter", ifs=[])
    if isinstance(node, ast.If | ast.IfExp | ast.While) and not _negated(node.test):
        put("negate", test=ast.UnaryOp(ast.Not(), node.test))
    called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    if called or isinstance(node, ast.AugAssign | ast.Break | ast.Continue):
        found["drop"] = lambda n: ast.Pass()
    return found


def _negated(test: ast.AST) -> bool:
    """Whether another change of a condition negates it."""
    return isinstance(test, ast.UnaryOp) or (
        isinstance(test, ast.Compare) and [type(op) in EXACT for op in test.ops] == [True]
    )


def mutable(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function's body that are run, messages and annotations left out."""
    if isinstance(node, ast.AnnAssign):
        yield from mutable(node.value) if node.value else ()
    elif not isinstance(node, ast.Raise | ast.Assert | ast.arguments | ast.FormattedValue):
        yield node
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                left_out = name in ("decorator_list", "returns") or (
                    isinstance(child, ast.keyword) and child.arg == "strict"
                )
                yield from mutable(child) if isinstance(child, ast.AST) and not left_out else ()


def functions(tree: ast.AST, outer: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The functions and methods of a module, those inside of others left to them."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from functions(node, (*outer, node.name))
        elif isinstance(node, ast.FunctionDef) and node.name not in EYES:
            yield (*outer, node.name), node


def source(module: str) -> ast.Module:
    """The parsed text of a module of veenv."""
    return ast.parse((ROOT / "veenv" / (module.replace(".", "/") + ".py")).read_text())


def mutants(module: str) -> list[Mutant]:
    """Every mutant of a module."""
    found, tree = [], source(module)
    numbers = {id(node): k for k, node in enumerate(ast.walk(tree))}
    for name, function in functions(tree):
        near: Any = function
        body = function.body[0].lineno, function.end_lineno
        for node in (n for statement in function.body for n in mutable(statement)):
            near = node if hasattr(node, "lineno") else near
            for change, make in changes(node).items():
                new = ast.fix_missing_locations(make(copy.deepcopy(node)))
                shown = [getattr(n, "test", n) for n in (node, new)]
                text = " → ".join(" ".join(ast.unparse(n).split())[:90] for n in shown)
                head: Any = node.test if isinstance(node, ast.If | ast.While) else near
                lines = head.lineno, head.end_lineno or head.lineno
                place = module, name, lines, body, head.col_offset, numbers[id(node)]
                found.append(Mutant(*place, change, text))
    return found


def sampled(number: int, seed: int, modules: Iterable[str]) -> list[Mutant]:
    """A random choice, of every module at least 20 or all that it has."""
    every = [mutants(module) for module in modules]
    total, rng = sum(map(len, every)), random.Random(seed)
    numbers = [max(20, round(number * len(several) / total)) for several in every]
    return [
        mutant
        for several, most in zip(every, numbers, strict=True)
        for mutant in rng.sample(several, min(most, len(several)))
    ]


@contextlib.contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """The mutant's code in the function that the package has."""
    tree = source(mutant.module)
    wanted = [*ast.walk(tree)][mutant.number]

    class Change(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            if node is wanted:
                return ast.copy_location(changes(node)[mutant.change](node), node)
            return self.generic_visit(node)

    module = importlib.import_module(f"veenv.{mutant.module}")
    changed = ast.fix_missing_locations(Change().visit(tree))
    code = compile(changed, module.__file__ or "", "exec", dont_inherit=True)
    for name in mutant.function:
        inner = [c for c in code.co_consts if hasattr(c, "co_code") and c.co_name == name]
        code = inner[-1]
    live: Any = functools.reduce(lambda o, n: vars(o)[n], mutant.function, module)
    live = getattr(live, "fget", None) or getattr(live, "func", None) or live
    while hasattr(live, "__wrapped__"):
        live = live.__wrapped__
    right, live.__code__ = live.__code__, code
    yield
    live.__code__ = right


class Watch:
    """The plugin of pytest that sees tests fail; with a path it records what each runs, too."""

    def __init__(self, path: Path | None = None) -> None:
        self.path, self.failed = path, ""
        self.lines: set[tuple[str, int]] = set()
        self.tests: dict[str, Any] = {}
        if path is not None:
            tool, event = MONITORING.COVERAGE_ID, MONITORING.events.LINE
            MONITORING.use_tool_id(tool, "mutants")
            MONITORING.register_callback(tool, event, self._on_line)
            MONITORING.set_events(tool, event)

    def _on_line(self, code: Any, line: int) -> Any:
        if code.co_filename in FILES:
            self.lines.add((FILES[code.co_filename], line))
        return MONITORING.DISABLE

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keeps the first test, or file that is imported, that fails."""
        self.failed = self.failed or (report.nodeid if report.failed else "")

    pytest_collectreport = pytest_runtest_logreport

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[Any]:
        """Records a test, unless it fails as it is. What an earlier one has cached is forgotten."""
        if self.path is not None:
            self.failed = ""
            self._forget(item.nodeid.startswith(COMPILED))
            MONITORING.restart_events()
        began = time.monotonic()
        result = yield
        if self.path is not None:
            seconds, lines = time.monotonic() - began, collections.defaultdict(list)
            for module, line in sorted(self.lines):
                lines[module].append(line)
            if not self.failed:
                self.tests[item.nodeid] = {"seconds": round(seconds, 3), "lines": lines}
            print(f"{seconds:.2f} s {item.nodeid} {self.failed and 'FAILS'}", flush=True)
        return result

    def _forget(self, compiled: bool) -> None:
        if compiled:
            jax.clear_caches()
        for name, module in [*sys.modules.items()]:
            for value in vars(module).values() if name.startswith("veenv.") else ():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
        self.lines.clear()

    def pytest_sessionfinish(self) -> None:
        """Writes what was recorded."""
        if self.path is not None:
            old = json.loads(self.path.read_text()) if self.path.exists() else {}
            self.path.write_text(json.dumps(old | self.tests))


def run_tests(names: Iterable[str], watch: Watch, *options: str) -> Any:
    """Runs tests of the default suite in this process; examples that fail are not made smaller."""
    usual = "-oaddopts= -pno:cacheprovider -pno:terminal -Wignore:Module already".split(" ", 3)
    usual += ["--import-mode=importlib", "--hypothesis-profile=mutants"]
    usual += ["-m", "not slow and not clients and not soak and not devices and not whole"]
    return pytest.main([*usual, *options, *names], [watch])


def forked(work: Callable[[], str], limit: float, quiet: bool = True) -> str:
    """What some work in a forked process returns; "timeout" or "died" instead of nothing."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.setsid()
        try:
            if quiet:
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, 1)
                os.dup2(null, 2)
                resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            os.write(writing, work().encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    ready, _, _ = select.select([reading], [], [], limit)
    text = os.read(reading, 1 << 16).decode() if ready else "timeout"
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reading)
    return text or "died"


def verdict_of(names: list[str]) -> str:
    """The first test that fails, or "survived"; the first few need the files of few."""
    for several in (names[:8], names[8:40], names[40:]):
        watch = Watch()
        result = run_tests(several, watch, "-x") if several else pytest.ExitCode.OK
        if watch.failed:
            return watch.failed
        if result not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            raise ValueError(f"{result}: where a recorded test is gone, --record")
    return "survived"


def those_that_run(tests: dict[str, Any], module: str, lines: tuple[int, int]) -> list[str]:
    """The tests that run any of some lines of a module (a jump is on no line)."""
    return [
        name
        for name, test in tests.items()
        if any(lines[0] <= line <= lines[1] for line in test["lines"].get(module, ()))
    ]


def judge(
    mutant: Mutant, tests: dict[str, Any], kills: collections.Counter[str], seconds: float
) -> str:
    """The test that notices a mutant, "timeout", "died", or "survived"."""
    names = those_that_run(tests, mutant.module, mutant.lines)
    names = names or those_that_run(tests, mutant.module, mutant.body)
    names.sort(key=lambda name: (tests[name]["seconds"] + 0.02) / (1 + kills[name]) ** 0.7)
    ends = itertools.accumulate(tests[name]["seconds"] for name in names)
    chosen = [name for name, end in zip(names, ends, strict=True) if end <= seconds] or names[:1]
    with applied(mutant):
        return forked(lambda: verdict_of(chosen), 60 + 5 * seconds)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--number", type=int, default=450, help="how many mutants")
    parser.add_argument("--seed", type=int, default=0, help="of their choice")
    parser.add_argument("--module", nargs="*", default=MODULES, choices=MODULES, metavar="MODULE")
    parser.add_argument("--state", type=Path, default=Path(".mutants"), help="folder of the run")
    parser.add_argument("--record", nargs="*", metavar="TESTS", help="record lines of tests anew")
    parser.add_argument("--seconds", type=float, default=300, help="of tests for one mutant")
    parser.add_argument("--again", action="store_true", help="judge survivors anew")
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "data" / "mutants.json")
    return parser.parse_args()


def main() -> None:
    """Records, judges every mutant that is not judged yet, and writes the table."""
    args = arguments()
    args.state.mkdir(parents=True, exist_ok=True)
    recorded, results = (args.state.resolve() / name for name in ("tests.json", "results.jsonl"))
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(args.state.resolve() / "programs"))
    os.chdir(ROOT)
    options = {"derandomize": True, "database": None, "deadline": None}
    phases = hypothesis.Phase.explicit, hypothesis.Phase.generate
    slow = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile(
        "mutants", phases=phases, suppress_health_check=slow, **options
    )
    if args.record is not None or not recorded.exists():
        names = args.record or TESTS
        forked(lambda: str(run_tests(names, Watch(recorded))), 1e5, quiet=False)
    tests = json.loads(recorded.read_text())
    lines = results.read_text().splitlines() if results.exists() else []
    judged: dict[str, str] = dict(map(json.loads, lines))
    kills = collections.Counter(judged.values())
    chosen = sampled(args.number, args.seed, args.module)
    for n, mutant in enumerate(chosen):
        known = judged.get(mutant.name)
        if known is None or (args.again and known in LEFT):
            began = time.monotonic()
            verdict = judged[mutant.name] = judge(mutant, tests, kills, args.seconds)
            kills[verdict] += 1
            with results.open("a") as file:
                file.write(json.dumps([mutant.name, verdict]) + "\n")
            print(f"{n} {time.monotonic() - began:.1f}s {mutant.name} :: {verdict}", flush=True)
    write(args.out, chosen, judged)


def write(path: Path, mutants: list[Mutant], verdicts: dict[str, str]) -> None:
    """The table; reasons of survivors stay, by what is changed, wherever it stands now."""
    old = json.loads(path.read_text()) if path.exists() else {"survivors": []}
    reasons = {(s["module"], s["change"]): s["reason"] for s in old["survivors"]}
    left = [m for m in mutants if verdicts[m.name] in LEFT]
    modules = {
        module: {"mutants": several, "survived": sum(m.module == module for m in left)}
        for module, several in collections.Counter(m.module for m in mutants).items()
    }
    survivors = [
        {
            **{"module": m.module, "line": m.lines[0], "change": m.text},
            "reason": reasons.get((m.module, m.text), ""),
        }
        for m in left
    ]
    total = {"mutants": len(mutants), "survived": len(left)}
    table = {"total": total, "modules": modules, "survivors": survivors}
    path.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
