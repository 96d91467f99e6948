"""Drops the debugging symbols that two wheels of the gateway carry: 13 MB, a tenth of the image, and nothing else.

    strip_symbols.py ROOT [WHEELS]

Only files named here: `strip` breaks some libraries whose library paths were rewritten when their wheel was made.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

GLOBS = ("**/uvloop/loop.*.so", "**/httptools/parser/*.so")


def main(root: Path) -> None:
    """Strip them where there is a `strip`."""
    program = shutil.which("strip")
    if program is None:
        print("no `strip` on this machine (package binutils): the image is larger", file=sys.stderr)
        return
    for pattern in GLOBS:
        for path in root.glob(pattern):
            subprocess.run([program, "--strip-unneeded", str(path)], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
