"""`make gpu-check`: what a build needs a GPU for, in less than ten minutes, on a machine with one.

Run it where the libraries are, in the builder image or on a machine that has TensorRT and Torch:

    docker run --rm --gpus all -v "$PWD:/src" -w /src --entrypoint python3 cosyvoice-builder-tensorrt -m tests.gpu.check

Each family's graphs are made small, with the inputs of the real ones, so that minutes are enough; everything else is what a Job runs.
Parts whose library is not here are named and left out. The exit status is 0 only when something was checked and all of it was right.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]
FAMILIES = ("CosyVoice2UNet", "CosyVoice3", "CosyVoice2DiT")
_LIMIT = 600


class CheckFailedError(Exception):
    """A check did not give what it should."""


def gpu() -> tuple[str, str] | None:
    """Name and compute capability of the GPU; None without one."""
    if shutil.which("nvidia-smi") is None:
        return None
    query = ["nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader", "--id=0"]
    done = subprocess.run(query, check=False, capture_output=True, text=True)
    name, _, capability = done.stdout.strip().rpartition(", ")
    return (name, capability) if done.returncode == 0 and name else None


def graph(path: Path, inputs: dict[str, list[Any]], *, half: bool = False) -> None:
    """A small graph with the given inputs [shapes with names for axes that vary]; its output depends on all of them."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    kind = TensorProto.FLOAT
    values = [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()]
    first, *rest = inputs
    nodes, last = [], first
    if half:
        nodes += [
            helper.make_node("Cast", [first], ["h"], to=TensorProto.FLOAT16),
            helper.make_node("Cast", ["h"], ["f"], to=kind),
        ]
        last = "f"
    nodes.append(helper.make_node("MatMul", ["w", last] if inputs[first][1] == 80 else [last, "w"], ["product"]))
    last = "product"
    for number, name in enumerate(rest):
        nodes.append(helper.make_node("ReduceMean", [name], [f"mean{number}"], keepdims=0))
        nodes.append(helper.make_node("Add", [last, f"mean{number}"], [f"added{number}"]))
        last = f"added{number}"
    nodes.append(helper.make_node("Tanh", [last], ["out"]))
    weights = numpy_helper.from_array(np.random.default_rng(0).standard_normal((80, 80)).astype(np.float32) / 9, "w")
    output = helper.make_tensor_value_info("out", kind, inputs[first])
    model = helper.make_model(
        helper.make_graph(nodes, path.stem, values, [output], [weights]), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 8
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))


def models(folder: Path) -> dict[str, Path]:
    """A small model of each family."""
    mel = {name: [2, 80, "T"] for name in ("x", "mu", "cond")}
    whole = mel | {"mask": [2, 1, "T"], "t": [2], "spks": [2, 80]}
    chunk = {name: ["B", 80, "T"] for name in mel} | {"t": ["B"], "spks": ["B", 80]}
    chunk |= {"cnn_cache": [16, "B", 1024, 2], "att_cache": [16, "B", 8, "P", 128]}
    estimators = {
        "CosyVoice2UNet": ("flow.decoder.estimator.fp32.onnx", whole),
        "CosyVoice3": ("flow.decoder.estimator.autocast_fp16.onnx", whole),
        "CosyVoice2DiT": ("token2wav/flow.decoder.estimator.chunk.fp32.dynamic_batch.simplify.onnx", chunk),
    }
    for family, (name, inputs) in estimators.items():
        graph(folder / family / name, inputs, half=family == "CosyVoice3")
        speaker = folder / family / ("token2wav/campplus.onnx" if family == "CosyVoice2DiT" else "campplus.onnx")
        graph(speaker, {"input": [1, "T", 80]})
    return {family: folder / family for family in FAMILIES}


def request(family: str, model: Path, capability: str, **changes: Any) -> dict[str, Any]:
    """A request as the operator writes it."""
    target = {"arch": "amd64", "provider": "CUDA", "gpuType": "here", "computeCapability": capability}
    whole = {
        "version": 1,
        "key": "0123456789abcdef",
        "backend": "Triton",
        "family": family,
        "model": {"digest": "sha256:0", "path": str(model), "voice": None},
        "target": target,
        "profile": {"precision": "BF16"},
        "keyFields": {},
    }
    return whole | changes


def builder(folder: Path, wanted: dict[str, Any], *command: str) -> dict[str, Any]:
    """Run the builder; gives its result."""
    environment = os.environ | {
        "COSYVOICE_BUILD_REQUEST": json.dumps(wanted),
        "COSYVOICE_CACHE": str(folder / "cache"),
        "COSYVOICE_PORT": "0",
        "PYTHONPATH": os.pathsep.join([str(PROJECT / "runtime_image"), os.environ.get("PYTHONPATH", "")]),
    }
    arguments = [sys.executable, "-m", "cosyvoice_runtime.builder", *command]
    done = subprocess.run(arguments, check=False, stdout=subprocess.PIPE, text=True, env=environment)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def want(found: dict[str, Any], outcome: str, reason: str | None = None) -> None:
    """Raise CheckFailedError unless the result is this one."""
    if (found["outcome"], found["reason"]) != (outcome, reason):
        raise CheckFailedError(f"{outcome} {reason or ''} was wanted, but it gave {json.dumps(found)}")


