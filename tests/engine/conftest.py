"""The engine's tests are of what is emitted for XLA, unless they ask for more."""

from dataclasses import replace

import pytest

from tests.oracles import by_numpy
from veenv.engine import api


@pytest.fixture(autouse=True)
def _xla(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """``kernel="auto"``, the default, is ``"xla"`` but in tests that are marked `kernels`.

    Those are compiled, too: which form is taken is decided there.
    """
    if request.node.get_closest_marker("kernels") is not None:
        monkeypatch.setattr(by_numpy, "COMPILES", True)
        return
    compiled = api._Wanted.compiled

    def by_xla(wanted, fun, *, alone):
        kernel = "xla" if wanted.kernel == "auto" else wanted.kernel
        return compiled(replace(wanted, kernel=kernel), fun, alone=alone)

    monkeypatch.setattr(api._Wanted, "compiled", by_xla)
