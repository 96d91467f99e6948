"""Engine keys: what matters changes them, and nothing else does."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_operator.core.engine_key import EngineFields, Target, digest
from cosyvoice_operator.core.gpu import parse_node, type_facts
from tests.unit.operator.builders import node

BASE = EngineFields(
    model="sha256:00",
    family="CosyVoice3",
    backend="Triton",
    builder="registry.example/builder:1",
    precision="BF16",
    target=Target("amd64", "CUDA", "L4", "8.9", 23034),
)
NOT_IN_THE_KEY = {"memory_mib"}

text = st.text(min_size=1, max_size=20)


def test_every_field_that_matters_changes_the_key() -> None:
    changed = [replace(BASE, **{f.name: "another"}) for f in fields(EngineFields) if f.name != "target"]
    changed += [
        replace(BASE, target=replace(BASE.target, **{f.name: "another"}))
        for f in fields(Target)
        if f.name not in NOT_IN_THE_KEY
    ]
    keys = {BASE.key, *(each.key for each in changed)}
    assert len(keys) == 1 + len(changed)


def test_what_the_gpu_type_says_already_is_not_in_the_key() -> None:
    assert replace(BASE, target=replace(BASE.target, memory_mib=1)).key == BASE.key


def test_a_builder_with_a_digest_has_many_names_and_one_key() -> None:
    one = replace(BASE, builder="a.example/builder:1@sha256:11")
    assert one.key == replace(BASE, builder="mirror.example/other:2@sha256:11").key
    assert one.key != replace(BASE, builder="a.example/builder:1@sha256:22").key


def test_a_key_is_sixteen_hexadecimal_digits_and_stays_what_it_is_between_releases() -> None:
    assert BASE.key == "74044546ea2c543f"


@given(st.dictionaries(text, st.one_of(text, st.integers(), st.none()), min_size=1), st.randoms())
def test_the_order_of_fields_changes_nothing(made: dict[str, Any], random: Any) -> None:
    items = list(made.items())
    random.shuffle(items)
    assert digest(dict(items)) == digest(made) == digest(json.loads(json.dumps(made)))


@given(
    st.lists(st.sampled_from(["NVIDIA-L4", "L4", "NVIDIA-L4-SHARED"]), min_size=1, max_size=4),
    st.dictionaries(st.sampled_from(["a", "nvidia.com/cuda.driver-version.full", "nvidia.com/gpu.family"]), text),
)
def test_node_names_drivers_and_spellings_change_nothing(products: list[str], labels: dict[str, str]) -> None:
    nodes = [node(f"node-{number}-{len(labels)}", product, 1) for number, product in enumerate(products)]
    for made in nodes:
        made["metadata"]["labels"] |= labels
    facts = type_facts([parse_node(made) for made in nodes], "L4", "nvidia.com/gpu")
    target = Target("amd64", "CUDA", facts.gpu_type, facts.compute_capability, facts.memory_mib)
    assert replace(BASE, target=target).key == BASE.key
