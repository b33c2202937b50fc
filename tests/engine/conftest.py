"""The engine's tests are of what is emitted for XLA, unless they ask for more."""

from dataclasses import replace

import pytest

from tests.oracles import by_numpy
from veenv.engine import jacobian, second


@pytest.fixture(autouse=True)
def _xla(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """``kernel="auto"``, the default, is ``"xla"`` but in tests that are marked `kernels`.

    Those are compiled, too: which form is taken is decided there.
    """
    if request.node.get_closest_marker("kernels") is not None:
        monkeypatch.setattr(by_numpy, "COMPILES", True)
        return
    compiled = jacobian.in_chosen_form

    def by_xla(request, fun):
        kernel = "xla" if request.kernel == "auto" else request.kernel
        return compiled(replace(request, kernel=kernel), fun)

    monkeypatch.setattr(jacobian, "in_chosen_form", by_xla)
    monkeypatch.setattr(second, "in_chosen_form", by_xla)
