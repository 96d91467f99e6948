"""A pod serves from the engine that it was given, and refuses one that was built for something else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cosyvoice_runtime import cpulevels, engines
from cosyvoice_runtime.builder.manifest import entries, write
from cosyvoice_runtime.gateway import Gateway
from cosyvoice_runtime.settings import Settings
from tests.unit.builder.setting import KEY, Builder, document

EXPECTED = engines.Expected("ONNXRuntime", "Demo", "heart", "CPU")
AVX2 = cpulevels.LEVELS["x86-64-v3"]
AVX512 = cpulevels.LEVELS["x86-64-v4"]


def engine(folder: Path, facts: dict[str, Any] | None = None, **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "hibari.onnx").write_bytes(b"graph")
    files = [{"path": one.path, "bytes": one.size, "sha256": one.sha256} for one in entries(folder)]
    request = {
        name: value for name, value in document(**changes).items() if name not in {"version", "key", "keyFields"}
    }
    write(folder, {"version": 1, "key": KEY, "request": request, "files": files, "facts": facts or {}})
    return folder


def test_the_engine_that_fits_is_found(tmp_path: Path) -> None:
    assert engines.find(engine(tmp_path), EXPECTED) == engines.Engine(KEY, tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"backend": "Triton"}, "built for backend ONNXRuntime, but this pod serves Triton"),
        ({"family": "CosyVoice3"}, "built for family Demo, but this pod serves CosyVoice3"),
        ({"voice": "emma"}, "built for voice heart, but this pod serves emma"),
        ({"provider": "CUDA"}, "built for execution provider CPU, but this pod serves CUDA"),
    ],
)
def test_an_engine_for_something_else_is_refused(tmp_path: Path, change: dict[str, str], words: str) -> None:
    with pytest.raises(engines.EngineError, match=words):
        engines.find(engine(tmp_path), replace(EXPECTED, **change))


def test_an_engine_for_another_architecture_is_refused(tmp_path: Path) -> None:
    other = "arm64" if cpulevels.architecture() == "amd64" else "amd64"

    with pytest.raises(engines.EngineError, match=f"built for architecture {other}"):
        engines.find(engine(tmp_path, target={"arch": other}), EXPECTED)


@pytest.mark.parametrize(
    ("facts", "has", "fits"),
    [
        ({"cpuLevel": "baseline", "optimization": "extended"}, AVX2, True),
        ({"cpuLevel": "x86-64-v4", "optimization": "all"}, AVX512, True),
        ({"cpuLevel": "x86-64-v4", "optimization": "all"}, AVX2, False),
        # Narrower blocks on a wider CPU: its kernels take none of them.
        ({"cpuLevel": "x86-64-v3", "optimization": "all"}, AVX512, False),
        ({"cpuLevel": "x86-64-v4-vnni", "optimization": "extended"}, AVX512, False),
        ({"cpuLevel": "x86-64-v4-vnni", "optimization": "extended"}, AVX512 | {"avx512_vnni"}, True),
    ],
)
def test_an_engine_for_one_kind_of_cpu_runs_on_that_kind(
    tmp_path: Path, facts: dict[str, str], has: frozenset[str], *, fits: bool
) -> None:
    folder = engine(tmp_path, facts)

    if fits:
        assert engines.find(folder, EXPECTED, has).key == KEY
    else:
        with pytest.raises(engines.EngineError, match=rf"level {facts['cpuLevel']}, and this node's is x86-64-v[34]"):
            engines.find(folder, EXPECTED, has)


BREAKAGES: dict[str, Callable[[Path], object]] = {
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "cut short": lambda folder: (folder / "hibari.onnx").write_bytes(b"gr"),
    "gone": lambda folder: (folder / "hibari.onnx").unlink(),
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_an_engine_that_is_not_whole_is_refused(tmp_path: Path, breakage: str) -> None:
    BREAKAGES[breakage](engine(tmp_path))

    with pytest.raises(engines.EngineError, match="build it again"):
        engines.find(tmp_path, EXPECTED)


def test_the_gateway_names_its_engine_and_does_not_start_with_a_wrong_one(tmp_path: Path) -> None:
    folder = engine(tmp_path)

    assert Gateway(Settings(engine_dir=folder)).status()["engineKey"] == KEY
    assert Gateway(Settings()).status()["engineKey"] is None
    with pytest.raises(engines.EngineError, match="family Demo"):
        Gateway(Settings(engine_dir=folder, family="CosyVoice3"))


@pytest.mark.parametrize(
    ("lines", "level"),
    [
        ("flags\t\t: fpu sse2\n", "baseline"),
        ("flags\t\t: " + " ".join(AVX2) + " avx_vnni\n", "x86-64-v3-vnni"),
        ("flags\t\t: " + " ".join(AVX512) + " avx512_vnni\n", "x86-64-v4-vnni"),
        ("Features\t: fp asimd asimddp\n", "arm64-dotprod"),
        ("Features\t: fp asimd asimddp i8mm bf16\n", "arm64-i8mm"),
        ("model name: x\n", "baseline"),
    ],
)
def test_the_level_of_a_cpu_is_what_the_kernel_says(tmp_path: Path, lines: str, level: str) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(lines)

    assert cpulevels.own(cpulevels.features(cpuinfo)) == level


def test_a_real_engine_on_a_read_only_directory_speaks(tmp_path: Path) -> None:
    from cosyvoice_runtime import audio, voice

    builder = Builder(tmp_path)
    assert builder.run(document())[0] == 0
    folder = builder.engines / KEY
    for path in (*folder.iterdir(), folder):
        path.chmod(path.stat().st_mode & ~0o222)

    found = engines.find(folder, EXPECTED)
    speaker = voice.EmbeddedVoice(graphs=voice.embedded("heart").within(found.folder))
    [piece] = speaker.pieces("Good morning to you all.")

    assert audio.defect(speaker.synthesize(piece)) is None
    assert json.loads((folder / "manifest.json").read_text())["facts"]["optimization"] == "extended"
    folder.chmod(0o755)
