"""TensorRT engines up to the library's calls: files, shapes, names, and every call against the signatures of its own wheel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosyvoice_runtime.builder import families, graphs, probes, tensorrt
from cosyvoice_runtime.builder.families import Plan, Range
from cosyvoice_runtime.builder.reasons import BuildError, Reason
from cosyvoice_runtime.builder.request import BuildRequest, Profile
from cosyvoice_runtime.builder.work import Job
from tests.gpu import check
from tests.unit.builder import tensorrt_wheel
from tests.unit.builder.setting import graph, of_model

PROJECT = Path(__file__).parents[3]
GIB = 1 << 30
MEL = Range((2, 80, 4), (2, 80, 500), (2, 80, 3000))
MASK = Range((2, 1, 4), (2, 1, 500), (2, 1, 3000))
REFERENCE = {"input": Range((1, 4, 80), (1, 500, 80), (1, 3000, 80))}
CAMPPLUS = Plan("campplus.onnx", "campplus.l20.fp32.trt", REFERENCE, "FP32", workspace=4 * GIB)
ESTIMATOR = {"x": (2, 80, -1), "mask": (2, 1, -1), "mu": (2, 80, -1), "t": (2,), "spks": (2, 80), "cond": (2, 80, -1)}

needs_bindings = pytest.mark.skipif(tensorrt_wheel.missing() is not None, reason=str(tensorrt_wheel.missing()))


def wanted(family: Any, **profile: Any) -> dict[str, Plan]:
    return {plan.source: plan for plan in families.plans(family, Profile(**profile))}


def test_each_familys_graphs_become_the_files_that_the_serving_code_opens() -> None:
    assert {
        family: {one.source: one.target for one in wanted(family).values()}
        for family in ("CosyVoice2UNet", "CosyVoice3")
    } == {
        "CosyVoice2UNet": {
            "flow.decoder.estimator.fp32.onnx": "flow.decoder.estimator.fp16.mygpu.plan",
            "campplus.onnx": "campplus.l20.fp32.trt",
        },
        "CosyVoice3": {
            "flow.decoder.estimator.autocast_fp16.onnx": "flow.decoder.estimator.autocast_fp16.0.plan",
            "campplus.onnx": "campplus.l20.fp32.trt",
        },
    }
    assert {one.target for one in wanted("CosyVoice2DiT").values()} == {
        "token2wav/flow.decoder.estimator.torch.float16.dynamic_batch.chunk.l20.plan",
        "token2wav/campplus.l20.fp32.trt",
        "campplus.l20.fp32.trt",
    }


def test_the_unet_estimator_has_its_shapes_and_half_precision() -> None:
    plan = wanted("CosyVoice2UNet")["flow.decoder.estimator.fp32.onnx"]

    built = families.resolve(plan, ESTIMATOR)

    assert built.shapes == {"x": MEL, "mu": MEL, "cond": MEL, "mask": MASK}
    assert (built.precision, built.strongly_typed, built.halves_tensors, built.workspace) == (
        "FP16",
        False,
        True,
        4 * GIB,
    )


def test_the_cosyvoice3_estimator_keeps_the_types_of_its_graph() -> None:
    plan = wanted("CosyVoice3")["flow.decoder.estimator.autocast_fp16.onnx"]

    assert (plan.strongly_typed, plan.halves_tensors) == (True, False)
    assert families.resolve(plan, ESTIMATOR).shapes == {"x": MEL, "mu": MEL, "cond": MEL, "mask": MASK}


def test_the_streaming_estimator_has_its_caches() -> None:
    [plan] = [one for source, one in wanted("CosyVoice2DiT").items() if "chunk" in source]
    inputs = {
        **dict.fromkeys(("x", "mu", "cond"), (-1, 80, -1)),
        "t": (-1,),
        "spks": (-1, 80),
        "cnn_cache": (16, -1, 1024, 2),
        "att_cache": (16, -1, 8, -1, 128),
    }

    built = families.resolve(plan, inputs)

    assert built.shapes["att_cache"] == Range((16, 2, 8, 0, 128), (16, 2, 8, 100, 128), (16, 2, 8, 1000, 128))
    assert built.shapes["cnn_cache"] == Range((16, 2, 1024, 2), (16, 2, 1024, 2), (16, 2, 1024, 2))
    assert (built.shapes["x"], built.shapes["t"].usual, built.workspace) == (MEL, (2,), None)


def test_an_estimator_with_one_input_takes_the_reference_conversion() -> None:
    plan = wanted("CosyVoice2UNet")["flow.decoder.estimator.fp32.onnx"]

    built = families.resolve(plan, {"input": (1, -1, 80)})

    assert built.shapes == REFERENCE
    assert (built.precision, built.workspace) == ("FP16", GIB)


def test_the_speaker_graph_is_built_in_single_precision() -> None:
    plan = wanted("CosyVoice3")["campplus.onnx"]

    assert families.resolve(plan, {"input": (1, -1, 80)}) == CAMPPLUS


def test_a_profile_changes_the_greatest_shapes_and_the_workspace() -> None:
    plan = wanted("CosyVoice2UNet", max_frames=2000, workspace_mib=2048)["flow.decoder.estimator.fp32.onnx"]

    assert plan.shapes["x"] == Range((2, 80, 4), (2, 80, 500), (2, 80, 2000))
    assert plan.workspace == 2 * GIB
    with pytest.raises(BuildError, match="maxFrames 400 is below the usual 500"):
        wanted("CosyVoice2UNet", max_frames=400)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({**ESTIMATOR, "streaming": (-1,)}, "has the inputs cond, mask, mu, spks, streaming, t, x"),
        ({name: shape for name, shape in ESTIMATOR.items() if name != "cond"}, "this builder knows cond, mask, mu, x"),
        ({**ESTIMATOR, "x": (1, 80, -1)}, r"input x of .* has shape \[1, 80, -1\], the profile wants \[2, 80, 4\]"),
        ({**ESTIMATOR, "mask": (2, -1)}, "input mask of"),
        ({**ESTIMATOR, "mu": (2, 80, 500)}, r"input mu of .* has shape \[2, 80, 500\]"),
    ],
    ids=["one more", "one less", "other batch", "other rank", "fixed length"],
)
def test_a_graph_of_another_revision_is_a_shape_mismatch(inputs: dict[str, tuple[int, ...]], words: str) -> None:
    plan = wanted("CosyVoice2UNet")["flow.decoder.estimator.fp32.onnx"]

    with pytest.raises(BuildError, match=words) as caught:
        families.resolve(plan, inputs)

    assert caught.value.reason is Reason.SHAPE_MISMATCH


@pytest.mark.parametrize("family", check.FAMILIES)
def test_the_small_models_of_the_gpu_check_have_the_inputs_of_the_real_ones(tmp_path: Path, family: Any) -> None:
    model = check.models(tmp_path)[family]

    for source, plan in wanted(family).items():
        if plan.optional:
            continue
        inputs = graphs.inputs(model / source)
        shapes = {one.name: tuple(size if isinstance(size, int) else -1 for size in one.shape) for one in inputs}
        built = families.resolve(plan, shapes)
        feeds = probes.feeds(source, tensorrt.known_inputs(inputs, built), {})
        [[output], _] = graphs.run(model / source, "CPUExecutionProvider", lambda _, feeds=feeds: feeds)
        assert np.isfinite(output).all()
        assert 0.1 < np.abs(output).mean() < 0.9


def test_the_gpu_check_says_that_it_checked_nothing_where_there_is_no_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    assert check.main() == 2
    assert "no NVIDIA GPU on this machine, so NOTHING was checked" in capsys.readouterr().err


def test_a_plan_is_compared_on_sizes_within_its_ranges() -> None:
    [plan] = [one for source, one in wanted("CosyVoice2DiT").items() if "chunk" in source]
    inputs = [
        probes.Input("x", ["B", 80, "T"], "tensor(float)"),
        probes.Input("att_cache", [16, "B", 8, "P", 128], "tensor(float)"),
        probes.Input("other", ["B"], "tensor(float)"),
    ]

    assert [one.shape for one in tensorrt.known_inputs(inputs, plan)] == [[2, 80, 16], [16, 2, 8, 16, 128], ["B"]]


@pytest.mark.parametrize(
    ("here", "words"),
    [
        (None, "no GPU is visible"),
        (("NVIDIA H100", "9.0"), "for L4 with compute capability 8.9, but this node has NVIDIA H100 with 9.0"),
    ],
)
def test_a_gpu_of_another_type_is_refused_before_an_hour_is_lost(here: tuple[str, str] | None, words: str) -> None:
    target = BuildRequest.model_validate(
        of_model("/model", target={"provider": "CUDA", "gpuType": "L4", "computeCapability": "8.9"})
    ).target

    with pytest.raises(BuildError, match=words) as caught:
        tensorrt.check_gpu(target, here)

    assert caught.value.reason is Reason.UNSUPPORTED_GPU
    tensorrt.check_gpu(target, ("NVIDIA L4", "8.9"))


def test_kernel_times_are_shared_by_one_gpu_type_and_one_version_alone(tmp_path: Path) -> None:
    def target(gpu: str) -> Any:
        return BuildRequest.model_validate(of_model("/m", target={"gpuType": gpu, "computeCapability": "8.9"})).target

    names = {
        tensorrt.timing_cache(tmp_path, version, target(gpu)).name
        for version in ("10.10.0.31", "10.13.3.9")
        for gpu in ("L4", "L40S", "A100/MIG 1g.5gb")
    }
    assert len(names) == 6
    assert all(name.isascii() and "/" not in name and " " not in name for name in names)


def test_missing_graphs_are_named_with_where_they_come_from(tmp_path: Path) -> None:
    graph(tmp_path / "campplus.onnx")
    (tmp_path / "flow.decoder.estimator.fp32.onnx").touch()
    request = BuildRequest.model_validate(of_model(tmp_path, family="CosyVoice3", backend="Triton"))
    job = Job(request, tmp_path, tmp_path, tmp_path, lambda *_: None)

    with pytest.raises(BuildError, match=r"autocast_fp16\.onnx is not there.*FP16-ONNX holds it") as caught:
        tensorrt.check(job)

    assert caught.value.reason is Reason.MISSING_FILE


def test_the_engine_looks_like_the_models_directory(tmp_path: Path) -> None:
    model, mine = tmp_path / "source", tmp_path / "engine/model"
    for name in (
        "llm.pt",
        "campplus.onnx",
        "token2wav/flow.pt",
        "token2wav/deep/x.txt",
        "CosyVoice-BlankEN/vocab.json",
    ):
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        (model / name).write_text("x")
    (mine / "token2wav").mkdir(parents=True)
    (mine / "token2wav/campplus.l20.fp32.trt").write_text("plan")

    tensorrt.link(model, mine)

    links = {path.relative_to(mine).as_posix(): str(path.readlink()) for path in mine.rglob("*") if path.is_symlink()}
    assert links == {
        "llm.pt": "/model/llm.pt",
        "campplus.onnx": "/model/campplus.onnx",
        "CosyVoice-BlankEN": "/model/CosyVoice-BlankEN",
        "token2wav/flow.pt": "/model/token2wav/flow.pt",
        "token2wav/deep": "/model/token2wav/deep",
    }
    assert (mine / "token2wav/campplus.l20.fp32.trt").read_text() == "plan"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.07  Sat Feb 17\n", "535.161.07"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.51.03  Release Build\n", "575.51.03"),
        ("something else", None),
    ],
)
def test_the_nodes_driver_is_noted(tmp_path: Path, text: str, version: str | None) -> None:
    (tmp_path / "version").write_text(text)

    assert tensorrt.driver_version(tmp_path / "version") == version
    assert tensorrt.driver_version(tmp_path / "absent") is None


@needs_bindings
def test_every_call_fits_the_signatures_of_tensorrts_own_wheel(tmp_path: Path) -> None:
    assert check_types(tmp_path, "") == ""


@needs_bindings
@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        ("builder.build_engine(network, config)", 'has no attribute "build_engine"'),
        ("config.set_memory_pool_limit(1 << 30)", "Missing positional argument"),
        ("config.set_timing_cache(cache, ignore_missmatch=False)", "Unexpected keyword argument"),
        ("config.set_flag(trt.DataType.HALF)", "incompatible type"),
        ("trt.BuilderFlag.FP15", 'has no attribute "FP15"'),
    ],
)
def test_a_call_that_tensorrt_does_not_have_is_noticed(tmp_path: Path, call: str, complaint: str) -> None:
    assert complaint in check_types(tmp_path, call)


def check_types(folder: Path, call: str) -> str:
    """What mypy says of the adapter, with one more call in it, against stubs of the wheel."""
    (folder / "stubs/tensorrt").mkdir(parents=True)
    (folder / "stubs/tensorrt/__init__.pyi").write_text(tensorrt_wheel.stubs(folder))
    source = (PROJECT / "runtime_image/cosyvoice_runtime/builder/tensorrt_library.py").read_text()
    marker = "    serialized = builder.build_serialized_network"
    assert marker in source
    (folder / "adapter.py").write_text(source.replace(marker, f"    {call}\n{marker}" if call else marker))
    (folder / "mypy.ini").write_text(
        "[mypy]\nstrict = True\nwarn_unused_ignores = False\nplugins = pydantic.mypy\n"
        f"mypy_path = {folder}/stubs:{PROJECT}/runtime_image\nfollow_imports = silent\nignore_missing_imports = True\n"
        "explicit_package_bases = True\nnamespace_packages = True\n"
    )
    command = [sys.executable, "-m", "mypy", "--config-file", str(folder / "mypy.ini"), "--no-error-summary"]
    cache = ["--cache-dir", str(folder / "mypy-cache"), str(folder / "adapter.py")]
    return subprocess.run([*command, *cache], check=False, capture_output=True, text=True, cwd=folder).stdout


@needs_bindings
def test_the_callbacks_are_called_as_tensorrt_calls_them(tmp_path: Path) -> None:
    program = """
