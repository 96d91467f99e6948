"""What people read: results, figures, progress, and no secrets."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.fetch import families, figures, result
from cosyvoice_runtime.fetch.errors import FetchError, Reason, without_secrets
from cosyvoice_runtime.fetch.manifest import ModelFile, content_digest
from cosyvoice_runtime.fetch.progress import Progress
from cosyvoice_runtime.fetch.request import FetchRequest
from cosyvoice_runtime.fetch.result import Result
from tests.unit.fetch.models import model


@given(st.text(max_size=9000), st.sampled_from(list(Reason)))
def test_a_result_fits_into_a_termination_message_whatever_it_says(message, reason):
    text = result.encode(Result.failed(FetchError(reason, message)))
    assert len(text.encode("utf-8", "replace")) <= 4096
    assert json.loads(text)["reason"] == reason


def test_a_message_that_is_too_long_keeps_its_beginning_and_its_end():
    message = json.loads(
        result.encode(Result.failed(FetchError(Reason.INTERNAL, "the object " + "x" * 9000 + " the next step")))
    )
    assert message["message"].startswith("the object")
    assert message["message"].endswith("the next step")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (28_303_423, "28.3 MB"),
        (999_600, "1 MB"),
        (5.3e9, "5.3 GB"),
        (3e15, "3e+03 TB"),
    ],
)
def test_sizes_read_like_those_of_the_hubs(count, text):
    assert figures.size(count) == text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("token hf_verysecret is refused", "token *** is refused"),
        ("GET https://me:pw@host/a/b?X-Amz-Signature=1#x failed", "GET https://host/a/b failed"),
        ("proxy http://user:password@proxy:3128/", "proxy http://proxy:3128/"),
        ("https://host:8443/path stays", "https://host:8443/path stays"),
    ],
)
def test_secrets_and_signatures_are_taken_out_of_texts(text, clean):
    assert without_secrets(text, {"HF_TOKEN": "hf_verysecret", "AWS_SECRET_ACCESS_KEY": ""}) == clean


FILES = st.lists(
    st.builds(ModelFile, st.text(min_size=1, max_size=9), st.integers(0, 9), st.text("0f", min_size=4, max_size=4)),
    unique_by=lambda file: file.path,
    max_size=5,
)


@given(FILES, st.randoms())
def test_the_digest_does_not_depend_on_the_order_of_the_files(files, chance):
    mixed = list(files)
    chance.shuffle(mixed)
    assert content_digest(mixed) == content_digest(files)


@given(FILES, FILES)
def test_other_files_have_another_digest(one, other):
    assert (content_digest(one) == content_digest(other)) == (set(one) == set(other))


@pytest.mark.parametrize("family", families.FAMILIES)
def test_a_family_accepts_its_files_and_misses_each_that_is_taken_away(family):
    sizes = {name: len(data) for name, data in model(family).items()}
    families.check(family, sizes, "source")
    for name in (name for need in families.FAMILIES[family] for name in need.options[0]):
        with pytest.raises(FetchError) as caught:
            families.check(family, {other: size for other, size in sizes.items() if other != name}, "source")
        assert name in caught.value.message
        assert caught.value.reason == "MissingFile"


def test_another_option_will_do():
    sizes = {name: len(data) for name, data in model("CosyVoice3").items()}
    del sizes["flow.decoder.estimator.fp32.onnx"]
    sizes["flow.decoder.estimator.autocast_fp16.onnx"] = 1
    families.check("CosyVoice3", sizes, "source")


@pytest.mark.parametrize("family", families.EXPORTS)
def test_a_model_of_graphs_needs_its_graphs_and_no_checkpoints(family):
    sizes = {path: 1 for need in families.EXPORTS[family] for path in need.options[0]}
    families.check(family, sizes, "source")
    del sizes["flow_estimator.onnx"]
    with pytest.raises(FetchError, match=rf"lacks 1 file of {family}: flow_estimator\.onnx \(about"):
        families.check(family, sizes, "source")


def test_of_two_options_the_one_that_is_nearer_is_told():
    sizes = {name: len(data) for name, data in model("CosyVoice3").items() if name != "llm.pt"}
    with pytest.raises(FetchError, match=r"lacks 1 file of CosyVoice3: llm\.pt \(about 2\.02 GB\)"):
        families.check("CosyVoice3", sizes, "source")


def test_a_rate_is_of_bytes_that_moved_lately():
    clock = [100.0]
    progress = Progress(lambda: clock[0])
    progress.enter("fetching", 1000, done=0)
    progress.correct(400)  # there from an earlier try
    for _ in range(4):
        clock[0] += 1
        progress.advance(50)
    assert progress.document() == {
        "phase": "fetching", "done": 600, "total": 1000, "unit": "bytes", "perSecond": 50.0, "secondsLeft": 8.0,
    }  # fmt: skip
    clock[0] += 30
    assert progress.document()["perSecond"] == 0.0


@pytest.mark.parametrize("field", ["url", "endpoint"])
def test_the_key_of_a_source_does_not_change_with_the_secrets_in_its_address(field):
    def key(secret):
        sources = {
            "url": {"http": {"url": f"https://{secret}@host/m.tar?signature={secret}", "sha256": "0" * 64}},
            "endpoint": {"s3": {"bucket": "b", "endpoint": f"https://{secret}@host"}},
        }
        request = FetchRequest.model_validate({"version": 1, "family": "CosyVoice3", "source": sources[field]})
        assert secret not in json.dumps(request.source.record)
        return request.source.key

    assert key("one-secret") == key("another-secret")


def test_references_to_secrets_do_not_matter():
    source = {"huggingFace": {"repo": "a/b", "revision": "v1", "tokenSecretRef": {"name": "s", "key": "k"}}}
    request = FetchRequest.model_validate({"version": 1, "family": "CosyVoice3", "source": source})
    assert request.source.record == {"huggingFace": {"repo": "a/b", "revision": "v1"}}
