"""`scripts/leaderboard.py`: a whole file of runs, counted again, and refused where it is wrong."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts import leaderboard
from scripts.benchmarks import methods, runs
from scripts.benchmarks.methods import METHODS, resolved
from scripts.benchmarks.runs import Job, Trace, jobs_of, play, run_apart
from scripts.docs.leaderboard import DOCS
from scripts.leaderboard import Config, check, main, refresh, wanted, whole_document
from veenv.env.factory import task_graph

ROOT = Path(__file__).parents[2]
TASK = "Robertson"
FEW = "anneal", "noisy-markowitz", "scored", "reverse"
"""Methods of the small refresh."""


@contextmanager
def few_methods():
    """Leaves few methods and a short search before the runs."""
    whole = dict(METHODS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaderboard, "WARM_UP", (TASK,))
        patch.setattr(leaderboard, "WARM_UP_ORDERS", 10)
        for name in {*METHODS} - {*FEW}:
            del METHODS[name]
        yield
    METHODS.clear()  # their order is that of the table
    METHODS.update(whole)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A refresh of one function with two of the timed methods."""
    folder = tmp_path_factory.mktemp("leaderboard")
    with few_methods():
        refresh(small(folder))
    return folder


@pytest.fixture
def few():
    with few_methods():
        yield


def small(folder, **options):
    options = {"seconds": 1.0, "seeds": 2, "functions": (TASK,), "folder": folder} | options
    return Config(**options)


@pytest.fixture
def document(folder, few):
    return whole_document(small(folder))


def test_a_refresh_has_every_run_and_they_are_right(folder, document):
    check(document)
    keys = {(run.method, run.seed, run.alone) for run in document.runs}
    timed = {(name, seed, False) for name in FEW[:2] for seed in (0, 1)}
    assert keys == timed | {(x, 0, False) for x in FEW[2:]} | {("anneal", 0, True)}
    assert all(not run.failure for run in document.runs)
    assert document.protocol.hours > 0
    assert not (folder / "runs.part.jsonl").exists()
    text = (folder / "runs.json").read_text()
    assert len(text.splitlines()) == len(document.runs) + 8  # a line for each run and function
    assert "reference" not in text
    assert document.functions[0].reference == 17


def test_the_table_needs_every_function_and_seed():
    jobs = jobs_of(wanted(Config()), 3)
    assert len({*jobs}) == len(jobs)
    timed = [job for job in jobs if job.timed and not job.alone]
    assert len(timed) == 10 * 3 * 7
    assert sum(job.budget(60.0) for job in jobs if job.timed) / 2 <= 2 * 3600
    seeded = [method.seeded for method in METHODS.values() if not method.timed]
    quick = [job for job in jobs if not job.timed]
    assert len(quick) == 18 * sum(3 if each else 1 for each in seeded)


def test_classical_orders_are_those_of_the_page():
    """The greedy rule by cost is the cheapest of four on this function."""
    one = leaderboard._function("core", "RoeFlux_3d")
    assert (one.classical, one.rule) == (808, "greedy by cost")


def forged(document, method="anneal", **fields):
    return dataclasses.replace(
        document,
        runs=tuple(
            dataclasses.replace(run, **fields) if run.method == method else run
            for run in document.runs
        ),
    )


FAILED = {"cost": None, "order": (), "trace": (), "failure": "MemoryError"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cost": 16}, "its order costs 17, not 16"),
        ({"order": (1, 2)}, "expected|every|order"),
        ({"eliminations": 10**10}, "not possible"),
        ({"trace": ((0.1, 0, 17),)}, "0 eliminations are not possible"),
        ({"trace": ((0.1, 10**9, 17),), "eliminations": 10**9}, "not possible in 0.1 s"),
        ({"trace": ((0.1, 6, 18),)}, "what its trace ends with"),
        ({"eliminations": 1, "trace": ((0.1, 1, 17),)}, "takes more than 1 eliminations"),
        ({"seconds": 3.0}, "it took 3 s of 1"),
        (FAILED | {"seconds": 62.0}, "it took 62 s of 1"),
        (FAILED | {"eliminations": 10**10}, "not possible"),
    ],
)
def test_a_forged_run_is_refused(document, fields, words):
    with pytest.raises(RuntimeError, match=f"anneal on {TASK} of core, seed 0: .*({words})"):
        check(forged(document, **fields))