def check_tensorrt(folder: Path, capability: str) -> Iterator[str]:
    """Plans of every family are built, loaded and compared; what does not fit is refused with its reason."""
    for family, model in models(folder / "models").items():
        found = builder(folder, request(family, model, capability), "tensorrt", str(folder / family))
        want(found, "Succeeded")
        yield f"{family}: {found['seconds']:.0f} s, {found['accuracy']}"
    model = folder / "models/CosyVoice2UNet"
    other = builder(folder, request("CosyVoice2UNet", model, "1.0"), "tensorrt", str(folder / "other"))
    want(other, "Failed", "UnsupportedGPU")
    yield f"another GPU: {other['message']}"
    graph(model / "flow.decoder.estimator.fp32.onnx", {"x": [2, 80, "T"], "strange": [2, 80, "T"]})
    strange = builder(folder, request("CosyVoice2UNet", model, capability), "tensorrt", str(folder / "strange"))
    want(strange, "Failed", "ShapeMismatch")
    yield f"another revision: {strange['message']}"


def check_llm(folder: Path, capability: str) -> Iterator[str]:
    """A language model of CosyVoice's shape, but with two small layers, is converted and built."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    llm = folder / "llm/hf_cosyvoice3_llm"
    config = Qwen2Config(
        vocab_size=1024,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    Qwen2ForCausalLM(config).bfloat16().save_pretrained(llm)
    (llm / "tokenizer_config.json").write_text("{}")
    profile = {"precision": "BF16", "maxBatchSize": 4, "maxNumTokens": 2048}
    wanted = request("CosyVoice3", llm.parent, capability, profile=profile)
    found = builder(folder, wanted, "tensorrt-llm", str(folder / "llm-engine"))
    want(found, "Succeeded")
    yield f"two layers: {found['seconds']:.0f} s, {found['bytes'] >> 20} MiB"


def check_onnxruntime(folder: Path, capability: str) -> Iterator[str]:
    """Graphs are optimised for CUDA in both precisions."""
    graph(folder / "ort/a.onnx", {"input": [1, "T", 80]})
    for precision in ("FP32", "FP16"):
        wanted = request(
            "CosyVoice2UNet", folder / "ort", capability, backend="ONNXRuntime", profile={"precision": precision}
        )
        found = builder(folder, wanted, "onnxruntime", str(folder / f"ort-{precision}"))
        want(found, "Succeeded")
        yield f"{precision}: {found['accuracy']}"


def has_cuda() -> bool:
    """Whether ONNX Runtime can compute on a GPU here."""
    if importlib.util.find_spec("onnxruntime") is None:
        return False
    import onnxruntime

    return "CUDAExecutionProvider" in onnxruntime.get_available_providers()


CHECKS: dict[str, tuple[Callable[[], bool], Callable[[Path, str], Iterator[str]]]] = {
    "tensorrt": (lambda: importlib.util.find_spec("tensorrt") is not None, check_tensorrt),
    "tensorrt-llm": (lambda: shutil.which("trtllm-build") is not None, check_llm),
    "onnxruntime on CUDA": (has_cuda, check_onnxruntime),
}


def main() -> int:
    """Run what can be run here."""
    here = gpu()
    if here is None:
        print("gpu-check: there is no NVIDIA GPU on this machine, so NOTHING was checked.", file=sys.stderr)
        print(
            f"next: run it on a GPU machine:{__doc__.split(':', 2)[2].split('Each family')[0].rstrip()}",
            file=sys.stderr,
        )
        return 2
    print(f"gpu-check on {here[0]}, compute capability {here[1]}")
    begun = time.monotonic()
    done = failed = 0
    for name, (present, check) in CHECKS.items():
        if not present():
            print(f"  {name}: LEFT OUT, it is not installed here")
            continue
        with tempfile.TemporaryDirectory(prefix="gpu-check-") as scratch:
            try:
                for line in check(Path(scratch), here[1]):
                    print(f"  {name}: {line}", flush=True)
                done += 1
            except CheckFailedError as error:
                print(f"  {name}: FAILED: {error}", flush=True)
                failed += 1
    seconds = time.monotonic() - begun
    print(f"gpu-check: {done} of {len(CHECKS)} parts are right, {failed} failed, in {seconds:.0f} s (limit {_LIMIT} s)")
    return 0 if done and not failed and seconds < _LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
