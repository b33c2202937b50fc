"""Type checkers know the signatures of what veenv returns, in a file of a user's."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

CHECKERS = {
    "pyright": ["--pythonpath", sys.executable],
    "mypy": ["--warn-unused-ignores", "--no-incremental", "--follow-imports=silent"],
}
STRICT = '{"reportUnnecessaryTypeIgnoreComment": "error", "extraPaths": ["%s"]}'


@pytest.mark.whole
@pytest.mark.parametrize("checker", ["pyright", pytest.param("mypy", marks=pytest.mark.slow)])
def test_a_users_file(checker, tmp_path):
    program = shutil.which(checker, path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip(f"needs {checker}")
    shutil.copy(ROOT / "tests/data/typed_use.py", tmp_path)
    (tmp_path / "pyrightconfig.json").write_text(STRICT % ROOT)
    done = subprocess.run(
        [program, *CHECKERS[checker], "typed_use.py"],
        cwd=tmp_path,
        env={"PATH": str(Path(program).parent) + ":/usr/bin:/bin", "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
