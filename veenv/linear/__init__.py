"""Linear maps known by their action: selections, operators and their shared passes."""
