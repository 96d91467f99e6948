"""A result always fits into the termination message, and always says the outcome."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.builder.reasons import BuildError, Reason
from cosyvoice_runtime.builder.result import LIMIT, Accuracy, Result, encode, report

ACCURACIES = st.lists(
    st.builds(
        Accuracy,
        st.text(max_size=80),
        st.floats(-1, 1, allow_nan=False),
        st.floats(0, 1e6, allow_nan=False, allow_infinity=False),
    ),
    max_size=120,
)


@given(st.text(max_size=6000), ACCURACIES, st.dictionaries(st.text(max_size=40), st.text(max_size=60), max_size=60))
def test_any_result_fits_and_is_json(message: str, accuracy: list[Accuracy], versions: dict[str, str]) -> None:
    text = encode(Result("0123456789abcdef", Reason.INTERNAL, message, 1.0, 5, versions=versions, accuracy=accuracy))

    assert len(text.encode("utf-8", "replace")) <= LIMIT
    document = json.loads(text)
    assert (document["version"], document["outcome"], document["reason"]) == (1, "Failed", "Internal")


def test_a_short_result_is_whole() -> None:
    one = Accuracy("flow_estimator.onnx", 0.99987654321, 0.0123456)
    document = json.loads(
        encode(Result("0123456789abcdef", None, "built", 12.3456, 99, False, {"onnxruntime": "1.32.0"}, [one]))
    )

    assert document == {
        "version": 1,
        "outcome": "Succeeded",
        "reason": None,
        "message": "built",
        "key": "0123456789abcdef",
        "seconds": 12.346,
        "bytes": 99,
        "reused": False,
        "versions": {"onnxruntime": "1.32.0"},
        "accuracy": [{"graph": "flow_estimator.onnx", "cosine": 0.999877, "maxError": 0.0123}],
    }


def test_a_long_message_loses_its_middle() -> None:
    text = encode(
        Result.failed(
            "k", BuildError(Reason.MISSING_FILE, "flow.pt " + "\x1b[0m" + "é" * 9000 + " fetch it again"), 1.0
        )
    )

    message = json.loads(text)["message"]
    assert message.startswith("flow.pt ")
    assert message.endswith("fetch it again")
    assert len(text.encode()) > LIMIT * 0.8


def test_the_worst_graphs_are_told_when_not_all_can_be() -> None:
    many = [Accuracy(f"graph-{number:03d}.onnx", 1 - number / 1000, 0.0) for number in range(200)]

    told = json.loads(encode(Result("k", accuracy=many)))["accuracy"]

    assert 10 < len(told) < 200
    assert told[0]["graph"] == "graph-199.onnx"


@pytest.mark.parametrize("there", [True, False], ids=["in a pod", "outside of one"])
def test_the_result_is_left_where_the_kubelet_looks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, there: bool
) -> None:
    path = tmp_path / "termination-log"
    if there:
        path.touch()

    report(Result("k"), path)

    assert path.exists() is there
    assert json.loads(capsys.readouterr().out)["outcome"] == "Succeeded"
    if there:
        assert json.loads(path.read_text())["key"] == "k"
