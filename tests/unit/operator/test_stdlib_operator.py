"""The folder `operator/` is no package: it must never stand in for the standard library's module of that name."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_import_operator_gives_the_standard_library_even_from_the_root_of_the_repository() -> None:
    code = "import operator; print(operator.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert Path(found) == Path(sysconfig.get_path("stdlib")) / "operator.py"
    assert not (ROOT / "operator" / "__init__.py").exists()
