"""What a CPU can do, in the levels that engines are built for.

The x86-64 levels are those of the psABI; `-vnni` adds the 8-bit dot products that INT8 graphs need for speed and, on x86, for
exact sums. The ARM ones are by the same instructions there.
"""

from __future__ import annotations

import platform
from pathlib import Path

BASELINE = "baseline"
_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"})
_V3 = _V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_DOT = frozenset({"asimd", "asimddp"})
# As /proc/cpuinfo spells them. From the least to the most able, so that the last one that fits is a machine's own.
LEVELS: dict[str, frozenset[str]] = {
    BASELINE: frozenset(),
    "x86-64-v2": _V2,
    "x86-64-v3": _V3,
    "x86-64-v3-vnni": _V3 | {"avx_vnni"},
    "x86-64-v4": _V4,
    "x86-64-v4-vnni": _V4 | {"avx512_vnni"},
    "arm64-dotprod": _DOT,
    "arm64-i8mm": _DOT | {"i8mm"},
}
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_CPUINFO = Path("/proc/cpuinfo")


def architecture() -> str:
    """This machine's architecture, as images and nodes name it."""
    machine = platform.machine()
    return _MACHINES.get(machine, machine)


def features(cpuinfo: Path = _CPUINFO) -> frozenset[str]:
    """What the kernel says that the CPU has; empty where it does not say."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip().lower() in {"flags", "features"}:
            return frozenset(value.split())
    return frozenset()


def own(has: frozenset[str]) -> str:
    """The highest level of a CPU with these features."""
    return [level for level, needed in LEVELS.items() if needed <= has][-1]


def width(level: str) -> str:
    """Levels of one width lay out their tensors alike: ONNX Runtime's blocks have as many channels as a vector has lanes."""
    return level.removesuffix("-vnni")
