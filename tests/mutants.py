"""Mutation testing: small wrong changes to the code, and the tests that notice them.

A mutant changes one operator, constant, condition or statement of a function. The tests that run
its line are run on it, fast ones first, until one fails. Those where none does are survivors:

    python tests/mutants.py --number 450

writes tests/data/mutants.json: counts by module, and each survivor with the reason that this file
had for it.

One process imports JAX and collects the tests once, then forks for each mutant, whose code object
takes the place of the function's. Which test runs which line is recorded on a first run, and kept
in the folder of `--state`, with all verdicts, until `--record`. Code outside of functions, messages
of errors, assertions, `strict` of `zip` and names for the eye are not mutated. Needs Python 3.12
and a system with `fork`.
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
import json
import os
import random
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MONITORING: Any = getattr(sys, "monitoring", None)
ROOT = Path(__file__).resolve().parents[1]
MODULES = (
    *("structure.axis_sets", "structure.packed", "structure.packed_product"),
    *("structure.product", "structure.structure", "graph.tableau", "graph.precedence"),
    *("engine.product", "engine.sums", "engine.edge", "engine.elimination"),
    *("env.rules_array", "env.rules_scalar"),
    *("rules.shape", "rules.contraction", "rules.indexmap"),
)
TESTS = (
    *("tests/structure", "tests/graph", "tests/engine", "tests/env", "tests/rules"),
    *("tests/test_invariant.py", "tests/test_three_way.py"),
)
AT_IMPORT = (
    *("tests/graph/test_captured_values.py", "tests/graph/test_forward_only.py"),
    *("tests/engine/sparse/test_stored.py", "tests/engine/test_effects.py"),
    *("tests/engine/test_keys.py", "tests/engine/test_containers.py"),
    *("tests/env/test_adapters.py", "tests/env/test_mistakes.py"),
    "tests/env/test_rules_array.py",
    "tests/engine/test_symbolic_shapes.py",
    "tests/engine/test_narrow.py",
)
"""Tests that start JAX's backend when they are imported, which no fork survives: imported anew."""
FAST = "not slow and not clients and not soak and not devices"
COMPILED = ("tests/env", "tests/test_three_way")
"""Tests whose programs another test may have traced before."""
EYES = ("__repr__", "__str__", "describe")
MEMORY = 6 << 30
"""Bytes of data that a mutant may have."""

Pair = tuple[type[ast.AST], type[ast.AST]]
COMPARED = {
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Lt: ast.LtE, ast.LtE: ast.Lt},
    **{ast.Gt: ast.GtE, ast.GtE: ast.Gt},
}
COMPUTED = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult},
    **{ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd},
    **{ast.BitXor: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift},
}
UNCHANGED = ast.Raise | ast.Assert | ast.AnnAssign | ast.arguments | ast.FormattedValue
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
        case ast.Compare(ops=[op, *rest]) if type(op) in COMPARED:
            put("compare", ops=[COMPARED[type(op)](), *rest])
        case ast.BoolOp(op=op):
            put("bool", op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in COMPUTED:
            put("arithmetic", op=COMPUTED[type(op)]())
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
    if isinstance(node, ast.If | ast.IfExp | ast.While) and not _negated(node.test):
        put("negate", test=ast.UnaryOp(ast.Not(), node.test))
    if isinstance(node, ast.comprehension) and node.ifs:
        found["filter"] = lambda n: ast.comprehension(n.target, n.iter, [], n.is_async)
    if isinstance(node, ast.Return) and not _is_none(node.value):
        put("return", value=ast.Constant(None))
    if isinstance(node, ast.AugAssign | ast.Break | ast.Continue) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        found["drop"] = lambda n: ast.Pass()
    return found


def _is_none(node: ast.AST | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def _negated(test: ast.AST) -> bool:
    """Whether another change of a condition negates it."""
    exact = ast.Eq | ast.NotEq | ast.Is | ast.IsNot | ast.In | ast.NotIn
    return isinstance(test, ast.UnaryOp) or (
        isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], exact)
    )


