"""Engines for TensorRT-LLM: the language model of a family, made by the library's own two programs."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cosyvoice_runtime.builder import families, frame
from cosyvoice_runtime.builder.families import Llm
from cosyvoice_runtime.builder.frame import Outcome
from cosyvoice_runtime.builder.reasons import BuildError, Reason
from cosyvoice_runtime.builder.work import Job

CONVERT = "COSYVOICE_CONVERT_CHECKPOINT"
"""Environment variable with the path of CosyVoice's convert_checkpoint.py."""
_CONVERT_DEFAULT = "/workspace/CosyVoice/runtime/triton_trtllm/scripts/convert_checkpoint.py"
_BUILD = "trtllm-build"
_NEEDED = ("config.json", "model.safetensors", "tokenizer_config.json")
_MADE = ("config.json", "rank0.engine")
_TAIL_LINES = 400


def check(job: Job) -> None:
    """See that the model is there in the format that the programs read, and that the GPU knows its type of number."""
    families.dtype(job.request)
    source = _source(job, families.llm(job.request.family, job.request.profile))
    missing = [name for name in _NEEDED if not (source / name).is_file() or not (source / name).stat().st_size]
    if missing:
        raise BuildError(
            Reason.MISSING_FILE,
            f"{source} lacks {', '.join(missing)}; the language model must be there in Hugging Face's format: fetch it, or convert "
            "llm.pt with CosyVoice's convert_cosyvoice3_to_hf.py",
        )
    for program in (str(_convert()), shutil.which(_BUILD) or _BUILD):
        if not Path(program).is_file():
            raise BuildError(
                Reason.INTERNAL, f"{program} is not in this image; set engines.builderImage to one with TensorRT-LLM"
            )


def build(job: Job) -> Outcome:
    """Convert the checkpoint, then build; the checkpoint, a second copy of the weights, is not kept."""
    dtype = families.dtype(job.request)
    llm = families.llm(job.request.family, job.request.profile)
    target = job.folder / engine_name(dtype)
    with tempfile.TemporaryDirectory(dir=job.folder, prefix=".converting-") as scratch:
        weights = Path(scratch) / f"trt_weights_{dtype}"
        job.stage("converting the language model's weights", 0, 2)
        run(convert_command(_source(job, llm), weights, dtype), "convert_checkpoint")
        job.stage("building the language model's engine", 1, 2)
        run(build_command(weights, target, llm, dtype), _BUILD)
    for name in _MADE:
        if not (target / name).is_file() or not (target / name).stat().st_size:
            raise BuildError(
                Reason.INTERNAL, f"{_BUILD} ended well, but {target / name} is not there; see its log above"
            )
    return Outcome({"tensorrt-llm": version()})


def engine_name(dtype: str) -> str:
    """The directory of the engine, as the serving scripts name it."""
    return f"trt_engines_{dtype}"


def convert_command(source: Path, weights: Path, dtype: str) -> list[str]:
    """The command line of the conversion."""
    folders = ["--model_dir", str(source), "--output_dir", str(weights)]
    return [sys.executable, str(_convert()), *folders, "--dtype", dtype]


def build_command(weights: Path, target: Path, llm: Llm, dtype: str) -> list[str]:
    """The command line of the build."""
    folders = ["--checkpoint_dir", str(weights), "--output_dir", str(target)]
    sizes = ["--max_batch_size", str(llm.max_batch_size), "--max_num_tokens", str(llm.max_num_tokens)]
    return [_BUILD, *folders, *sizes, "--gemm_plugin", dtype]


def run(command: Sequence[str], name: str) -> None:
    """Run a program, hand its output on, and understand its end.

    Raises:
        BuildError: What its output and its exit status mean.
    """
    killed_before = frame.oom_kills()
    tail: list[str] = []
    with subprocess.Popen(  # noqa: S603 - fixed programs, arguments without a shell
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=os.environ
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)  # noqa: T201 - the log of the build
            tail = [*tail[-_TAIL_LINES:], line]
        code = process.wait()
    if code != 0:
        found = frame.died(code, "".join(tail), frame.oom_kills() - killed_before)
        raise BuildError(found.reason, f"{name}: {found.message}")


def version() -> str:
    """Of the library; its import alone takes ten seconds and a GPU."""
    try:
        return importlib.metadata.version("tensorrt_llm")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _source(job: Job, llm: Llm) -> Path:
    if job.model is None:
        raise BuildError(Reason.INTERNAL, "model.path is not set; TensorRT-LLM engines are built from files")
    return job.model / llm.source


def _convert() -> Path:
    return Path(os.environ.get(CONVERT) or _CONVERT_DEFAULT)
