"""The commands: the main functions of `veenv-train` and the others, and of the scripts."""
