"""Tasks must need no dtype promotion at all: that is how float32 and float64 both work."""

from tests.env.conftest import strict_promotion as strict_promotion