def test_a_trace_that_goes_back_or_on_is_refused(document):
    [run] = [run for run in document.runs if run.method == "reverse"]
    end = run.trace[-1]
    for trace in ([(0.0, 1, end[2]), end], [(9.0, 9, end[2] + 1), end], [(9.0, end[1], end[2])]):
        with pytest.raises(RuntimeError, match="its trace goes"):
            check(forged(document, "reverse", trace=tuple(trace)))


def test_only_quick_reruns_may_take_longer(document):
    check(forged(document, "reverse", seconds=3.0))
    with pytest.raises(RuntimeError, match="it took 3 s of 1"):
        check(forged(document, "reverse", seconds=3.0, origin="reported"))


def test_another_graph_or_cost_is_refused(document):
    [one] = document.functions
    for field, value in (("fingerprint", "0" * 64), ("classical", 16), ("rule", "reverse")):
        changed = (dataclasses.replace(one, **{field: value}),)
        with pytest.raises(RuntimeError, match="another graph or other costs"):
            check(dataclasses.replace(document, functions=changed))
    older = dataclasses.replace(document.protocol, jax="0.1")
    check(dataclasses.replace(document, protocol=older))  # it traces the same graph
    foreign = (dataclasses.replace(one, fingerprint="0" * 64),)
    with pytest.raises(ValueError, match=r"the runs are of jax .*, which traces another graph"):
        check(dataclasses.replace(document, protocol=older, functions=foreign))


def lacking(raw):
    raw["runs"].pop()


def changed(where, **fields):
    def change(raw):
        part = raw[where] if isinstance(raw[where], dict) else raw[where][0]
        part |= fields

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lacking, "anneal on Robertson of core, seed 0, alone is missing"),
        (lambda raw: raw["runs"].append(raw["runs"][0]), "is there 2 times"),
        (changed("runs", seed=7), "seed 7 is no run of the protocol"),
        (changed("runs", method="nosuch"), "nosuch on Robertson of core, seed 0 is no run"),
        (changed("runs", function="mlp"), "on mlp of core, seed 0 is no run"),
        (changed("runs", trace=[[1.0, 18]]), "expected seconds, eliminations and cost"),
        (changed("runs", trace=1), r"runs\[0\].trace: expected a list"),
        (changed("runs", failure="crashed"), "expected an order, its cost and a trace, or a fail"),
        (changed("runs", order=[]), "expected an order, its cost and a trace, or a failure"),
        (changed("runs", origin="friend"), r"runs\[0\].origin: expected one of rerun, reported"),
        (changed("functions", function="mlp"), "has other functions"),
        (changed("functions", rule=None), r"functions\[0\].rule: expected text"),
        (changed("protocol", seeds=10**9), "expected 1 to 100 seeds"),
        (changed("protocol", jax=None), "protocol.jax: expected text"),
        (lambda raw: raw.pop("protocol"), "protocol: expected an object"),
        (lambda raw: raw.update(runs={}), "runs: expected a list"),
    ],
)
def test_a_file_with_a_gap_is_refused_in_one_line(folder, few, tmp_path, capsys, change, words):
    raw = json.loads((folder / "runs.json").read_text())
    change(raw)
    (tmp_path / "runs.json").write_text(json.dumps(raw))
    with pytest.raises(ValueError, match=words):
        check(whole_document(small(tmp_path)))
    assert main(small(tmp_path, check=True)) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)


def test_a_trial_is_apart(folder, few, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="a trial with --functions needs another --folder"):
        small(DOCS / "leaderboard")
    with pytest.raises(ValueError, match="has other functions than core, real"):
        whole_document(small(folder, functions=()))
    written = []
    monkeypatch.setattr(leaderboard.page, "write", lambda _, docs: written.append(docs))
    for options in ({}, {"docs": tmp_path, "check": True}, {"docs": tmp_path}):
        assert main(small(folder, **options)) == 0
    assert written == [tmp_path]


