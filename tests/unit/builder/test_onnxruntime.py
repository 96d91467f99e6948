"""Engines for ONNX Runtime: optimised, converted where asked, and never further from their source than is stated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from cosyvoice_runtime import cpulevels
from cosyvoice_runtime.builder import accuracy, graphs, probes
from cosyvoice_runtime.builder import onnxruntime as part
from cosyvoice_runtime.builder.reasons import BuildError, Reason, from_exception
from cosyvoice_runtime.builder.request import BuildRequest
from cosyvoice_runtime.builder.result import Accuracy
from cosyvoice_runtime.builder.work import Job
from tests.unit.builder.setting import document, graph, of_model

CPU = "CPUExecutionProvider"
OWN = cpulevels.own(cpulevels.features())


def job(tmp_path: Path, request: dict[str, Any], said: list[str] | None = None) -> Job:
    folder = tmp_path / "engine"
    folder.mkdir(exist_ok=True)
    wanted = BuildRequest.model_validate(request)

    def stage(phase: str, done: int | None = None, total: int | None = None) -> None:
        if said is not None:
            said.append(phase if total is None else f"{phase} {done}/{total}")

    return Job(wanted, folder, wanted.model_dir(tmp_path), tmp_path / "timing", stage)


def build(tmp_path: Path, request: dict[str, Any]) -> Any:
    one = job(tmp_path, request)
    part.check(one)
    return part.build(one)


def operators(path: Path) -> set[str]:
    return {node.op_type for node in onnx.load(str(path), load_external_data=False).graph.node}


def test_the_embedded_voice_is_the_same_voice_after_optimising(tmp_path: Path) -> None:
    said: list[str] = []
    one = job(tmp_path, document(), said)

    part.check(one)
    outcome = part.build(one)

    assert sorted(path.name for path in one.folder.iterdir()) == ["hibari.onnx", "oov.onnx"]
    assert outcome.accuracy == tuple(Accuracy(name, 1.0, 0.0) for name in ("hibari.onnx", "oov.onnx", "sound"))
    assert outcome.facts == {"cpuLevel": "baseline", "optimization": "extended"}
    assert "DynamicQuantizeMatMul" in operators(one.folder / "hibari.onnx")
    assert said == ["optimising graphs 0/2", "optimising graphs 1/2", "listening to the engine"]


def test_in_seven_bits_the_reading_of_unknown_words_is_lost_and_that_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        BuildError, match=r"oov\.onnx in INT8 has a cosine similarity of 0\.98\d+ .*0\.99 is wanted"
    ) as caught:
        build(tmp_path, document(profile={"precision": "INT8"}))

    assert caught.value.reason is Reason.ACCURACY_LOST


@pytest.mark.skipif(not OWN.endswith("-vnni"), reason="this CPU saturates sums of 8-bit products")
def test_in_eight_bits_with_vnni_the_voice_still_sounds_the_same(tmp_path: Path) -> None:
    outcome = build(tmp_path, document(profile={"precision": "INT8"}, target={"cpuLevel": OWN}))

    assert outcome.accuracy[-1].graph == "sound"
    assert outcome.accuracy[-1].max_error < accuracy.GREATEST_DISTANCE
    assert outcome.facts["cpuLevel"] == OWN
    assert (tmp_path / "engine/oov.onnx").stat().st_size < 1_100_000


@pytest.mark.parametrize("precision", ["FP32", "INT8"])
def test_every_graph_of_a_model_is_built_with_its_side_files(tmp_path: Path, precision: str) -> None:
    graph(tmp_path / "model/llm.onnx", seed=1, side_file=True)
    graph(tmp_path / "model/flow/flow_estimator.onnx", seed=2)

    before = sorted(path.name for path in (tmp_path / "model").rglob("*"))

    outcome = build(tmp_path, of_model(tmp_path / "model", profile={"precision": precision}))

    # A model is often mounted read-only: nothing is written beside it.
    assert sorted(path.name for path in (tmp_path / "model").rglob("*")) == before
    assert [one.graph for one in outcome.accuracy] == ["flow/flow_estimator.onnx", "llm.onnx"]
    assert all(one.cosine > accuracy.LEAST_COSINE[precision] for one in outcome.accuracy)
    files = sorted(path.relative_to(tmp_path / "engine").as_posix() for path in (tmp_path / "engine").rglob("*.*"))
    assert files == ["flow/flow_estimator.onnx", "llm.onnx", "llm.onnx.data"]
    assert ("MatMulInteger" in operators(tmp_path / "engine/llm.onnx")) is False  # fused further
    assert bool({"DynamicQuantizeMatMul", "MatMulIntegerToFloat"} & operators(tmp_path / "engine/llm.onnx")) is (
        precision == "INT8"
    )


def test_a_named_level_of_this_cpu_is_built_for_this_cpu_alone(tmp_path: Path) -> None:
    graph(tmp_path / "model/a.onnx")
    named = of_model(tmp_path / "model", target={"cpuLevel": OWN})
    foreign = "arm64-i8mm" if cpulevels.architecture() == "amd64" else "x86-64-v4"

    assert build(tmp_path, named).facts == {"cpuLevel": OWN, "optimization": "all" if OWN != "baseline" else "extended"}
    other = of_model(tmp_path / "model", target={"cpuLevel": foreign})
    assert build(tmp_path, other).facts == {"cpuLevel": "baseline", "optimization": "extended"}


def test_half_precision_keeps_the_types_of_inputs_and_is_near_enough(tmp_path: Path) -> None:
    source, target = graph(tmp_path / "a.onnx"), tmp_path / "half.onnx"

    graphs.halve(source, target)

    def feeds(inputs: Any) -> list[probes.Feeds]:
        return probes.feeds("a.onnx", inputs, {})

    compared = accuracy.compare("a.onnx", graphs.run(source, CPU, feeds), graphs.run(target, CPU, feeds))
    assert accuracy.demand(compared, "FP16").cosine > 0.999
    assert target.stat().st_size < source.stat().st_size * 0.6


def test_a_voice_that_is_in_eight_bits_already_is_not_halved(tmp_path: Path) -> None:
    from cosyvoice_runtime import voice

    with pytest.raises(BuildError, match="in 8 bits already"):
        graphs.halve(voice.embedded("heart").voice, tmp_path / "half.onnx")


def test_the_fp16_estimator_of_cosyvoice3_is_refused_with_its_reason(tmp_path: Path) -> None:
    graph(tmp_path / "model/flow_estimator.onnx")
    request = of_model(
        tmp_path / "model", family="CosyVoice3", profile={"precision": "FP16"}, target={"provider": "CUDA"}
    )

    with pytest.raises(BuildError, match=r"flow_estimator\.onnx of CosyVoice3 gives NaN in FP16 .*1930") as caught:
        part.check(job(tmp_path, request))

    assert caught.value.reason is Reason.ACCURACY_LOST


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        ({"profile": {"precision": "FP16"}}, Reason.INTERNAL, "ONNX Runtime on CPU is built in FP32 or INT8, not FP16"),
        ({"profile": {"precision": "BF16"}}, Reason.INTERNAL, "not BF16"),
        ({"target": {"cpuLevel": "pentium"}}, Reason.VERSION_MISMATCH, "cpuLevel pentium is not known"),
        ({"model": {"voice": "emma"}}, Reason.MISSING_FILE, "it holds heart"),
    ],
)
def test_what_cannot_be_built_is_refused_before_anything_is_begun(
    tmp_path: Path, change: dict[str, Any], reason: Reason, words: str
) -> None:
    with pytest.raises(BuildError, match=words) as caught:
        part.check(job(tmp_path, document(**change)))

    assert caught.value.reason is reason


def test_an_engine_for_another_architecture_is_refused(tmp_path: Path) -> None:
    other = "arm64" if cpulevels.architecture() == "amd64" else "amd64"

    with pytest.raises(BuildError, match=f"the engine is for {other}"):
        part.check(job(tmp_path, document(target={"arch": other})))


def test_a_provider_that_the_image_lacks_is_told_and_not_replaced_in_silence(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="has no CUDAExecutionProvider") as caught:
        build(tmp_path, document(target={"provider": "CUDA"}))

    assert caught.value.reason is Reason.VERSION_MISMATCH


def test_missing_and_empty_files_are_named(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    request = of_model(model)
    with pytest.raises(BuildError, match=r"holds no \.onnx file"):
        part.check(job(tmp_path, request))

    graph(model / "llm.onnx", side_file=True)
    (model / "llm.onnx.data").unlink()
    with pytest.raises(BuildError, match=r"llm\.onnx\.data is not there"):
        part.check(job(tmp_path, request))

    (model / "llm.onnx.data").touch()
    with pytest.raises(BuildError, match=r"llm\.onnx\.data is empty, as after a failed download") as caught:
        part.check(job(tmp_path, request))
    assert caught.value.reason is Reason.MISSING_FILE


@pytest.mark.parametrize("content", [b"\0" * 100, b"<html>404 Not Found</html>"], ids=["zeros", "an error page"])
def test_a_file_that_is_no_graph_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/llm.onnx").write_bytes(content)

    with pytest.raises(Exception) as caught:  # noqa: PT011 - the library's own
        build(tmp_path, of_model(tmp_path / "model"))

    assert from_exception(caught.value, "optimising").reason is Reason.MISSING_FILE


def test_a_graph_that_does_not_run_on_shapes_of_its_own_is_a_mismatch_until_it_says_which(tmp_path: Path) -> None:
    path = graph(tmp_path / "model/a.onnx")
    model = onnx.load(str(path))
    # What it says of itself is wrong: it adds two inputs, one of which must be as long as it likes.
    model.graph.input.append(onnx.helper.make_tensor_value_info("other", onnx.TensorProto.FLOAT, [1, "U", 64]))
    model.graph.node.append(onnx.helper.make_node("Add", ["y", "other"], ["z"]))
    model.graph.output[0].name = "z"
    onnx.save(model, str(path))
    (tmp_path / "model/probes.json").write_text('{"a.onnx": {"T": 4, "U": 5}}')

    with pytest.raises(Exception) as caught:  # noqa: PT011 - the library's own
        build(tmp_path, of_model(tmp_path / "model"))
    assert from_exception(caught.value, "comparing").reason is Reason.SHAPE_MISMATCH

    (tmp_path / "model/probes.json").write_text('{"a.onnx": {"T": 5, "U": 5}}')
    assert build(tmp_path, of_model(tmp_path / "model")).accuracy[0].cosine > 0.9999


@pytest.mark.parametrize(
    ("feed", "words"),
    [
        ({}, "wants the inputs 'x'"),
        ({"x": np.zeros((1, 4, 65), np.float32)}, "input x of the graph wants 64 at index 2"),
        ({"x": np.zeros((4, 64), np.float32)}, "input x of the graph has 3 dimensions, not 2"),
        ({"x": np.zeros((1, 4, 64), np.float32), "speeds": np.zeros(1, np.float32)}, "no input of the name"),
    ],
    ids=["missing input", "wrong size", "wrong rank", "unknown input"],
)
def test_what_onnxruntime_itself_says_of_wrong_inputs_is_recognised(
    tmp_path: Path, feed: dict[str, Any], words: str
) -> None:
    path = graph(tmp_path / "a.onnx")

    with pytest.raises(Exception) as caught:  # noqa: PT011 - the library's own
        graphs.run(path, CPU, lambda _: [feed])

    found = from_exception(caught.value, "comparing a.onnx")
    assert found.reason is Reason.SHAPE_MISMATCH
    assert words in found.message


def test_a_graph_of_a_later_opset_is_a_version_mismatch(tmp_path: Path) -> None:
    path = graph(tmp_path / "a.onnx")
    model = onnx.load(str(path))
    model.ir_version = 99
    onnx.save(model, str(path))

    with pytest.raises(Exception) as caught:  # noqa: PT011 - the library's own
        graphs.run(path, CPU, lambda _: [])

    assert from_exception(caught.value, "loading").reason is Reason.VERSION_MISMATCH


def test_side_files_are_found_without_reading_the_graph(tmp_path: Path) -> None:
    assert graphs.side_files(graph(tmp_path / "a.onnx")) == []
    assert graphs.side_files(graph(tmp_path / "b.onnx", side_file=True)) == [tmp_path / "b.onnx.data"]
