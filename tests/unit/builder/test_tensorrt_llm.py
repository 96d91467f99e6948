"""The language model's engine: exact command lines, and programs whose end is understood whatever they print around it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from cosyvoice_runtime.builder import families, tensorrt_llm
from cosyvoice_runtime.builder.reasons import BuildError, Reason
from cosyvoice_runtime.builder.request import BuildRequest, Profile
from cosyvoice_runtime.builder.work import Job
from tests.unit.builder.setting import of_model

WEIGHTS, TARGET = Path("/e/w"), Path("/e/trt_engines_bfloat16")
NOISE = (
    "print('\\x1b[33m[TensorRT-LLM] TensorRT-LLM version: 0.20.0\\x1b[0m'); print('100%|####| 70/70 [00:52<00:00]\\r');"
)


def job(tmp_path: Path, family: str = "CosyVoice3", **changes: Any) -> Job:
    request = of_model(
        tmp_path / "model",
        family=family,
        backend="Triton",
        **{"profile": {"precision": "BF16"}, "target": {"provider": "CUDA", "gpuType": "L4"}, **changes},
    )
    (tmp_path / "engine").mkdir(exist_ok=True)
    return Job(BuildRequest.model_validate(request), tmp_path / "engine", tmp_path / "model", tmp_path, lambda *_: None)


def model(tmp_path: Path, folder: str = "hf_cosyvoice3_llm") -> Path:
    made = tmp_path / "model" / folder
    made.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer_config.json"):
        (made / name).write_text("x")
    return made


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs that note their arguments and write what the real ones write; `fail` makes one of them end badly."""
    folder = tmp_path / "bin"
    folder.mkdir()
    note = f"import json, sys; from pathlib import Path; {NOISE} "
    write = "target = Path(sys.argv[sys.argv.index('--output_dir') + 1]); target.mkdir(); "
    convert = folder / "convert_checkpoint.py"
    convert.write_text(
        f"{note}json.dump(sys.argv[1:], open({str(folder / 'convert.json')!r}, 'w')); {write}(target / 'rank0.safetensors').write_text('x')"
    )
    build = folder / "trtllm-build"
    build.write_text(
        f"#!{sys.executable}\n{note}json.dump(sys.argv[1:], open({str(folder / 'build.json')!r}, 'w')); {write}"
        "[(target / name).write_text('x') for name in ('config.json', 'rank0.engine')]\n"
    )
    build.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setenv(tensorrt_llm.CONVERT, str(convert))
    return folder


@pytest.mark.parametrize(("family", "batch"), [("CosyVoice2UNet", "16"), ("CosyVoice2DiT", "64"), ("CosyVoice3", "64")])
def test_each_family_is_built_with_its_own_limits(family: Any, batch: str) -> None:
    llm = families.llm(family, Profile())

    assert tensorrt_llm.build_command(WEIGHTS, TARGET, llm, "bfloat16") == [
        *("trtllm-build", "--checkpoint_dir", "/e/w", "--output_dir", "/e/trt_engines_bfloat16"),
        *("--max_batch_size", batch, "--max_num_tokens", "32768", "--gemm_plugin", "bfloat16"),
    ]


def test_the_conversion_has_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(tensorrt_llm.CONVERT, raising=False)

    assert tensorrt_llm.convert_command(Path("/model/cosyvoice2_llm"), WEIGHTS, "float16") == [
        sys.executable,
        "/workspace/CosyVoice/runtime/triton_trtllm/scripts/convert_checkpoint.py",
        *("--model_dir", "/model/cosyvoice2_llm", "--output_dir", "/e/w", "--dtype", "float16"),
    ]


def test_the_profile_changes_the_limits() -> None:
    llm = families.llm("CosyVoice3", Profile(max_batch_size=8, max_num_tokens=4096))

    command = tensorrt_llm.build_command(WEIGHTS, TARGET, llm, "float16")

    assert command[5:] == ["--max_batch_size", "8", "--max_num_tokens", "4096", "--gemm_plugin", "float16"]