def mutable(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function's body that are run, messages and annotations left out."""
    if isinstance(
        node, ast.Raise | ast.Assert | ast.AnnAssign | ast.arguments | ast.FormattedValue
    ):
        yield from mutable(node.value) if isinstance(node, ast.AnnAssign) and node.value else ()
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name not in ("decorator_list", "returns", "annotation"):
            for child in value if isinstance(value, list) else [value]:
                checks = isinstance(child, ast.keyword) and child.arg == "strict"
                if isinstance(child, ast.AST) and not checks:
                    yield from mutable(child)


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
                found.append(
                    Mutant(
                        module, name, lines, body, head.col_offset, numbers[id(node)], change, text
                    )
                )
    return found


def sampled(number: int, seed: int, modules: tuple[str, ...]) -> list[Mutant]:
    """A random choice, of every module at least 20 or all that it has."""
    every = {module: mutants(module) for module in modules}
    total, rng = sum(map(len, every.values())), random.Random(seed)
    chosen = []
    for several in every.values():
        most = max(20, round(number * len(several) / total))
        chosen += rng.sample(several, min(most, len(several)))
    return chosen


def code_of(mutant: Mutant) -> Any:
    """The code object of the mutant's function."""
    tree = source(mutant.module)
    wanted = [*ast.walk(tree)][mutant.number]

    class Change(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            if node is wanted:
                return ast.copy_location(changes(node)[mutant.change](node), node)
            return self.generic_visit(node)

    changed = ast.fix_missing_locations(Change().visit(tree))
    path = importlib.import_module(f"veenv.{mutant.module}").__file__ or ""
    code = compile(changed, path, "exec", dont_inherit=True)
    for name in mutant.function:
        several = [c for c in code.co_consts if hasattr(c, "co_code") and c.co_name == name]
        code = several[0] if len(several) == 1 else several[-1]
    return code


def apply(mutant: Mutant) -> None:
    """Puts the mutant's code into the function that the package has."""
    module = importlib.import_module(f"veenv.{mutant.module}")
    live = functools.reduce(lambda o, n: vars(o)[n], mutant.function, module)
    live = getattr(live, "fget", None) or live
    while hasattr(live, "__wrapped__"):
        live = live.__wrapped__
    live.__code__ = code_of(mutant)


def run_items(session: Any, items: list[Any], after: Callable[[Any, float, bool], bool]) -> bool:
    """Runs collected tests until `after` of one of them, its seconds and whether it failed."""
    from _pytest.runner import runtestprotocol

    for item, following in zip(items, [*items[1:], None][: len(items)], strict=True):
        began = time.monotonic()
        reports = runtestprotocol(item, log=False, nextitem=following)
        if after(item, time.monotonic() - began, any(r.failed for r in reports)):
            return True
    return False


class Recorder:
    """Which lines of the modules each test runs, and its seconds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = {str(ROOT / "veenv" / (m.replace(".", "/") + ".py")): m for m in MODULES}
        self.lines: set[tuple[str, int]] = set()
        self.tests: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        tool, event = MONITORING.COVERAGE_ID, MONITORING.events.LINE
        MONITORING.use_tool_id(tool, "mutants")
        MONITORING.register_callback(tool, event, self._on_line)
        MONITORING.set_events(tool, event)

    def _on_line(self, code: Any, line: int) -> Any:
        if code.co_filename in self.files:
            self.lines.add((self.files[code.co_filename], line))
        return MONITORING.DISABLE

    def before(self, compiled: bool = True) -> None:
        """Forgets what an earlier test has cached: the next one runs every line that it needs."""
        import jax

        if compiled:
            jax.clear_caches()
        for name, module in [*sys.modules.items()]:
            if name.startswith("veenv."):
                for value in vars(module).values():
                    if hasattr(value, "cache_clear"):
                        value.cache_clear()
        self.lines.clear()
        MONITORING.restart_events()

    def after(self, item: Any, seconds: float, failed: bool) -> bool:
        """Keeps what a test has run, unless it fails as it is."""
        if not failed:
            lines = collections.defaultdict(list)
            for module, line in sorted(self.lines):
                lines[module].append(line)
            self.tests[item.nodeid] = {"seconds": round(seconds, 3), "lines": lines}
        else:
            print("fails:", item.nodeid, flush=True)
        print(f"{seconds:.2f} s {item.nodeid}", flush=True)
        self.before(item.nodeid.startswith(COMPILED))
        self.path.write_text(json.dumps(self.tests))
        return False


class Loop:
    """The plugin of pytest: instead of the collected tests it runs `body`."""

    def __init__(self, body: Callable[[Any], Any]) -> None:
        self.body = body

    def pytest_configure(self) -> None:
        """Examples that fail are not made smaller."""
        from hypothesis import Phase, settings

        settings.register_profile(
            "mutants", settings(), phases=(Phase.explicit, Phase.generate), database=None
        )
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session: Any) -> bool:
        """In place of pytest's own loop."""
        self.body(session)
        return True


def collect(names: list[str], body: Callable[[Any], Any]) -> None:
    """Collects tests by pytest and hands its session over."""
    import pytest

    options = ["-oaddopts=", "--import-mode=importlib", "-m", FAST, "-pno:cacheprovider"]
    pytest.main([*options, "-pno:terminal", *names], plugins=[Loop(body)])


def forked(work: Callable[[int], None], limit: float, quiet: bool = True) -> str:
    """What a forked process writes before it ends; "timeout" or "died" instead of nothing."""
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
            work(writing)
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


def record(session: Any, path: Path, names: tuple[str, ...]) -> None:
    """Writes which test runs which lines, in a process of its own."""

    def work(pipe: int) -> None:
        recorder = Recorder(path)
        recorder.before()
        here = [item for item in session.items if item.nodeid.startswith(names)]
        run_items(session, here, recorder.after)
        rest = [name for name in AT_IMPORT if name.startswith(names)]
        if rest:
            collect(rest, lambda s: run_items(s, s.items, recorder.after))
        os.write(pipe, b"done")

    print("recorded:", forked(work, 7200, quiet=False), flush=True)


def those_that_run(tests: dict[str, Any], mutant: Mutant, lines: tuple[int, int]) -> list[str]:
    """The tests that run any of some lines of a mutant's module (a jump is on no line)."""
    first, last = lines
    return [
        name
        for name, test in tests.items()
        if any(first <= line <= last for line in test["lines"].get(mutant.module, ()))
    ]


def judge(mutant: Mutant, session: Any, ordered: list[str], limit: float) -> str:
    """The test that notices a mutant, "timeout", "died", or "survived"."""
    here = {item.nodeid: item for item in session.items}

    def work(pipe: int) -> None:
        def after(item: Any, _seconds: float, failed: bool) -> bool:
            if failed:
                os.write(pipe, item.nodeid.encode())
            return failed

        apply(mutant)
        if run_items(session, [here[n] for n in ordered if n in here], after):
            return
        rest, found = [n for n in ordered if n not in here], []
        if rest:
            collect(rest, lambda s: found.append(run_items(s, s.items, after)))
        if not any(found):
            os.write(pipe, b"survived")

    return forked(work, limit)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--number", type=int, default=450, help="how many mutants")
    parser.add_argument("--seed", type=int, default=0, help="of their choice")
    parser.add_argument("--module", nargs="*", default=MODULES, choices=MODULES, metavar="MODULE")
    parser.add_argument("--state", type=Path, default=Path(".mutants"), help="folder of the run")
    parser.add_argument("--record", nargs="*", metavar="TESTS", help="record lines of tests anew")
    parser.add_argument("--again", action="store_true", help="judge survivors anew, all tests")
    parser.add_argument("--seconds", type=float, default=1e9, help="of tests of one mutant")
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "data" / "mutants.json")
    return parser.parse_args()


def main() -> None:
    """Runs the command."""
    args = arguments()
    args.state.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(args.state.resolve() / "programs"))
    os.chdir(ROOT)
    ignored = [f"--ignore={name}" for name in AT_IMPORT]
    collect([*TESTS, *ignored], lambda session: run(session, args))