def test_a_killed_refresh_goes_on_where_it_was(document, tmp_path, monkeypatch):
    """The line that the kill has cut is made again; a file of other code is refused."""
    monkeypatch.setattr(leaderboard, "_commit", lambda: "a")
    config = small(tmp_path)
    head = {
        "commit": "a",
        "protocol": dataclasses.asdict(leaderboard.protocol_of(config)),
        "functions": [dataclasses.asdict(one) for one in document.functions],
    }
    done = [json.dumps({"wall": 7200.0, **dataclasses.asdict(run)}) for run in document.runs[:-1]]
    part = tmp_path / "runs.part.jsonl"
    part.write_text("\n".join([json.dumps(head), *done, '{"set": "co']))
    made = []
    monkeypatch.setattr(
        leaderboard, "run_apart", lambda job, *rest: made.append(job) or run_apart(job, *rest)
    )
    with pytest.raises(ValueError, match="another machine, version, commit or budget"):
        refresh(small(tmp_path, seconds=2.0))
    with monkeypatch.context() as patch:
        patch.setattr(leaderboard, "_commit", lambda: "b")
        with pytest.raises(ValueError, match="another machine, version, commit or budget"):
            refresh(config)
    with monkeypatch.context() as patch:
        patch.setattr(leaderboard, "FASTEST", 1e-3)
        with pytest.raises(RuntimeError, match="not possible"):
            refresh(config)
    assert made == [Job("core", TASK, "anneal", 0, alone=True)]
    assert part.exists()
    assert not config.runs.exists()
    refresh(config)
    assert len(made) == 1
    assert not part.exists()
    again = whole_document(config)
    assert again.runs[:-1] == document.runs[:-1]
    assert again.protocol.hours >= 2


BAD = """
import json, os, sys, time
def crash(*_): os.abort()
def leave(*_): sys.exit(3)
def hang(*_): time.sleep(60)
def wrong(graph, *_): return [1, 1]
def late(graph, seed, seconds, report): time.sleep(1.2); return graph.reverse()
def seen(graph, *_):
    caches = os.environ["VEENV_CACHE_DIR"]
    raise ValueError(json.dumps([[*os.sched_getaffinity(0)], caches, os.listdir(caches)]))
"""


@pytest.fixture
def bad(tmp_path):
    (tmp_path / "bad.py").write_text(BAD)
    return lambda name: (Job("core", TASK, name, 0, origin="reported"), f"{tmp_path}/bad.py:{name}")


def test_a_crash_a_hang_and_bad_orders_are_failures(bad, monkeypatch):
    monkeypatch.setattr(runs, "PATIENCE", 1.0)
    expected = {
        "crash": "ended with exit code -6",
        "leave": "ended with exit code 3",
        "hang": "killed after 2 s",
        "wrong": "ValueError: ",
        "nosuch": "ValueError: .*bad.py has no function 'nosuch'",
    }
    for name, failure in expected.items():
        job, method = bad(name)
        run = run_apart(job, 1.0, -1, method)
        assert run.job == job
        assert (run.cost, run.order, run.trace) == (None, (), ())
        assert pytest.approx(run.seconds, abs=2.0) == 2.0 * (name == "hang")
        assert re.match(failure, run.failure)
        assert leaderboard._problem(run, 1.0) == ""
    assert run_apart(Job("core", TASK, "reverse", 0), 1.0).cost == 18
    job, method = bad("late")
    late = play(job, 0.1, method)
    assert (late.failure, late.cost, late.order, late.trace) == ("took 1 s of 0.1 s", None, (), ())
    assert leaderboard._problem(late, 0.1) == ""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes cannot be pinned")
def test_each_run_has_a_core_and_an_empty_cache(bad):
    job, method = bad("seen")
    core = max(os.sched_getaffinity(0))
    seen = [
        json.loads(run_apart(job, 1.0, core, method).failure.removeprefix("ValueError: "))
        for _ in range(2)
    ]
    assert [(one[0], one[2]) for one in seen] == [([core], [])] * 2
    assert len({one[1] for one in seen}) == 2
    assert not any(Path(one[1]).exists() for one in seen)


