"""The command line of training: errors, signals, kills and what a run leaves behind."""

import contextlib
import io
import json
import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT
from veenv import Order
from veenv.agents.config.args import TrainArgs, parse_duration, parse_training, task_names
from veenv.agents.config.help import HEADINGS
from veenv.agents.config.ppo import PPOConfig
from veenv.agents.config.settings import options
from veenv.env.factory import task_graph

TOO_MUCH = r".* at least [\d,]{15,} bytes \([\d,]+ GiB\), more than the"


def script(monkeypatch, *args: str) -> None:
    """Runs the script in this process, until it exits."""
    monkeypatch.setattr(sys, "argv", ["train.py", *args])
    runpy.run_path(str(ROOT / "scripts" / "train.py"), run_name="__main__")


def train_here(monkeypatch, capsys, *args: str) -> tuple[int, str, str]:
    """The exit code of the script, and what it says and complains."""
    with pytest.raises(SystemExit) as ended:
        script(monkeypatch, *args)
    return (ended.value.code, *capsys.readouterr())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--task", "RoeFluks_1d"], "did you mean RoeFlux_1d"),
        (["--task", "RoeFlux_1d", "--num-envs", "0"], "num_envs must be .* got 0"),
        (["--task", "mlp", "--time-limit", "soon"], "time_limit must be .* got 'soon'"),
        (["--task", "mlp", "--num-env", "3"], "did you mean --num-envs"),
        (["--task", "mlp", "--cost", "time"], "invalid choice 'time'"),
        (["--task", "RoeFlux,roeflux_1d"], "task names RoeFlux_1d twice"),
        (["--task", "mlp", "--folder", "nowhere://a"], "no file system has addresses of this kind"),
        (["--task", "mlp", "--out", "gs://a", "--tensorboard"], "tensorboard writes to folders of"),
        (["mlp"], "unexpected 'mlp': every value follows the name of its option"),
        ([], "missing option --task"),
        (["--task", "mlp", "--checkpoint-seconds", "0"], "checkpoint_seconds must be .* got 0"),
        (["--task", "mlp", "--preset", "abacus"], "invalid choice 'abacus'"),
        (["--task", "mlp", "--init-from", "nowhere"], "No such file .*nowhere"),
        (["--task", "mlp", "--config", "."], r"cannot read the settings file \.: "),
        (["--task", "mlp", "--num-envs", "10000000"], f"num_envs=10000000: {TOO_MUCH}"),
        (["--task", "mlp", "--hidden", "300000"], f"hidden=300000: {TOO_MUCH}"),
        (["--resume", "nowhere"], "nowhere is not a run folder: it has no config.toml"),
        (["--resume", "runs", "--config", "x.toml"], "give no --config with it"),
        (["--task", "Robertson", "--num-simulations", "3"], "PPO does not search: num_simulations"),
    ],
)
def test_wrong_input_is_one_line_and_code_2(args, message, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    complaint = refused(script, monkeypatch, *args)
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


UPDATES = 10
STEPS = 24 * UPDATES  # 4 environments of 6 moves


def rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def whole_run(out: Path, *args: str) -> tuple[Path, str]:
    """A run in this process from its beginning to its end: its folder and what it said."""
    said = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(said),
        pytest.raises(SystemExit) as ended,
    ):
        script(patch, *args, "--out", str(out), "--timing", "0")
    assert ended.value.code == 0
    [config] = out.glob("*/*/config.toml")
    return config.parent, said.getvalue()


@pytest.fixture(scope="module")
def small_run(tmp_path_factory) -> tuple[Path, str]:
    args = f"--task Robertson --num-envs 4 --hidden 8 --steps {STEPS} --seed 3".split()
    args += ["--checkpoint-updates", "3"]
    return whole_run(tmp_path_factory.mktemp("small") / "runs", *args)


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
def test_a_checkpoint_of_something_else_is_refused(args, message, small_run, monkeypatch, refused):
    folder, _ = small_run
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    complaint = refused(script, monkeypatch, "--resume", str(folder), *args)
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
