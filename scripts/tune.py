"""The fastest form of a Jacobian, by measuring: ``python scripts/tune.py --function mod:f``."""

from veenv.agents.cli.entry import run

if __name__ == "__main__":
    run("tune")
