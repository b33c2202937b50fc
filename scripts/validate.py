"""Proves orders on the real engine: ``python scripts/validate.py --help``."""

from veenv.agents.cli.entry import run

if __name__ == "__main__":
    run("validate")
