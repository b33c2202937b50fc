"""What a scheduler does to a run: SIGTERM, kill -9, one of several processes lost, and again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.paths import ROOT
from veenv.agents.cli.signals import PREEMPTED
from veenv.agents.config.args import parse_training
from veenv.agents.config.settings import CONFIG_NAME

OPTIONS = ("--task=Robertson", "--num-envs=4", "--hidden=8", "--seed=5", "--timing=0")
STEPS = 24
"""Environment steps of an update."""
ONE, FOUR = 400, 24
"""Updates of one process, and of four."""


def start(folder: Path, *options: str, **environment: str) -> subprocess.Popen[str]:
    """Starts, or goes on: the command is the same."""
    cache = {"JAX_COMPILATION_CACHE_DIR": str(folder.parent / "cache")}
    cache["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    return subprocess.Popen(
        [sys.executable, "scripts/train.py", *OPTIONS, f"--folder={folder}", *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", **cache, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def start_one(folder: Path) -> subprocess.Popen[str]:
    return start(folder, f"--steps={ONE * STEPS}", "--checkpoint-updates=20")


def start_four(folder: Path) -> list[subprocess.Popen[str]]:
    """Four processes as Slurm starts them."""
    options = "--distributed", f"--steps={FOUR * STEPS}", "--checkpoint-updates=5"
    job = {"SLURM_JOB_ID": str(random.SystemRandom().randrange(4096)), "SLURM_NTASKS": "4"}
    job |= {"SLURM_STEP_NODELIST": "127.0.0.1", "SLURM_STEP_NUM_NODES": "1"}
    return [
        start(folder, *options, **job, SLURM_PROCID=str(i), SLURM_LOCALID=str(i)) for i in range(4)
    ]


def rows(folder: Path) -> list[dict]:
    """The rows of the metrics; the last line may be under way."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def wait_for_row(folder: Path, number: float, processes: list[subprocess.Popen[str]]) -> None:
    deadline = time.monotonic() + 300
    while len(rows(folder)) < number:
        assert all(p.poll() is None for p in processes), [p.communicate() for p in processes]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ends(processes: list[subprocess.Popen[str]], patience: float = 300) -> tuple[list[int], str]:
    """Exit codes, and what they said; those that hang are killed, as schedulers do."""
    try:
        said = "".join(process.communicate(timeout=patience)[0] for process in processes)
    finally:
        for process in processes:
            process.kill()
    return [process.wait() for process in processes], said


def assert_same(folder: Path, other: Path) -> None:
    for name in ("weights.eqx", "order.json"):
        assert (folder / name).read_bytes() == (other / name).read_bytes()
    for mine, theirs in zip(rows(folder), rows(other), strict=True):
        assert mine | {"seconds": 0} == theirs | {"seconds": 0}


def test_a_command_that_is_repeated_goes_on(tmp_path):
    command = ["--task=mlp", "--num-envs=4", f"--folder={tmp_path}"]
    assert parse_training(command).resume is None
    (tmp_path / CONFIG_NAME).write_text('task = "mlp"\nnum_envs = 8\nhidden = 16\n')
    again = parse_training(command)
    assert again.resume == str(tmp_path)
    assert (again.ppo.num_envs, again.ppo.hidden) == (4, 16)
    with pytest.raises(SystemExit):
        parse_training([*command, "--resume=elsewhere"])


@pytest.mark.slow
def test_ten_interruptions_change_nothing(tmp_path):
    """SIGTERM and kill -9 at random moments; the same command again each time."""
    code, said = ends([start_one(tmp_path / "whole")])
    assert code == [0], said
    folder, luck = tmp_path / "run", random.Random(3)
    for number in range(10):
        process = start_one(folder)
        wait_for_row(folder, luck.uniform(number, number + 1) * ONE / 11, [process])
        time.sleep(luck.uniform(0.0, 0.1))
        by = luck.choice([signal.SIGTERM, signal.SIGKILL])
        before = len(rows(folder))
        process.send_signal(by)
        code, said = ends([process])
        assert code == [PREEMPTED if by == signal.SIGTERM else -signal.SIGKILL], said
        if by == signal.SIGTERM:
            newest = max(int(p.stem) for p in (folder / "checkpoints").glob("*.checkpoint"))
            assert newest == len(rows(folder)) >= before
            assert f"--resume {folder}" in said
    code, said = ends([start_one(folder)])
    assert code == [0], said
    assert "(right)" in said
    assert_same(folder, tmp_path / "whole")


@pytest.mark.slow
def test_four_processes_of_which_one_is_lost(tmp_path):
    codes, said = ends(start_four(tmp_path / "whole"))
    assert codes == [0] * 4, said
    assert said.count("run folder:") == 1
    folder = tmp_path / "run"
    processes = start_four(folder)
    wait_for_row(folder, FOUR / 4, processes)
    processes[2].kill()
    codes, said = ends(processes, patience=150)
    assert all(codes), said
    processes = start_four(folder)
    wait_for_row(folder, FOUR / 2, processes)
    processes[3].terminate()  # one of them is asked to leave, and all of them do
    codes, said = ends(processes)
    assert codes == [PREEMPTED] * 4, said
    codes, said = ends(start_four(folder))
    assert codes == [0] * 4, said
    assert_same(folder, tmp_path / "whole")
