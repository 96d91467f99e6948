"""Models from ModelScope, with the hub's own library against a server that speaks its protocol."""

from __future__ import annotations

import json

import pytest

from cosyvoice_runtime.fetch.errors import FetchError
from tests.unit.fetch.models import lay, model
from tests.unit.fetch.servers import ModelScope

REPO = "iic/CosyVoice2-0.5B"
SOURCE = {"modelScope": {"repo": REPO, "revision": "v2.0"}}


@pytest.fixture
def hub(start, monkeypatch):
    hub = start(ModelScope(REPO, model("CosyVoice2UNet")))
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", hub.url)
    return hub


@pytest.fixture
def run(fetch):
    def run(source=SOURCE, **options):
        return fetch(source, "CosyVoice2UNet", **options)

    return run


def test_a_revision_is_fetched_and_each_file_is_checked(run, hub, cache):
    result = run()
    assert (cache / result.path / "CosyVoice-BlankEN/vocab.json").read_bytes() == hub.files[
        "CosyVoice-BlankEN/vocab.json"
    ]
    assert result.files == len(hub.files) - 1  # without .gitattributes


def test_a_broken_connection_goes_on_and_loses_next_to_nothing(run, hub):
    hub.cuts["flow.pt"] += [1 << 20]
    run()
    first, second = hub.spans("flow.pt")
    assert first is None
    assert (1 << 20) - (1 << 16) <= int(second.removeprefix("bytes=").rstrip("-")) <= 1 << 20


def test_a_file_whose_bytes_are_not_those_of_the_listing_is_refused(run, hub):
    hub.wrong.add("flow.pt")
    with pytest.raises(FetchError, match=r"flow\.pt: its sha256 is") as caught:
        run()
    assert caught.value.reason == "ChecksumMismatch"


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"MODELSCOPE_API_TOKEN": "ms-expired"}, "new one into the Secret that spec.model.source.modelScope"),
        ({}, "no token was given"),
    ],
)
def test_a_token_that_is_refused_or_missing_names_the_secret_and_the_page(run, hub, environment, words):
    hub.token = "ms-another"
    with pytest.raises(FetchError, match=rf"{words}.*{hub.url}/models/{REPO}") as caught:
        run(environment=environment)
    assert caught.value.reason == "Unauthorized"


@pytest.mark.parametrize("token", ["ms-s3cret-good", "ms-s3cret-expired"])
def test_a_token_is_taken_and_never_shown(program, hub, cache, token):
    hub.token = "ms-s3cret-good"
    environment = {"MODELSCOPE_API_TOKEN": token, "MODELSCOPE_ENDPOINT": hub.url}
    result, printed = program(SOURCE, "CosyVoice2UNet", **environment).end()
    assert (result["outcome"] == "Succeeded") == (token == hub.token)
    assert "s3cret" not in printed
    assert not [path for path in cache.rglob("*") if path.is_file() and b"s3cret" in path.read_bytes()]


@pytest.mark.parametrize("source", [{"repo": "no/such", "revision": "v2.0"}, {"repo": REPO, "revision": "v9"}])
def test_a_repository_or_revision_that_is_not_there_is_told(run, hub, source):
    with pytest.raises(FetchError, match="there is no such repository, revision") as caught:
        run({"modelScope": source})
    assert caught.value.reason == "NotFound"


def test_files_that_a_revision_lacks_are_told_before_any_is_fetched(run, hub):
    del hub.files["flow.decoder.estimator.fp32.onnx"]
    with pytest.raises(FetchError, match=r"lacks 1 file of .*: flow\.decoder\.estimator\.fp32\.onnx \(about 286 MB\)"):
        run()
    assert all(asked.path.endswith("/files") for asked in hub.asked)


def test_a_pod_that_died_just_before_its_model_was_visible_costs_no_second_download(run, hub, cache):
    result = run()
    folder = cache / result.path
    known = json.loads(next(cache.glob("models/.sources/*.json")).read_text())
    key = next(cache.glob("models/.sources/*.json")).stem
    workspace = folder.rename(cache / "models" / f"{key}.tmp-dead")
    lay(workspace / ".fetch", {"fingerprint": known["fingerprint"].encode()})
    hub.asked.clear()

    again = run(pod="pod-b")

    assert (again.digest, again.reused) == (result.digest, False)
    assert all(asked.path.endswith("/files") for asked in hub.asked)
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []
