"""The command line of training: errors, signals, kills and what a run leaves behind."""

import contextlib
import io
import json
import os
import random
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from veenv import Order
from veenv.agents.cli.commands.report import ReportArgs
from veenv.agents.cli.signals import PREEMPTED
from veenv.agents.config.args import TrainArgs, parse, parse_duration, parse_training, task_names
from veenv.agents.config.help import HEADINGS
from veenv.agents.config.ppo import PPOConfig
from veenv.agents.config.settings import options
from veenv.agents.ppo.trainer import Trainer
from veenv.agents.run.checkpoints import Checkpoints
from veenv.agents.run.folder import identity_of
from veenv.agents.training.inputs import Played
from veenv.env.factory import task_graph

ROOT = Path(__file__).parents[2]
SMALL = ("--task", "PropaneCombustion", "--num-envs", "4", "--hidden", "8")


TOO_MUCH = r".* at least [\d,]{15,} bytes \([\d,]+ GiB\), more than the"


def start(*args: str, out: Path) -> subprocess.Popen[str]:
    """Starts the script in the background, with its runs in `out`."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [sys.executable, str(ROOT / "scripts" / "train.py"), *args, "--out", str(out)]
        + ["--timing", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=out.parent,
    )


def train_here(monkeypatch, capsys, *args: str) -> tuple[int, str, str]:
    """Runs the script in this process: its exit code, and what it says and complains."""
    monkeypatch.setattr(sys, "argv", ["train.py", *args])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "scripts" / "train.py"), run_name="__main__")
    return (ended.value.code, *capsys.readouterr())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--task", "nosuch"], "unknown task 'nosuch'"),
        (["--task", "RoeFluks_1d"], "did you mean RoeFlux_1d"),
        (["--task", "RoeFlux_1d", "--num-envs", "0"], "num_envs must be .* got 0"),
        (["--task", "mlp", "--steps", "-1"], "steps must be .* got -1"),
        (["--task", "mlp", "--time-limit", "soon"], "time_limit must be .* got 'soon'"),
        (["--task", "mlp", "--num-env", "3"], "did you mean --num-envs"),
        (["--task", "mlp", "--hidden", "many"], "--hidden: invalid literal"),
        (["--task", "mlp", "--cost", "time"], "invalid choice 'time'"),
        (["--task", "RoeFlux,roeflux_1d"], "task names RoeFlux_1d twice"),
        (["--task", "mlp", "--folder", "nowhere://a"], "no file system has addresses of this kind"),
        (["--task", "mlp", "--out", "gs://a", "--tensorboard"], "tensorboard writes to folders of"),
        (["mlp"], "unexpected 'mlp': every value follows the name of its option"),
        ([], "missing option --task"),
        (["--task", "mlp", "--checkpoint-seconds", "0"], "checkpoint_seconds must be .* got 0"),
        (["--task", "mlp", "--keep-checkpoints", "0"], "keep_checkpoints must be .* got 0"),
        (["--task", "mlp", "--preset", "abacus"], "invalid choice 'abacus'"),
        (["--task", "mlp", "--init-from", "nowhere"], "No such file .*nowhere"),
        (["--config", "nowhere.toml"], "settings file nowhere.toml: No such file"),
        (["--task", "mlp", "--config", "."], r"cannot read the settings file \.: "),
        (["--task", "mlp", "--num-envs", "10000000"], f"num_envs=10000000: {TOO_MUCH}"),
        (["--task", "mlp", "--num-envs", "10000000", "--agent", "alphazero"], TOO_MUCH),
        (["--task", "mlp", "--hidden", "300000"], f"hidden=300000: {TOO_MUCH}"),
        (["--task", "mlp", "--hidden", "300000", "--agent", "alphazero"], TOO_MUCH),
        (["--resume", "nowhere"], "nowhere is not a run folder: it has no config.toml"),
        (["--resume", "runs", "--config", "x.toml"], "give no --config with it"),
        (["--task", "Robertson", "--num-simulations", "3"], "PPO does not search: num_simulations"),
    ],
)
def test_wrong_input_is_one_line_and_code_2(args, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, said, complaint = train_here(monkeypatch, capsys, *args)
    assert code == 2
    assert said == ""
    assert complaint.count("\n") == 1
    assert complaint.startswith("error: ")
    assert re.search(message, complaint)
    assert list(tmp_path.iterdir()) == []


def test_help_has_an_example_then_every_option_in_a_group(monkeypatch, capsys):
    code, said, _ = train_here(monkeypatch, capsys, "--help")
    assert code == 0
    first, *lines = said.splitlines()
    assert re.fullmatch(r"Example: .*train(?:.py)? --task RoeFlux_1d --time-limit 2m", first)
    assert max(len(line) for line in lines) <= 80
    names = {name.replace("_", "-") for name, _ in options(TrainArgs)}
    shown = re.findall(r"^  --([\w-]+)(?: .*)?$", said.partition("  -h, --help")[0], re.MULTILINE)
    assert len(shown) == len(names)
    assert set(shown) == names
    for name in names:  # each is explained, beside its name or below it
        assert re.search(rf"^  --{name}(?: \S+)? *\n? {{2,}}[A-Zλ`]", said, re.MULTILINE), name
    groups = re.findall(r"\n\n(\S.*)\n  -", said)
    assert len(groups) == len(HEADINGS)
    assert "(default 0)" in said
    assert "(default 1)" in said
    assert "None" not in said


def test_a_short_help_has_what_is_no_option_too(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["veenv-report", "--help"])
    with pytest.raises(SystemExit) as ended:
        parse(ReportArgs)
    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert said.startswith("Example: veenv-report runs/")
    assert re.search(r"\nOptions\n  RUN +Folder of a training run", said)
    assert "--cost multiplications|executed|operations\n" in said


UPDATES = 10
STEPS = 24 * UPDATES  # 4 environments of 6 moves
AGAIN = ("--seed", "3", "--checkpoint-updates", "3")
BUDGET = (*SMALL, "--steps", str(204 * UPDATES), *AGAIN)  # 51 moves


def run_folder(out: Path) -> Path | None:
    """The folder of the only run, once its settings are written."""
    found = list(out.glob("*/*/config.toml"))
    return found[0].parent if found else None


def rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def parameters(folder: Path) -> list[bytes]:
    """The bytes of the train state in the last checkpoint."""
    trainer = Trainer(PPOConfig(num_envs=4, hidden=8), Played.named("PropaneCombustion").tasks)
    state = trainer.init()
    identity = identity_of("ppo", "multiplications", state.network, trainer.tasks)
    store = Checkpoints(folder / "checkpoints", identity)
    leaves = jax.tree.leaves(store.restore(state).state)
    data = [
        jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        for x in leaves
    ]
    return [np.asarray(x).tobytes() for x in data]


def whole_run(out: Path, *args: str) -> tuple[Path, str]:
    """A run in this process from its beginning to its end: its folder and what it said."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said):
        patch.setattr(sys, "argv", ["train.py", *args, "--out", str(out), "--timing", "0"])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(ROOT / "scripts" / "train.py"), run_name="__main__")
    assert ended.value.code == 0
    folder = run_folder(out)
    assert folder is not None
    return folder, said.getvalue()


