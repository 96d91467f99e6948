"""Takes Triton's server and Python backend out of a wheel and into a root folder, since no base image can be pulled here.

    assemble.py ROOT WHEELS

ROOT already holds Debian's Python and the packages of `requirements/triton-demo.txt`; WHEELS holds the wheel of
nvidia-pytriton. Only tritonserver, the Python backend, its stub for this Python, and the libraries these need are taken:
about 60 of 250 MB.
"""

from __future__ import annotations

import re
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

PYTHON = "3.11"
SITE = "/opt/triton/site"
TARGET = "opt/triton/pt"
LIBS = "nvidia_pytriton.libs"
SERVER = "pytriton/tritonserver/bin/tritonserver"
BACKEND = "pytriton/tritonserver/backends/python"
STUB = "triton_python_backend_stub"
STUBS = f"pytriton/tritonserver/python_backend_stubs/{PYTHON}/{STUB}"

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB = 0, 1, 5


def main(root: Path, wheels: Path) -> None:
    """Fill the root folder."""
    [wheel] = wheels.glob("nvidia_pytriton-*.whl")
    target = root / TARGET
    with tempfile.TemporaryDirectory(dir=wheels) as scratch:
        source = Path(scratch)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(source)
        copy_server(source, target)
    strip(target)
    # The stub's Python is isolated and ignores PYTHONPATH, but it does read .pth files.
    packages = root / "usr/lib/python3/dist-packages"
    packages.mkdir(parents=True, exist_ok=True)
    (packages / "triton.pth").write_text(f"{SITE}\n")


def copy_server(source: Path, target: Path) -> None:
    """Copy the programs and the wheel's own libraries that they need, directly or not.

    The wheel's layout is kept, so that its relative library paths go on working and no LD_LIBRARY_PATH is needed.
    """
    programs = [SERVER, *(f"{BACKEND}/{path.name}" for path in (source / BACKEND).iterdir() if path.is_file())]
    for name in programs:
        copy(source / name, target / name, executable=name == SERVER)
    copy(source / STUBS, target / BACKEND / STUB, executable=True)
    library = f"{BACKEND}/libtriton_python.so"
    for needed in closure([source / SERVER, source / library, source / STUBS], source / LIBS):
        copy(needed, target / LIBS / needed.name)


def copy(source: Path, target: Path, *, executable: bool = False) -> None:
    """Copy a file, readable by everybody."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755 if executable else 0o644)


def closure(programs: list[Path], folder: Path) -> list[Path]:
    """The libraries of a folder that these programs need, and those that these need."""
    found: dict[str, Path] = {}
    todo = list(programs)
    while todo:
        for name in needed(todo.pop().read_bytes()):
            path = folder / name
            if name not in found and path.exists():
                found[name] = path
                todo.append(path)
    return sorted(found.values())


def needed(elf: bytes) -> Iterator[str]:
    """Names of the libraries that a 64-bit little-endian ELF file needs, read without binutils."""
    if elf[:6] != b"\x7fELF\x02\x01":
        return
    offset, size, count = struct.unpack_from("<Q", elf, 32)[0], *struct.unpack_from("<HH", elf, 54)
    headers = [struct.unpack_from("<II6Q", elf, offset + number * size) for number in range(count)]
    loads = [(address, start, length) for kind, _, start, address, _, length, *_ in headers if kind == _PT_LOAD]
    for kind, _, start, _, _, length, *_ in headers:
        if kind != _PT_DYNAMIC:
            continue
        entries = []
        for tag, value in struct.iter_unpack("<QQ", elf[start : start + length]):
            if tag == _DT_NULL:
                break
            entries.append((tag, value))
        strings = next(value for tag, value in entries if tag == _DT_STRTAB)
        table = next(begin + strings - address for address, begin, long in loads if address <= strings < address + long)
        for tag, value in entries:
            if tag == _DT_NEEDED:
                yield elf[table + value : elf.index(b"\0", table + value)].decode()


def strip(folder: Path) -> None:
    """Drop debugging symbols where there is a `strip`: a third of the size, nothing else."""
    program = shutil.which("strip")
    if program is None:
        print("no `strip` on this machine (package binutils): the image is larger", file=sys.stderr)
        return
    for path in folder.rglob("*"):
        if path.is_file() and re.search(r"\.so|tritonserver$|stub$", path.name):
            mode = stat.S_IMODE(path.stat().st_mode)
            subprocess.run([program, "--strip-unneeded", str(path)], check=False, stderr=subprocess.DEVNULL)
            path.chmod(mode)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