def test_both_programs_are_run_and_the_engine_lies_where_the_serving_scripts_look(
    tmp_path: Path, programs: Path
) -> None:
    source = model(tmp_path)
    one = job(tmp_path)

    tensorrt_llm.check(one)
    outcome = tensorrt_llm.build(one)

    converted = json.loads((programs / "convert.json").read_text())
    built = json.loads((programs / "build.json").read_text())
    assert converted[:2] == ["--model_dir", str(source)]
    assert built[1] == converted[3]
    assert sorted(path.name for path in (one.folder / "trt_engines_bfloat16").iterdir()) == [
        "config.json",
        "rank0.engine",
    ]
    assert sorted(path.name for path in one.folder.iterdir()) == ["trt_engines_bfloat16"]
    assert outcome.versions == {"tensorrt-llm": "unknown"}


def test_a_build_that_ends_well_without_an_engine_is_noticed(tmp_path: Path, programs: Path) -> None:
    model(tmp_path)
    (programs / "trtllm-build").write_text("#!/bin/sh\nexit 0\n")

    with pytest.raises(BuildError, match=r"rank0\.engine is not there|config\.json is not there"):
        tensorrt_llm.build(job(tmp_path))


@pytest.mark.parametrize(
    ("end", "reason", "words"),
    [
        ("raise MemoryError", Reason.OUT_OF_MEMORY, "higher memory limit"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", Reason.OUT_OF_MEMORY, "killed"),
        (
            "print('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB'); print('[rank0] bye'); sys.exit(1)",
            Reason.OUT_OF_MEMORY,
            "GPU's memory",
        ),
        ("print('OSError: [Errno 28] No space left on device'); sys.exit(1)", Reason.DISK_FULL, "volume of the cache"),
        (
            "print('RuntimeError: CUDA error: no kernel image is available for execution on the device'); sys.exit(134)",
            Reason.UNSUPPORTED_GPU,
            "no code for this GPU",
        ),
        ("print('assertion failed: head_size'); sys.exit(7)", Reason.INTERNAL, "with code 7; its last words:"),
        ("import os; os.abort()", Reason.INTERNAL, "SIGABRT"),
    ],
)
def test_the_end_of_a_program_is_understood_within_noise(end: str, reason: Reason, words: str) -> None:
    program = f"import sys\n{NOISE}\n{end}"

    with pytest.raises(BuildError) as caught:
        tensorrt_llm.run([sys.executable, "-uc", program], "trtllm-build")

    assert caught.value.reason is reason
    assert caught.value.message.startswith("trtllm-build: ")
    assert words in caught.value.message


def test_output_of_any_bytes_and_any_length_does_no_harm() -> None:
    program = "import sys; sys.stdout.buffer.write(b'\\xff\\xfe' * 300000 + b'\\n')"

    tensorrt_llm.run([sys.executable, "-c", program], "convert_checkpoint")


def test_a_model_in_another_format_is_told_with_what_is_missing(tmp_path: Path, programs: Path) -> None:
    folder = model(tmp_path)
    (folder / "model.safetensors").write_text("")
    (folder / "config.json").unlink()

    with pytest.raises(BuildError, match=r"lacks config\.json, model\.safetensors.*convert llm\.pt") as caught:
        tensorrt_llm.check(job(tmp_path))

    assert caught.value.reason is Reason.MISSING_FILE


def test_an_image_without_the_programs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model(tmp_path)
    monkeypatch.setenv(tensorrt_llm.CONVERT, "/nowhere/convert_checkpoint.py")

    with pytest.raises(
        BuildError, match=r"/nowhere/convert_checkpoint\.py is not in this image; set engines\.builderImage"
    ):
        tensorrt_llm.check(job(tmp_path))


@pytest.mark.parametrize(
    ("precision", "capability", "dtype"),
    [("BF16", "8.0", "bfloat16"), (None, "8.9", "bfloat16"), ("FP16", "7.5", "float16"), ("BF16", None, "bfloat16")],
)
def test_precision_becomes_a_type_of_number(tmp_path: Path, precision: Any, capability: Any, dtype: str) -> None:
    one = job(tmp_path, profile={"precision": precision}, target={"computeCapability": capability})

    assert families.dtype(one.request) == dtype


def test_a_gpu_that_is_older_than_bf16_is_refused(tmp_path: Path) -> None:
    one = job(tmp_path, target={"provider": "CUDA", "gpuType": "T4", "computeCapability": "7.5"})

    with pytest.raises(
        BuildError, match=r"T4 has compute capability 7\.5, BF16 needs 8\.0; choose precision FP16"
    ) as caught:
        tensorrt_llm.check(one)

    assert caught.value.reason is Reason.UNSUPPORTED_GPU