@pytest.mark.slow
def test_a_run_ends_when_the_process_that_started_it_is_killed(tmp_path):
    (tmp_path / "hang.py").write_text(
        "import os, pathlib, time\n"
        "def hang(*_):\n"
        f"    pathlib.Path({str(tmp_path)!r}, 'pid').write_text(str(os.getpid()))\n"
        "    time.sleep(600)\n"
    )
    code = (
        "from scripts.benchmarks.runs import Job, run_apart\n"
        f"job = Job('core', {TASK!r}, 'hang', 0, origin='reported')\n"
        f"run_apart(job, 600.0, -1, {str(tmp_path / 'hang.py:hang')!r})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    pid = tmp_path / "pid"
    until(lambda: pid.exists() and pid.read_text())
    process.kill()
    process.wait()
    until(lambda: not Path(f"/proc/{pid.read_text()}/cmdline").exists())


def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_methods_of_others_are_reported(folder, few, tmp_path, capsys):
    """They may have the name of one of ours."""
    (tmp_path / "own.py").write_text(
        "def anneal(graph, seed, seconds, report):\n"
        "    order = graph.legal(graph.markowitz())\n"
        "    report(len(order), graph.cost(order))\n"
        "    return order\n"
    )
    config = small(tmp_path, method=f"{tmp_path}/own.py:anneal", check=True)
    assert main(config) == 0  # a trial without a table
    (tmp_path / "runs.json").write_bytes((folder / "runs.json").read_bytes())
    assert main(config) == 0
    reported = [run for run in whole_document(config).runs if run.origin == "reported"]
    assert [(run.method, run.seed, run.cost) for run in reported] == [
        ("anneal", 0, 17), ("anneal", 1, 17)
    ]  # fmt: skip
    path = tmp_path / "reported" / "anneal.json"
    text = path.read_text()
    for words, other, said in (
        ('"reported"', '"rerun"', "not marked as reported"),
        ('"seed": 1', '"seed": 2', "anneal on Robertson of core, seed 1 is missing"),
        ('"vertices": 6', '"vertices": 7', "other functions or graphs"),
    ):
        path.write_text(text.replace(words, other))
        assert main(small(tmp_path, check=True)) == 2
        assert said in capsys.readouterr().err


def test_a_method_that_always_fails_has_no_row(tmp_path, capsys):
    (tmp_path / "own.py").write_text("import nosuchpackage\n")
    assert main(small(tmp_path, method=f"{tmp_path}/own.py:mine")) == 1
    assert "failed: ModuleNotFoundError: No module named" in capsys.readouterr().err
    assert not (tmp_path / "reported").exists()
    assert main(small(tmp_path, method=f"{tmp_path}/nosuch.py:mine")) == 2
    assert "there is no file" in capsys.readouterr().err


QUICK = [name for name, method in METHODS.items() if not method.timed]


@pytest.mark.parametrize("name", [*QUICK, "noisy-markowitz", "anneal", "optimize"])
def test_each_method_returns_an_order_and_reports_it(name):
    run = play(Job("core", "HumanHeartDipole", name, 1), 1.0)
    assert not run.failure
    assert run.cost == run.trace[-1][2] >= 148
    assert leaderboard._problem(run, 1.0) == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo-warm", "ppo-from-nothing", "alphazero", "ppo-one-file"])
def test_each_learner_returns_an_order_and_reports_it(name):
    run = play(Job("core", "HumanHeartDipole", name, 1), 40.0)
    assert not run.failure
    assert run.cost == run.trace[-1][2] <= 240
    assert leaderboard._problem(run, 40.0) == ""


def test_learners_without_time_or_games(monkeypatch):
    graph, reports = task_graph(TASK), []
    order = METHODS["ppo-warm"].play(graph, 0, 0.0, lambda *row: reports.append(row))
    assert reports[-1] == (32 * 6, graph.cost(order))
    nothing = SimpleNamespace(
        order=SimpleNamespace(name=TASK), best=SimpleNamespace(played=lambda name: None)
    )
    monkeypatch.setattr(methods, "train", lambda *_, **__: nothing)
    with pytest.raises(RuntimeError, match="no game was played"):
        METHODS["ppo-from-nothing"].play(graph, 0, 1.0, lambda *_: None)


def test_traces_hold_improvements_alone():
    trace = Trace()
    for eliminations, cost in ((5, float("inf")), (20, 9), (10, 9.0), (15, 7.5), (30, 8)):
        trace(eliminations, cost)
    assert [point[1:] for point in trace.points] == [(20, 9), (20, 8)]
    assert trace.eliminations == 30


@pytest.mark.parametrize(("cost", "points"), [(9, [9]), (8, [9, 8]), (7, [9, 7]), (10, [10])])
def test_traces_end_with_the_order_that_is_returned(cost, points):
    trace = Trace()
    trace(10, 9)
    if cost == 8:
        trace(20, 7)  # which it has not
    trace.end(cost, 6)
    assert [point[2] for point in trace.points] == points


def test_unknown_methods_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"expected one of .*optimize.*, or FILE\.py:FUNCTION"):
        resolved("nosuch")
    for option, value in (("seconds", -1.0), ("seeds", 0), ("seeds", 1000)):
        with pytest.raises(ValueError, match=f"{option} must be .*, got {value:g}"):
            Config(**{option: value})
    command = [sys.executable, "scripts/leaderboard.py", "--check", "--folder", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1


@pytest.mark.whole
def test_the_committed_runs_are_right():
    check(whole_document(Config()))
