"""The Jacobian engine: partials with values, eliminated in a given order."""
