"""Searches for an elimination order: ``python scripts/search.py --task RoeFlux_1d``."""

from agents.commands.entry import run

if __name__ == "__main__":
    run("search")
