"""What a run leaves on disk: folder, checkpoints, metrics, curve."""
