"""Entry point of `devcluster` and `python -m devcluster`."""

from __future__ import annotations

import sys

from devcluster.cli import main

if __name__ == "__main__":
    sys.exit(main())
