"""Pools on GPU types that can't serve: left out where the user names none, and told where they name one."""

from __future__ import annotations

from cosyvoice_operator.api.defaults import effective
from cosyvoice_operator.api.deployment import CosyVoiceDeployment
from cosyvoice_operator.core.gpu import parse_node
from cosyvoice_operator.core.model import Json
from cosyvoice_operator.core.pools import Pool, expand, left_out
from tests.unit.operator.builders import CONFIG, World, node, resource, running

L4, T4, SLICE = node("a", "NVIDIA-L4", 1), node("b", "Tesla-T4", 1), node("c", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", 7)


def unlabelled(name: str = "u") -> Json:
    raw = node(name)
    raw["status"]["allocatable"]["nvidia.com/gpu"] = "1"
    return raw


def spec(*products: str, family: str = "CosyVoice3", backend: str = "Triton") -> Json:
    gpu = {"products": list(products)} if products else {}
    source = {"persistentVolumeClaim": {"claimName": "models"}}
    tiers = [{"name": "gpu", "backend": backend, "gpu": gpu}, {"name": "cpu", "backend": "ONNXRuntime"}]
    return resource(model={"family": family, "source": source}, tiers=tiers)


def pools(owner: Json, *nodes: Json, in_use: tuple[tuple[str, str], ...] = ()) -> dict[str, Pool]:
    wanted = effective(CosyVoiceDeployment.parse(owner).spec, CONFIG.images)
    return {pool.name: pool for pool in expand("x", wanted, [parse_node(raw) for raw in nodes], in_use)}


def told(owner: Json, *nodes: Json) -> tuple[str, ...]:
    return left_out(effective(CosyVoiceDeployment.parse(owner).spec, CONFIG.images), [parse_node(raw) for raw in nodes])


def test_a_tier_over_every_type_leaves_out_those_that_can_not_serve_it_and_says_so() -> None:
    assert list(pools(spec(), L4, T4, SLICE, unlabelled())) == ["x-gpu-l4", "x-cpu"]
    slices, turing, unknown = told(spec(), L4, T4, SLICE, unlabelled())
    assert "4864 MiB" in slices
    assert "T4 has 7.5" in turing
    assert unknown.startswith("Nothing tells the GPU type of node(s) u: run GPU Feature Discovery")


def test_a_lesser_backend_takes_more_types() -> None:
    assert list(pools(spec(backend="ONNXRuntime"), L4, T4, SLICE)) == ["x-gpu-l4", "x-gpu-t4", "x-cpu"]


def test_a_tier_without_any_type_that_serves_has_no_place_and_says_why() -> None:
    pool = pools(spec(), T4)["x-gpu"]
    assert pool.placeless
    assert "T4 has 7.5" in pool.unsupported


def test_a_listed_type_that_can_not_serve_has_a_pool_that_says_why() -> None:
    found = pools(spec("Tesla-T4", "NVIDIA-L4"), T4, L4)
    assert list(found) == ["x-gpu-t4", "x-gpu-l4", "x-cpu"]
    assert (found["x-gpu-t4"].placeless, found["x-gpu-l4"].placeless) == (True, False)
    assert "T4 has 7.5" in found["x-gpu-t4"].unsupported


def test_a_type_that_no_table_and_no_node_tells_anything_of_is_waited_for() -> None:
    assert not pools(spec("NVIDIA-X1"))["x-gpu-x1"].placeless
    assert not pools(spec(), in_use=(("gpu", "X1"),))["x-gpu-x1"].placeless


def test_several_nodes_without_a_label_are_told_in_one_sentence() -> None:
    [sentence] = told(spec(), *(unlabelled(f"u{number}") for number in range(5)))
    assert "u0, u1, u2 and 2 more" in sentence


def test_a_resource_whose_only_gpus_are_unknown_serves_on_cpu_and_its_status_says_what_to_do() -> None:
    tiers = [
        {"name": "gpu", "backend": "Triton", "gpu": {}, "executionProvider": "CPU"},
        {"name": "cpu", "backend": "ONNXRuntime"},
    ]
    world = World(resource(tiers=tiers), nodes=[unlabelled()])
    world.plan()
    world.pods = [running("hello-cpu", "c0", ready=world.now)]
    world.plan()
    pool = world.pool("hello-gpu")
    assert (pool["state"], pool["reason"], pool["desired"]) == ("UnsupportedGPU", "UnsupportedGPU", 0)
    assert "Nothing tells the GPU type of node(s) u" in pool["message"]
    assert "cosyvoice-operator gpus" in pool["message"]
    assert world.replicas() == {"hello-cpu": 1}
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("GPUTypesLeftOut")["message"].startswith("Nothing tells the GPU type of node(s) u: ")


def test_a_condition_tells_what_is_left_out_and_goes_with_it() -> None:
    world = World(spec("Tesla-T4"), nodes=[T4])
    world.plan()
    assert "T4 has 7.5" in world.condition("GPUTypesLeftOut")["message"]
    world.owner["spec"]["tiers"][0]["gpu"]["products"] = ["NVIDIA-L4"]
    world.plan()
    assert "GPUTypesLeftOut" not in [condition["type"] for condition in world.owner["status"]["conditions"]]
