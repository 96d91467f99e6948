"""Generated files are those that the models give."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosyvoice_operator import crdgen
from cosyvoice_operator.crdgen.files import CRD_FILE, generated_files


def test_the_committed_files_are_fresh(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert crdgen.main(project, check=True) == 0, capsys.readouterr().err


def test_a_stale_file_is_noticed_and_the_difference_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crdgen.main(tmp_path, check=False)
    crd = tmp_path / CRD_FILE
    crd.write_text(crd.read_text().replace("- cvd", "- cosy"))

    assert crdgen.main(tmp_path, check=True) == 1
    assert "-    - cosy" in capsys.readouterr().err


def test_checking_writes_nothing(tmp_path: Path) -> None:
    assert crdgen.main(tmp_path, check=True) == 1
    assert list(tmp_path.iterdir()) == []


def test_generating_twice_gives_the_same() -> None:
    assert generated_files() == generated_files()
