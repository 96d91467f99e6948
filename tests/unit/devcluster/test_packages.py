"""Tools that are missing."""

from __future__ import annotations

import os

import pytest

from devcluster import packages
from devcluster.errors import MissingToolError
from devcluster.progress import SilentProgress

NONE = packages.Tool("no-such-program", "no-such-package")


def test_what_is_installed_needs_nothing():
    packages.ensure([packages.Tool("sh", "dash")], SilentProgress())


@pytest.fixture
def ordinary_user():
    """Not root for a while, as far as the kernel decides it by the effective user."""
    before = os.geteuid()
    os.seteuid(before or 65534)
    yield
    os.seteuid(before)


@pytest.mark.usefixtures("ordinary_user")
def test_without_root_the_error_names_the_command():
    with pytest.raises(MissingToolError, match="apt-get install -y --no-install-recommends no-such-package"):
        packages.ensure([NONE], SilentProgress())


def test_a_plugin_is_looked_for_in_the_folders_of_plugins(monkeypatch, tmp_path):
    (tmp_path / "ptp").touch()
    monkeypatch.setattr(packages, "CNI_FOLDERS", (tmp_path / "none", tmp_path))
    assert packages.PTP.find() == tmp_path / "ptp"
    assert packages.Tool("bridge", "x", cni=True).find() is None