@pytest.fixture(scope="module")
def small_run(tmp_path_factory) -> tuple[Path, str]:
    args = ("--task", "Robertson", *SMALL[2:], "--steps", str(STEPS), *AGAIN)
    return whole_run(tmp_path_factory.mktemp("small") / "runs", *args)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Path:
    return whole_run(tmp_path_factory.mktemp("whole") / "runs", *BUDGET)[0]


def test_run_leaves_a_proved_order(small_run):
    folder, said = small_run
    assert {path.name for path in folder.iterdir()} == {
        "best.eqx", "checkpoints", "config.json", "config.toml", "learning_curve.png",
        "metrics.jsonl", "order.json", "weights.eqx",
    }  # fmt: skip
    graph = task_graph("Robertson")
    order = Order.load(folder / "order.json")
    cost = graph.cost(order.ids_for(graph))
    found = rows(folder)
    assert len(found) == UPDATES
    assert found[-1]["steps"] == STEPS
    assert found[-1]["best_cost"] == {"Robertson": cost}
    assert min(row["min_cost"]["Robertson"] for row in found) == cost
    config = json.loads((folder / "config.json").read_text())
    assert config["ppo"] | {"seed": 3, "num_envs": 4, "steps": STEPS, "hidden": 8} == config["ppo"]
    assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    again = parse_training(["--config", str(folder / "config.toml"), "--seed", "4"])
    assert again.task == "Robertson"
    assert again.ppo == PPOConfig(seed=4, num_envs=4, steps=STEPS, hidden=8)

    assert "forward 20, reverse 18, Markowitz 17" in said
    assert re.search(rf"best found \(PPO\) +{cost} +{cost / 17:.3f}\n", said)
    assert re.search(r"largest relative error \S+ \(right\)", said)
    assert "\r" not in said  # plain lines, no progress bar


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--task", "RoeFlux_1d"], "another task: it is Robertson, .* is RoeFlux_1d"),
        (["--hidden", "16"], "another network: it is hidden 8, this run's is hidden 16"),
        (["--cost", "executed"], "another cost model: it is multiplications, .* is executed"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(args, message, small_run, monkeypatch, capsys):
    folder, _ = small_run
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    code, said, complaint = train_here(monkeypatch, capsys, "--resume", str(folder), *args)
    assert (code, said) == (2, "")
    assert complaint.count("\n") == 1
    assert re.search(message, complaint)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


DAMAGES = {
    "a bad byte": lambda content: (
        content[: len(content) // 3] + b"\xff" + content[len(content) // 3 :]
    ),
    "a half": lambda content: content[: len(content) // 2],
    "nothing": lambda content: b"",
    "no object": lambda content: b"[1, 2]\n3\nnull\n",
    "nonsense": lambda content: b'{"update": {"steps": [1e999, {}]}, "format": [[]]}\n',
    "depth": lambda content: b"[" * 100_000,
}


@pytest.mark.parametrize(
    "damage", ["a bad byte", *(pytest.param(d, marks=pytest.mark.slow) for d in [*DAMAGES][1:])]
)
def test_no_file_of_a_run_is_lost_when_it_is_damaged(
    damage, small_run, tmp_path, monkeypatch, capsys
):
    """Each file in turn, then `--resume`: one line and nothing changed, or all bytes are kept."""
    whole = rows(small_run[0])
    for name in ("metrics.jsonl", "config.toml", "order.json", "checkpoints"):
        folder = tmp_path / name
        shutil.copytree(small_run[0], folder)
        files = [folder / name]
        if name == "checkpoints":
            files = [folder / "checkpoints" / "10.checkpoint"]
        for path in files:
            path.write_bytes(DAMAGES[damage](path.read_bytes()))
        before = [path.read_bytes() for path in files]
        code, said, complaint = train_here(
            monkeypatch, capsys, "--resume", str(folder), "--timing", "0"
        )
        if name == "config.toml":
            assert (code, said, complaint.count("\n")) == (2, "", 1)
            assert [path.read_bytes() for path in files] == before
            continue
        assert (code, complaint) == (0, "")
        assert "warning: " in said or (name, damage) == ("metrics.jsonl", "nothing")
        kept = [p.read_bytes() for p in folder.rglob("*.damaged*")]
        assert all(content in kept for content in before if content)
        if name == "metrics.jsonl":
            left = rows(folder)
            assert all(row in whole for row in left)
            assert len(left) == {"a bad byte": UPDATES - 1, "a half": len(left)}.get(damage, 0)
        elif name != "checkpoints":
            assert rows(folder) == whole
        assert (
            Order.load(folder / "order.json").counts
            == Order.load(small_run[0] / "order.json").counts
        )


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, 5])
def test_a_killed_run_ends_as_if_it_had_not_been(kills, uninterrupted, tmp_path):
    """kill -9 at random moments, then --resume: the same parameters, bit for bit."""
    out, luck = tmp_path / "runs", random.Random(kills)
    for number in range(kills):
        folder = run_folder(out)
        process = start(*(BUDGET if folder is None else ("--resume", str(folder))), out=out)
        seen = 0 if folder is None else len(rows(folder))
        wanted = luck.uniform(0.1, 0.9) * UPDATES * (number + 1) / kills
        deadline = time.monotonic() + 300
        while seen < wanted:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
            folder = run_folder(out)
            seen = len(rows(folder)) if folder and (folder / "metrics.jsonl").exists() else 0
        time.sleep(luck.uniform(0.0, 0.05))
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    folder = run_folder(out)
    process = start("--resume", str(folder), out=out)
    said, complaint = process.communicate(timeout=600)
    assert process.returncode == 0, complaint
    assert re.search(r"going on in .* from (train step \d+|the beginning)", said)
    assert run_folder(out) == folder
    whole = uninterrupted
    assert parameters(folder) == parameters(whole)
    for name in ("weights.eqx", "order.json"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    for mine, theirs in zip(rows(folder), rows(whole), strict=True):
        assert mine | {"seconds": 0, "best_cost": 0} == theirs | {"seconds": 0, "best_cost": 0}


@pytest.mark.slow  # by default Ctrl-C is tested in one process, in tests/agents/test_api.py
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_a_run_cleanly(number, tmp_path):
    process = start(*SMALL, "--time-limit", "10m", out=tmp_path / "runs")
    deadline = time.monotonic() + 200
    while not (found := list(tmp_path.glob("runs/*/*/metrics.jsonl"))):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.2)
    process.send_signal(number)
    said, complaint = process.communicate(timeout=120)
    preempted = number == signal.SIGTERM
    assert process.returncode == (PREEMPTED if preempted else 0), complaint
    assert "Traceback" not in complaint
    assert "stopped by" in said
    assert ("--resume" if preempted else "(right)") in said
    graph = task_graph("PropaneCombustion")
    order = Order.load(found[0].with_name("order.json"))
    last = json.loads(found[0].read_text().splitlines()[-1])
    assert graph.cost(order.ids_for(graph)) == last["best_cost"]["PropaneCombustion"]


def test_arguments_become_settings():
    args = parse_training(["--task", "mlp, LSTM", "--learning-rate", "0.1", "--time-limit", "2m"])
    assert task_names(args.task) == ("mlp", "LSTM")
    assert args.ppo == PPOConfig(learning_rate=0.1)
    assert args.seconds == 120.0
    assert TrainArgs("mlp").seconds == 100.0
    assert TrainArgs("mlp", ppo=PPOConfig(steps=5)).seconds is None


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), ("1.5m", 90.0), ("2 h", 7200.0), ("7s", 7.0)]
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-3", "1d", "m", "1e3", "nan"])
def test_wrong_durations(text):
    with pytest.raises(ValueError, match="time_limit must be a positive duration"):
        parse_duration(text)


@pytest.mark.slow
def test_a_limit_that_passes_while_it_compiles_ends_with_a_classical_order(tmp_path):
    process = start("--task", "RoeFlux_1d", "--time-limit", "2s", out=tmp_path / "runs")
    said, complaint = process.communicate(timeout=300)
    assert process.returncode == 0, complaint
    assert "has passed while the train step was compiled" in said
    assert "right" in said
    [order] = (tmp_path / "runs").glob("*/*/order.json")
    assert Order.load(order).found_by == "the order reverse"
