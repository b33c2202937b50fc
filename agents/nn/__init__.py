"""Networks over graphs of any size, their inputs, outputs and weights."""