import sys, tensorrt_bindings
sys.modules["tensorrt"] = tensorrt_bindings
from cosyvoice_runtime.builder import tensorrt_library as library
trt = tensorrt_bindings
said = []
monitor = library.Monitor("a.onnx", lambda *what: said.append(what))
monitor.phase_start("Building Engine", None, 4)
monitor.phase_start("Inner", "Building Engine", 900)
assert monitor.step_complete("Inner", 3) is True
assert monitor.step_complete("Building Engine", 0) is True
monitor.phase_finish("Inner"); monitor.phase_finish("Building Engine")
assert said == [("a.onnx: Building Engine", 0, 4), ("a.onnx: Building Engine", 1, 4)], said
logger = library.Logger()
logger.log(trt.ILogger.Severity.INFO, "[MemUsageChange]")
logger.log(trt.ILogger.Severity.ERROR, "expecting library version 10.10.0.31 got 10.13.3.9, please rebuild.")
failure = logger.failure("loading the plan")
assert failure.reason == "VersionMismatch", failure
assert failure.message.startswith("loading the plan: the engine was built by TensorRT 10.13.3.9"), failure
assert library.VERSION == "10.10.0.31"
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        env=tensorrt_wheel.environment(tmp_path),
    )
    assert done.returncode == 0, done.stderr
