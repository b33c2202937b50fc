"""Settings of the agents and of a run, each with one sentence, and how they are read and kept."""
