"""Arrays whose types say how they lie on a mesh: results have the types that JAX's own have."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SEVERAL = [
    pytest.param("jit;vmap;vmap, fused;laplacian;shard_map", id="default"),
    pytest.param("eager;set mesh;xla;vmap, fuse", id="eager", marks=pytest.mark.slow),
    pytest.param("value;sparse;forward;markowitz;hessian", id="others", marks=pytest.mark.slow),
]


@pytest.mark.whole
@pytest.mark.parametrize("several", SEVERAL)
def test_types_are_those_of_reverse_mode(several):
    """On four devices, in a process that has them: values, dtypes and shardings, by case."""
    program = Path(__file__).with_name("four_devices.py")
    run = subprocess.run(
        [sys.executable, str(program), several], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert len(found) >= 30
    assert {name: said for name, said in found.items() if said != "as JAX"} == {}
