"""Builders for what a build needs: requests, tiny models, and builder processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
from onnx import TensorProto, helper, numpy_helper

from cosyvoice_runtime import cpulevels

KEY = "0123456789abcdef"


def document(**changes: Any) -> dict[str, Any]:
    """A request for the embedded voice; nested parts are merged."""
    whole: dict[str, Any] = {
        "version": 1,
        "key": KEY,
        "backend": "ONNXRuntime",
        "family": "Demo",
        "model": {"digest": "embedded:heart", "path": None, "voice": "heart"},
        "target": {
            "arch": cpulevels.architecture(),
            "provider": "CPU",
            "gpuType": None,
            "computeCapability": None,
            "memoryMiB": None,
            "cpuLevel": "baseline",
        },
        "profile": {"precision": "FP32"},
        "keyFields": {"component": "test"},
    }
    for name, value in changes.items():
        whole[name] = whole[name] | value if isinstance(value, dict) and name in whole else value
    return whole


def of_model(path: Path | str, **changes: Any) -> dict[str, Any]:
    """A request for a model of files, of a family with graphs of its own."""
    changes = {"family": "CosyVoice2UNet", **changes}
    return document(model={"digest": "sha256:" + "0" * 64, "path": str(path), "voice": None}, **changes)


def graph(path: Path, *, rows: int = 64, side_file: bool = False, seed: int = 0, opset: int = 17) -> Path:
    """A graph with two matrix products and a convolution: x [1, T, rows] -> y [1, T, rows]."""
    rng = np.random.default_rng(seed)
    weights = {
        "w1": rng.standard_normal((rows, rows)).astype(np.float32) / rows**0.5,
        "w2": rng.standard_normal((rows, rows)).astype(np.float32) / rows**0.5,
        "k": rng.standard_normal((rows, rows, 3)).astype(np.float32) / (3 * rows) ** 0.5,
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Transpose", ["b"], ["c"], perm=[0, 2, 1]),
        helper.make_node("Conv", ["c", "k"], ["d"], pads=[1, 1]),
        helper.make_node("Transpose", ["d"], ["e"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["e", "w2"], ["y"]),
    ]
    made = helper.make_graph(
        nodes,
        path.stem,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, "T", rows])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, "T", rows])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(
        model,
        str(path),
        save_as_external_data=side_file,
        all_tensors_to_one_file=True,
        location=f"{path.name}.data",
        size_threshold=0,
    )
    return path


class Builder:
    """A builder as a pod runs it: a real process with its own environment."""

    def __init__(self, tmp_path: Path, pod: str = "pod-a") -> None:
        self.cache = tmp_path / "cache"
        self.cache.mkdir(exist_ok=True)
        self.message = tmp_path / f"termination-{pod}"
        self._pod = pod

    @property
    def engines(self) -> Path:
        """Where engines are."""
        return self.cache / "engines"

    def names(self) -> list[str]:
        """All that lies there."""
        return sorted(path.name for path in self.engines.iterdir()) if self.engines.exists() else []

    @contextmanager
    def started(
        self, request: dict[str, Any] | None, *command: str, **settings: object
    ) -> Iterator[subprocess.Popen[str]]:
        """A process that runs; killed at the end if it still does."""
        self.message.write_text("")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("COSYVOICE_")}
        values: dict[str, object] = {
            "cache": self.cache,
            "pod_uid": self._pod,
            "port": 0,
            "host": "127.0.0.1",
            "termination_message": self.message,
            **settings,
        }
        environment |= {f"COSYVOICE_{name.upper()}": str(value) for name, value in values.items()}
        if request is not None:
            environment["COSYVOICE_BUILD_REQUEST"] = json.dumps(request)
        process = subprocess.Popen(
            [sys.executable, "-m", "cosyvoice_runtime.builder", *(command or ("build",))],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            for child in children(process.pid):
                child.resume()
            if process.poll() is None:
                process.kill()
            process.communicate()

    def run(self, request: dict[str, Any] | None, *command: str, **settings: object) -> tuple[int, dict[str, Any]]:
        """Run it to its end; gives the exit status and the result."""
        with self.started(request, *command, **settings) as process:
            process.communicate(timeout=120)
        return process.returncode, self.result()

    def result(self) -> dict[str, Any]:
        """What the kubelet would read."""
        found: dict[str, Any] = json.loads(self.message.read_bytes())
        return found


def children(pid: int) -> list[psutil.Process]:
    """The processes that a process has started."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait for something that nothing tells of."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.002)
    return found


def frozen_worker(builder: Builder, process: subprocess.Popen[str]) -> psutil.Process:
    """The process that builds, stopped while its directory exists and nothing is complete."""
    until(lambda: any(".tmp-" in name for name in builder.names()))
    # Between fork and exec a child is a copy of its parent, which waits for it: stopped there, neither would go on.
    ours = psutil.Process(process.pid).cmdline()
    [worker] = until(lambda: [child for child in children(process.pid) if child.cmdline() not in ([], ours)])
    worker.suspend()
    return worker
