"""Searches for an elimination order: ``python scripts/search.py --task RoeFlux_1d``."""

from veenv.agents.cli.entry import run

if __name__ == "__main__":
    run("search")
