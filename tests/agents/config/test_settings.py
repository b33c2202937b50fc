"""Options from files, presets and runs: the same names and checks as on the command line."""

import math
import re

import pytest

from veenv.agents.config.args import TrainArgs, parse_training
from veenv.agents.config.ppo import PPOConfig
from veenv.agents.config.settings import CONFIG_NAME, PRESETS, to_toml


def write(folder, text, name="c.toml"):
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_file_sets_every_kind_of_option(tmp_path):
    path = write(
        tmp_path,
        """
        task = ["mlp", "LSTM"]   # or "mlp,LSTM"
        time_limit = "2m"
        num_envs = 8
        learning_rate = 1e-4
        bfloat16 = true
        """,
    )
    args = parse_training(["--config", path])
    assert args.task == "mlp,LSTM"
    assert args.seconds == 120.0
    assert args.ppo == PPOConfig(num_envs=8, learning_rate=1e-4, bfloat16=True)


def test_the_command_line_wins_over_the_file_and_the_file_over_the_preset(tmp_path):
    path = write(tmp_path, 'task = "mlp"\nnum_envs = 8\nbfloat16 = false\n')
    args = parse_training(["--preset=gpu", f"--config={path}", "--seed", "5", "--task", "LSTM"])
    assert args.task == "LSTM"
    assert args.ppo.num_envs == 8
    assert not args.ppo.bfloat16
    assert args.ppo.seed == 5
    assert args.ppo.num_minibatches == PRESETS["gpu"]["num_minibatches"] != 4


def test_every_setting_can_be_written_and_read_again(tmp_path):
    for args in (
        TrainArgs("mlp"),
        TrainArgs(
            'a "b" ü\\',
            cost="executed",
            time_limit="7m",
            init_from="w.eqx",
            checkpoint_updates=3,
            tensorboard=True,
            ppo=PPOConfig(seed=9, steps=77, learning_rate=1e-5, bfloat16=True, target_kl=0.5),
        ),
    ):
        path = write(tmp_path, to_toml(args))
        assert parse_training(["--config", path]) == TrainArgs(
            **{**vars(args), "config": path, "preset": None}
        )


@pytest.mark.parametrize(
    "line",
    [
        'coordinator = "10.0.0.1:1234"',
        "num_processes = 2",
        "process_id = 0",
        "distributed = true",
        'folder = "elsewhere"',
    ],
)
@pytest.mark.parametrize("option", ["--config", "--resume", "--folder"])
def test_other_hosts_are_named_on_the_command_line_alone(line, option, tmp_path, refused):
    path = write(tmp_path, f'task = "mlp"\n{line}\n', CONFIG_NAME)
    given = path if option == "--config" else str(tmp_path)
    name = line.partition(" ")[0]
    said = refused(parse_training, [option, given])
    assert f"{name} in {path}: it is an option of the command line alone" in said


@pytest.mark.parametrize("option", ["--resume", "--folder"])
def test_an_address_of_weights_is_not_taken_from_a_run_folder(option, tmp_path, refused):
    write(tmp_path, 'task = "mlp"\ninit_from = "gs://elsewhere/run"\n', CONFIG_NAME)
    said = refused(parse_training, [option, str(tmp_path)])
    assert "no address that a run folder names is read" in said
    for flag in ("--init-from", "--init_from"):
        args = parse_training([option, str(tmp_path), f"{flag}=gs://mine/run"])
        assert args.init_from == "gs://mine/run"


def test_settings_that_are_nested_deeply_take_one_line(tmp_path, refused):
    deep = ("x = " + "[" * 5000, "x = " + "{a=" * 5000, "x" + ".x" * 3000 + " = 1", "#" * 10**6)
    for text in (*deep, "x = " + "1" * 5000, "x = 2000-99-99"):
        for option in ("--config", "--resume"):
            path = write(tmp_path, text, CONFIG_NAME)
            args = [option, path if option == "--config" else str(tmp_path)]
            said = refused(parse_training, args)
            assert re.search("is not TOML|unknown option", said)
            assert len(said) < 1000


def test_a_run_brings_its_options(tmp_path):
    write(tmp_path, 'task = "mlp"\nsteps = 100\n', CONFIG_NAME)
    args = parse_training(["--resume", str(tmp_path), "--steps", "200"])
    assert args.task == "mlp"
    assert args.ppo.steps == 200
    assert args.resume == str(tmp_path)


def test_a_network_is_imported_only_where_the_command_line_names_it(tmp_path, refused):
    path = write(tmp_path, 'task = "mlp"\nnetwork = "antigravity:net"\n')
    said = refused(parse_training, ["--config", path])
    assert "code runs only if the command line names it: add --network" in said
    args = parse_training(["--config", path, "--network", "math:pi"])
    assert args.read("network") == math.pi


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num_env = 3", r"unknown option 'num_env' in .*c\.toml; did you mean num_envs"),
        ("resume = 'x'", "resume in .* is an option of the command line alone"),
        ('steps = "many"', "steps in .*c.toml must be a whole number, got 'many'"),
        ('learning_rate = "x"', "learning_rate in .*c.toml must be a number, got 'x'"),
        ('agent = "dqn"', "agent in .*c.toml must be one of ppo, alphazero, got 'dqn'"),
        ('preset = "a"', "preset in .*c.toml: it is an option of the command line alone"),
        ("[ppo]\nseed = 3", "unknown option 'ppo'"),
        ("bfloat16 = 1", "bfloat16 in .* must be true or false, got 1"),
        ("seed = ", "is not TOML"),
        ("task = {a = 1}", "task in .*c.toml must be a number, text or list of texts"),
    ],
)
def test_mistakes_in_a_file_take_one_line(text, message, tmp_path, refused):
    args = ["--task", "mlp", "--config", write(tmp_path, text)]
    assert re.search(message, refused(parse_training, args))
