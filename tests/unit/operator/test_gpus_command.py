"""``cosyvoice-operator gpus`` on files: what an administrator reads is what the operator sees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from cosyvoice_operator.__main__ import main

FIXTURES = Path(__file__).parents[2] / "fixtures" / "gpu-nodes.yaml"

Output = pytest.CaptureFixture[str]


def table(output: Output, *arguments: str) -> dict[tuple[str, str], list[str]]:
    """The cells of each line, by node and resource."""
    assert main(["gpus", "-f", str(FIXTURES), *arguments]) == 0
    rows = output.readouterr().out.partition("\n\n")[0].splitlines()
    cells = [[row[at:].split("   ")[0].strip() for at in _columns(rows[0])] for row in rows[1:]]
    return {(row[0], row[3]): row for row in cells}


def _columns(header: str) -> list[int]:
    return [header.index(name) for name in header.replace("WHY NOT", "WHY").split()]


def test_the_table_tells_type_figures_and_backends(capsys: Output) -> None:
    found = table(capsys)
    gpu = "nvidia.com/gpu"
    assert found["catalyst-l40s", gpu][1:11] == [
        *("L40S", "l40s", gpu, "1", "45776Mi", "8.9", "none", "amd64", "yes", "Triton,ONNXRuntime"),
    ]
    assert found["gce-t4x2", gpu][10:] == ["ONNXRuntime", "[1]"]
    assert found["gce-a100-mig-mixed", "nvidia.com/mig-1g.5gb"][1:6] == [
        *("A100-SXM4-40GB-MIG-1g.5gb", "a100-sxm4-40-1g-5gb-0dd2", "nvidia.com/mig-1g.5gb", "2", "4864Mi"),
    ]
    assert found["onprem-4090x8-mps", gpu][4:8] == ["16", "12282Mi", "8.9", "mps/2"]
    assert [found[name, gpu][9] for name in ("x-l4-notready", "x-l4-cordoned")] == ["no", "cordoned"]
    assert [found[name, "-"][4] for name in ("x-mig-invalid", "x-aks-a10-noplugin")] == ["0", "0"]
    assert len(found) == 24


def test_reasons_stand_below_the_table_each_once(capsys: Output) -> None:
    assert main(["gpus", "-f", str(FIXTURES)]) == 0
    legend = capsys.readouterr().out.partition("\n\n")[2].splitlines()
    assert legend[0] == "Backends are those that can serve family CosyVoice3."
    assert legend[1] == "[1] CosyVoice3 on Triton needs compute capability 8.0 in BF16, and T4 has 7.5."
    assert len(set(legend)) == len(legend)


def test_another_family_needs_something_else(capsys: Output) -> None:
    assert table(capsys, "--family", "Demo")["gce-t4x2", "nvidia.com/gpu"][10] == "Triton,ONNXRuntime"


def test_json_has_everything_for_programs(capsys: Output) -> None:
    assert main(["gpus", "-f", str(FIXTURES), "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["family"] == "CosyVoice3"
    [shared] = [gpu for gpu in told["gpus"] if gpu["node"] == "onprem-4090x8-mps"]
    assert shared == {
        "node": "onprem-4090x8-mps",
        "gpuType": "GeForce-RTX-4090",
        "slug": "geforce-rtx-4090",
        "resource": "nvidia.com/gpu",
        "count": 16,
        "memoryMiB": 24564,
        "podMiB": 12282,
        "computeCapability": "8.9",
        "migProfile": None,
        "sharing": "mps",
        "clients": 2,
        "arch": "amd64",
        "ready": True,
        "schedulable": True,
        "source": "nvidia.com/gpu.product",
        "backends": ["Triton", "ONNXRuntime"],
        "refusals": [],
    }


def test_slices_in_the_file_are_laid_over_its_nodes(tmp_path: Path, capsys: Output) -> None:
    device = {
        "name": "gpu-0",
        "attributes": {
            "type": {"string": "gpu"},
            "productName": {"string": "NVIDIA L40S"},
            "cudaComputeCapability": {"version": "8.9.0"},
        },
        "capacity": {"memory": {"value": "46068Mi"}},
    }
    spec = {"driver": "gpu.nvidia.com", "nodeName": "n1", "pool": {"name": "n1", "generation": 1}, "devices": [device]}
    node = {"kind": "Node", "metadata": {"name": "n1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    items = [
        node,
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec},
    ]
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump({"kind": "List", "items": items}))
    assert main(["gpus", "-f", str(path), "-o", "json"]) == 0
    [gpu] = json.loads(capsys.readouterr().out)["gpus"]
    assert (gpu["gpuType"], gpu["source"], gpu["backends"]) == ("L40S", "ResourceSlice", [])
    assert "pods are placed by labels" in gpu["refusals"][0]


def test_settings_name_what_the_file_does_not(tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text(
        "kind: Node\nmetadata: {name: n1, labels: {rack: r7}}\nstatus: {allocatable: {nvidia.com/gpu: 1}}\n"
    )
    assert main(["gpus", "-f", str(path)]) == 0
    assert "Nothing tells the GPU type of node(s) n1" in capsys.readouterr().out
    setting = [
        {"label": "rack", "values": ["r7"], "product": "NVIDIA-X1", "memoryMiB": 49152, "computeCapability": "9.0"}
    ]
    monkeypatch.setenv("COSYVOICE_OPERATOR_GPU_NODES", json.dumps(setting))
    assert main(["gpus", "-f", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["n1", "X1"]


def test_a_cluster_without_gpus_is_said_to_have_none(tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text("kind: Node\nmetadata: {name: n1}\n")
    assert main(["gpus", "-f", str(path)]) == 0
    assert capsys.readouterr().out == "No node has a GPU.\n"


def test_a_node_that_no_api_server_would_take_is_named(tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text("kind: Node\nmetadata: {name: n1}\nstatus: {allocatable: {nvidia.com/gpu: many}}\n")
    assert main(["gpus", "-f", str(path)]) == 1
    assert "Node n1 can't be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Pod\nmetadata: {name: p}\n", "there is no Node in it"),
        ("kind: Node\n", "document 1: a Node without metadata.name"),
        ("a: [\n", "not YAML"),
    ],
)
def test_a_file_that_is_no_use_is_named_with_what_is_wrong(
    text: str, message: str, tmp_path: Path, capsys: Output
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    assert main(["gpus", "-f", str(path)]) == 1
    told = capsys.readouterr().err
    assert str(path) in told
    assert message in told


def test_without_a_cluster_it_says_where_it_looked(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSYVOICE_OPERATOR_KUBECONFIG", str(tmp_path / "none"))
    assert main(["gpus"]) == 1
    assert f"no access to a cluster through {tmp_path / 'none'}" in capsys.readouterr().err


def test_a_setting_that_can_not_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSYVOICE_OPERATOR_GPU_NODES", '[{"label": "rack", "product": "NVIDIA-X1"}]')
    with pytest.raises(SystemExit, match=r"gpu_nodes\.0\.values"):
        main(["gpus"])


def test_a_family_that_does_not_exist_is_named(capsys: Output) -> None:
    with pytest.raises(SystemExit):
        main(["gpus", "--family", "CosyVoice9"])
    assert "CosyVoice9 is none of CosyVoice3, CosyVoice2DiT" in capsys.readouterr().err
