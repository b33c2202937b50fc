"""Writes and reads run folders: folder, checkpoints, metrics, curve."""
