"""The engine's tests are of what is emitted for XLA, unless they ask for more."""

import pytest

from veenv.engine import api


@pytest.fixture(autouse=True)
def _xla(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """``kernel="auto"``, the default, is ``"xla"`` but in tests that are marked `kernels`."""
    if request.node.get_closest_marker("kernels") is not None:
        return
    compiled = api._compiled

    def by_xla(forms, fun, order, kernel, *rest):
        return compiled(forms, fun, order, "xla" if kernel == "auto" else kernel, *rest)

    monkeypatch.setattr(api, "_compiled", by_xla)
