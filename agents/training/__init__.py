"""The training loop, the best orders it found and the devices it runs on."""
