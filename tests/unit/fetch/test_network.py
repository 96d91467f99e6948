"""Proxies and authorities of a company's network: each library has to take them from the same variables."""

from __future__ import annotations

import datetime as dt
import ssl

import botocore.session
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.unit.fetch.models import model
from tests.unit.fetch.servers import COMMIT, Before, Files, HuggingFace, ModelScope, sha256
from tests.unit.fetch.test_http import tar

SOURCES = ["http", "huggingFace", "modelScope", "s3"]
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "s3cret-key"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """A certificate of localhost that only its own authority vouches for: files with certificate and key."""
    folder = tmp_path_factory.mktemp("authority")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder


@pytest.fixture
def served(request, start, files):
    """A source of each kind: its server, and what a pod is told of it when the server is at an address."""
    kind = request.param
    if kind == "http":
        data = tar(files)
        server = start(Files({"/m.tar": data}))
        return server, lambda url: ({"http": {"url": f"{url}/m.tar", "sha256": sha256(data)}}, {})
    if kind == "huggingFace":
        server = start(HuggingFace("a/b", files))
        return server, lambda url: ({"huggingFace": {"repo": "a/b", "revision": COMMIT}}, {"HF_ENDPOINT": url})
    if kind == "modelScope":
        server = start(ModelScope("a/b", files))
        return server, lambda url: ({"modelScope": {"repo": "a/b", "revision": "v2.0"}}, {"MODELSCOPE_ENDPOINT": url})
    address = request.getfixturevalue("moto")
    client = botocore.session.Session().create_client(
        "s3", endpoint_url=address, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    client.create_bucket(Bucket="network-models")
    for name, data in model("CosyVoice3").items():
        client.put_object(Bucket="network-models", Key=name, Body=data)
    server = start(Before(address))
    return server, lambda url: ({"s3": {"bucket": "network-models", "endpoint": url}}, CREDENTIALS)


@pytest.mark.parametrize("served", SOURCES, indirect=True)
def test_an_authority_named_in_ssl_cert_file_is_trusted_and_told_about_where_it_is_not(served, program, authority):
    server, told = served
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "certificate", authority / "key")
    server.encrypt(context)
    source, environment = told(server.url)

    refusing, _ = program(source, **environment).end()
    trusting, _ = program(source, **environment, SSL_CERT_FILE=str(authority / "certificate")).end()

    assert refusing["reason"] == "Network"
    assert "the certificate of localhost is not trusted; mount a bundle" in refusing["message"]
    assert trusting["outcome"] == "Succeeded"


@pytest.mark.parametrize("served", SOURCES, indirect=True)
def test_a_proxy_is_taken_from_the_environment_and_its_password_is_not_shown(served, program, start):
    server, told = served
    proxy = start(Before(server.url))
    source, environment = told("http://models.example.test")
    address = proxy.url.replace("://", "://me:s3cret-password@")

    result, printed = program(source, **environment, HTTP_PROXY=address, http_proxy=address, NO_PROXY="127.0.0.1").end()

    assert result["outcome"] == "Succeeded", printed
    assert proxy.asked
    assert "s3cret" not in printed