def run(session: Any, args: argparse.Namespace) -> None:
    """Records, judges every mutant that is not judged yet, and writes the table."""
    from jax._src import xla_bridge

    assert not xla_bridge.backends_are_initialized(), "a test module starts JAX at its import"
    recorded, results = args.state / "tests.json", args.state / "results.jsonl"
    if args.record is not None or not recorded.exists():
        record(session, recorded, tuple(args.record or TESTS))
    tests = json.loads(recorded.read_text())
    judged = {}
    if results.exists():
        judged = dict(map(json.loads, results.read_text().splitlines()))
    kills: collections.Counter[str] = collections.Counter(judged.values())
    chosen_mutants = sampled(args.number, args.seed, tuple(args.module))
    for n, mutant in enumerate(chosen_mutants):
        known = judged.get(mutant.name)
        if known is not None and not (args.again and known in ("survived", "died")):
            continue
        covering = those_that_run(tests, mutant, mutant.lines)
        covering = covering or those_that_run(tests, mutant, mutant.body)
        covering.sort(key=lambda name: (tests[name]["seconds"] + 0.02) / (1 + kills[name]) ** 0.7)
        chosen, total = [], 0.0
        for name in covering:
            total += tests[name]["seconds"]
            if total <= args.seconds or not chosen:
                chosen.append(name)
        began = time.monotonic()
        verdict = judge(mutant, session, chosen, 60 + 5 * min(total, args.seconds))
        kills[verdict] += 1
        judged[mutant.name] = verdict
        with results.open("a") as file:
            file.write(json.dumps([mutant.name, verdict]) + "\n")
        spent = time.monotonic() - began
        print(f"{n} {spent:.1f}s {len(chosen)} tests: {mutant.name} :: {verdict}", flush=True)
    write(args.out, chosen_mutants, judged)


def write(path: Path, mutants: list[Mutant], verdicts: dict[str, str]) -> None:
    """The table; reasons of survivors stay, by what is changed, wherever it stands now."""
    old = json.loads(path.read_text()) if path.exists() else {"survivors": []}
    reasons = {(s["module"], s["change"]): s["reason"] for s in old["survivors"]}
    left = [m for m in mutants if verdicts[m.name] == "survived"]
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
