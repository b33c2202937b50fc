"""`scripts/tune.py`: what it shows, and one line for every wrong input."""

from __future__ import annotations

import pytest

from veenv.agents.cli.commands.tune import main


def run(monkeypatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["tune.py", *arguments])
    return main()


def test_a_function_is_tuned(monkeypatch, capsys):
    function = ("--function", "jax.numpy:hypot", "--args", "(1.0, [2.0, 3.0])", "--no-cache")
    assert run(monkeypatch, *function, "--budget", "2s") == 0
    text = capsys.readouterr().out
    assert "Jacobian of hypot" in text
    assert "| form |" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--task NAME or --function MODULE:NAME"),
        (("--task", "RoeFlx"), "unknown task 'RoeFlx'; did you mean RoeFlux"),
        (("--task", "MLP", "--budget", "soon"), "budget must be a time"),
        (("--task", "MLP", "--batch", "0"), "batch must be a positive number"),
    ],
)
def test_wrong_input_takes_one_line(monkeypatch, refused, arguments, message):
    assert message in refused(run, monkeypatch, *arguments)
