"""Run the test levels one after another and close with a table: `python -m tests.run [all|unit|contract|integration|e2e]`."""

from __future__ import annotations

import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

TESTS = Path(__file__).parent
OUT = TESTS.parent / "test-out"
LEVELS = {
    "unit": "pure functions",
    "contract": "CRD, samples and charts against a real API server",
    "integration": "the operator against a real control plane",
    "e2e": "real pods that speak",
}


@dataclass(frozen=True)
class Result:
    """Counts of one level."""

    passed: int
    failed: int
    skipped: int
    seconds: float


def run_level(level: str) -> Result:
    """Run one level in its own process, so that none depends on what another left behind."""
    report = OUT / f"{level}.xml"
    report.unlink(missing_ok=True)
    begun = time.monotonic()
    command = [sys.executable, "-m", "pytest", str(TESTS / level), f"--junitxml={report}", "--durations=5", "-rs"]
    code = subprocess.run(command, check=False, cwd=TESTS.parent).returncode
    seconds = time.monotonic() - begun
    if not report.exists():
        return Result(0, 1, 0, seconds)
    suite = ET.parse(report).getroot()[0].attrib
    bad = int(suite["failures"]) + int(suite["errors"])
    skipped = int(suite["skipped"])
    # A level that ran nothing, or whose runner failed otherwise, has not passed.
    if code not in {0, 1} or (code == 1 and not bad):
        bad += 1
    return Result(
        max(0, int(suite["tests"]) - int(suite["failures"]) - int(suite["errors"]) - skipped), bad, skipped, seconds
    )


def main(wanted: str) -> int:
    """Run the wanted levels; the exit status is 0 only when every one passed."""
    if wanted not in {*LEVELS, "all"}:
        print(f"error: no test level {wanted!r}; next: make test LEVEL={'|'.join(LEVELS)}", file=sys.stderr)
        return 2
    OUT.mkdir(exist_ok=True)
    results = {}
    console = Console()
    for level, what in LEVELS.items():
        if wanted in {level, "all"}:
            console.print(f"\n[bold]{level}[/]: {what}")
            results[level] = run_level(level)
    table = Table("level", "passed", "failed", "skipped", "seconds", title="Tests")
    for level, result in results.items():
        table.add_row(level, str(result.passed), str(result.failed), str(result.skipped), f"{result.seconds:.0f}")
    console.print(table)
    passed, failed, skipped = (
        sum(getattr(r, part) for r in results.values()) for part in ("passed", "failed", "skipped")
    )
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "all"))
