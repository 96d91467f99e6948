"""Models from S3, with botocore against a real S3 server, through a gateway that breaks when told to."""

from __future__ import annotations

import urllib.request

import botocore.session
import pytest

from cosyvoice_runtime.fetch.errors import FetchError
from tests.unit.fetch.models import model
from tests.unit.fetch.servers import Before

BUCKET, PREFIX = "speech-models", "exports/cv3"


def tell(moto, what, body=b""):
    """Ask the server something that is not of S3: to forget all, or after how many requests it checks credentials."""
    headers = {"Content-Type": "application/octet-stream"}
    urllib.request.urlopen(urllib.request.Request(f"{moto}/moto-api/{what}", body, headers, method="POST")).close()


@pytest.fixture
def store(moto, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret-key")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    tell(moto, "reset")
    client = botocore.session.Session().create_client("s3", endpoint_url=moto, region_name="us-east-1")
    client.create_bucket(Bucket=BUCKET)
    for name, data in model("CosyVoice3").items():
        client.put_object(Bucket=BUCKET, Key=f"{PREFIX}/{name}", Body=data, ChecksumAlgorithm="SHA256")
    client.put_object(Bucket=BUCKET, Key=f"{PREFIX}-other/stray", Body=b"of another model")
    client.put_object(Bucket=BUCKET, Key=f"{PREFIX}/", Body=b"")  # what consoles make for a folder
    return client


@pytest.fixture
def gateway(start, moto):
    return start(Before(moto))


@pytest.fixture
def run(fetch, store, gateway):
    def run(**changes):
        return fetch({"s3": {"bucket": BUCKET, "prefix": PREFIX, "endpoint": gateway.url} | changes})

    return run


def gets(gateway, name):
    return [asked.span for asked in gateway.asked if asked.method == "GET" and asked.path.endswith(name)]


def test_the_objects_of_a_prefix_are_fetched_and_nothing_beside_it(run, cache, files):
    result = run()
    assert result.files == len(files) - 1
    assert (cache / result.path / "flow.pt").read_bytes() == files["flow.pt"]


def test_a_prefix_that_has_not_changed_is_listed_and_not_fetched_again(run, gateway):
    run()
    gateway.asked.clear()
    assert run().reused
    assert not gets(gateway, "flow.pt")


def test_a_prefix_that_has_changed_is_another_model(run, store):
    first = run()
    store.put_object(Bucket=BUCKET, Key=f"{PREFIX}/flow.pt", Body=b"retrained")
    second = run()
    assert second.digest != first.digest
    assert not second.reused


def test_a_broken_connection_goes_on_and_loses_next_to_nothing(run, gateway):
    gateway.cuts[f"/{BUCKET}/{PREFIX}/flow.pt"] += [1 << 20]
    run()
    first, second = gets(gateway, "flow.pt")
    assert first is None
    assert (1 << 20) - (1 << 16) <= int(second.removeprefix("bytes=").rstrip("-")) <= 1 << 20


def test_an_object_that_changes_on_the_way_is_refused_by_the_checksum_of_the_store(run, gateway, files):
    gateway.change["flow.pt"] = files["flow.pt"][:-1] + b"?"
    with pytest.raises(FetchError, match=r"flow\.pt: its sha256 is") as caught:
        run()
    assert caught.value.reason == "ChecksumMismatch"


def test_credentials_that_are_refused_name_the_secret_and_are_not_shown(run, moto):
    tell(moto, "reset-auth", b"0")
    try:
        with pytest.raises(FetchError, match="answered InvalidAccessKeyId; check AWS_ACCESS_KEY_ID") as caught:
            run()
    finally:
        tell(moto, "reset-auth", b"inf")
    assert caught.value.reason == "Unauthorized"
    assert "AKIAEXAMPLE" not in caught.value.message


def test_what_is_public_is_fetched_without_credentials(run, store, gateway, monkeypatch, files):
    for name in files:
        store.put_object_acl(Bucket=BUCKET, Key=f"{PREFIX}/{name}", ACL="public-read")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    run()
    assert {asked.authorization for asked in gateway.asked} == {None}


@pytest.mark.parametrize("where", [{"bucket": "no-such-bucket"}, {"prefix": "no/such/prefix"}])
def test_a_bucket_or_prefix_that_is_not_there_is_told(run, where):
    with pytest.raises(FetchError) as caught:
        run(**where)
    assert caught.value.reason == "NotFound"


def test_objects_that_a_prefix_lacks_are_told_before_any_is_fetched(run, store, gateway):
    store.delete_object(Bucket=BUCKET, Key=f"{PREFIX}/campplus.onnx")
    with pytest.raises(FetchError, match=r"lacks 1 file of CosyVoice3: campplus\.onnx") as caught:
        run()
    assert caught.value.reason == "MissingFile"
    assert not gets(gateway, "flow.pt")
