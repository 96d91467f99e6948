"""Models from Hugging Face, with the hub's own library against a server that speaks its protocol."""

from __future__ import annotations

import pytest

from tests.unit.fetch.servers import COMMIT, HuggingFace

REPO = "FunAudioLLM/Fun-CosyVoice3-0.5B-2512"


@pytest.fixture
def hub(start, files):
    return start(HuggingFace(REPO, files))


@pytest.fixture
def run(program, hub):
    def run(revision=COMMIT, repo=REPO, **environment):
        source = {"huggingFace": {"repo": repo, "revision": revision}}
        return program(source, HF_ENDPOINT=hub.url, **environment).end()

    return run


def test_a_commit_is_fetched_whole_and_the_hub_is_asked_for_nothing_the_next_time(run, hub, cache, files):
    result, _ = run()
    assert result["outcome"] == "Succeeded"
    assert (cache / result["path"] / "flow.pt").read_bytes() == files["flow.pt"]
    assert not (cache / result["path"] / ".gitattributes").exists()
    hub.asked.clear()

    again, _ = run()

    assert (again["reused"], again["digest"], hub.asked) == (True, result["digest"], [])


def test_a_tag_is_resolved_each_time_and_its_files_come_from_the_commit_that_it_names(run, hub):
    result, _ = run("v1.0")
    assert {asked.path.split("/")[4] for asked in hub.asked if "/resolve/" in asked.path} == {COMMIT}
    hub.asked.clear()

    again, _ = run("v1.0")

    assert again["reused"]
    assert [asked.path for asked in hub.asked] == [f"/api/models/{REPO}/revision/v1.0"]
    assert again["digest"] == result["digest"]


def test_a_large_file_goes_on_where_the_connection_broke(run, hub, files):
    hub.cut("flow.pt", 1 << 20)
    result, _ = run()
    assert result["outcome"] == "Succeeded"
    assert hub.spans("/flow.pt") == [None, f"bytes={1 << 20}-"]


def test_the_token_goes_to_the_hub_and_never_to_the_storage_nor_into_anything_written(run, hub, cache):
    hub.token = "hf_s3cret-token"
    result, printed = run(HF_TOKEN=hub.token)
    assert result["outcome"] == "Succeeded"
    assert {asked.authorization for asked in hub.asked} == {"Bearer hf_s3cret-token"}
    assert {asked.authorization for asked in hub.storage.asked} == {None}
    assert "s3cret" not in printed
    assert "signature-of-storage" not in printed
    assert not [path for path in cache.rglob("*") if path.is_file() and b"s3cret" in path.read_bytes()]


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("hf_expired-token", "new one into the Secret that spec.model.source.huggingFace.tokenSecretRef"),
        ("", "no token was given"),
    ],
)
def test_a_token_that_is_refused_or_missing_names_the_secret(run, hub, token, words):
    hub.token = "hf_another-token"
    result, printed = run(HF_TOKEN=token)
    assert (result["outcome"], result["reason"]) == ("Failed", "Unauthorized")
    assert words in result["message"]
    assert "hf_expired-token" not in printed


def test_a_gated_repository_names_the_page_with_its_licence(run, hub):
    hub.gated = True
    result, _ = run(HF_TOKEN="hf_some-token")
    assert result["reason"] == "Unauthorized"
    assert f"accept its licence on {hub.url}/{REPO}" in result["message"]


def test_a_token_that_expires_while_files_are_fetched_ends_the_fetch_and_keeps_what_came(run, hub):
    hub.token, hub.expires = "hf_some-token", "/resolve/"
    hub.expires_after = 6
    result, _ = run(HF_TOKEN=hub.token)
    assert result["reason"] == "Unauthorized"
    hub.expires = None
    hub.storage.asked.clear()
    assert run(HF_TOKEN=hub.token)[0]["outcome"] == "Succeeded"
    assert 0 < len(hub.storage.asked) < 7


@pytest.mark.parametrize(
    ("where", "words"), [({"repo": "no/such"}, "no such repository"), ({"revision": "v9"}, "no such revision")]
)
def test_a_repository_or_revision_that_is_not_there_is_told(run, where, words):
    result, _ = run(**where)
    assert result["reason"] == "NotFound"
    assert words in result["message"]


@pytest.mark.parametrize("name", ["flow.pt", "cosyvoice3.yaml"])
def test_bytes_that_are_not_those_of_the_commit_are_refused_for_large_files_and_small_ones(run, hub, cache, name):
    hub.wrong.add(name)
    result, _ = run()
    assert result["reason"] == "ChecksumMismatch"
    assert result["message"].startswith(name)
    assert not list(cache.glob("models/*/manifest.json"))


def test_files_that_a_commit_lacks_are_told_before_any_is_fetched(run, hub, files):
    del files["hift.pt"]
    files["flow.pt"] = b""
    result, _ = run()
    assert result["reason"] == "MissingFile"
    assert "flow.pt (about 1.33 GB, is there, but empty), hift.pt (about 83 MB)" in result["message"]
    assert not hub.storage.asked
