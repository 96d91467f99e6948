"""Objects under a prefix of an S3 bucket, through botocore: what boto3 is made of, without what this program has itself."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import botocore.session
from botocore import UNSIGNED, exceptions
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, IncompleteReadError

from cosyvoice_runtime.fetch.errors import FetchError, Reason
from cosyvoice_runtime.fetch.request import S3Source
from cosyvoice_runtime.fetch.sources.base import (
    CONNECT_SECONDS,
    READ_CHUNK,
    READ_SECONDS,
    Checksum,
    RemoteFile,
    Stream,
    checked,
    network,
    status_error,
)

_FIELD = "spec.model.source.s3.credentialsSecretRef"
_REFUSED = {
    "AccessDenied", "AllAccessDisabled", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch",
    "TokenRefreshRequired", "403", "401",
}  # fmt: skip
_ABSENT = {"NoSuchBucket", "NoSuchKey", "404"}


class S3Prefix:
    """The objects of one prefix. A prefix is a folder: `models/a` does not mean `models/ab`."""

    archive = False
    pinned = False

    def __init__(self, source: S3Source) -> None:
        self._bucket = source.bucket
        folder = source.prefix.strip("/")
        self._prefix = f"{folder}/" if folder else ""
        self.title = f"s3 {self._bucket}/{self._prefix}"
        session = botocore.session.Session()
        with self._translated():
            # The environment, then the identity of the pod; what is public needs neither.
            self._anonymous = session.get_credentials() is None
        signature = {"signature_version": UNSIGNED} if self._anonymous else {}
        self._client = session.create_client(
            "s3",
            endpoint_url=source.endpoint,
            region_name=source.region or session.get_config_variable("region") or "us-east-1",
            config=Config(
                connect_timeout=CONNECT_SECONDS,
                read_timeout=READ_SECONDS,
                # What is worth another try is decided in one place, for all sources alike.
                retries={"total_max_attempts": 1, "mode": "standard"},
                max_pool_connections=16,
                # Services other than AWS often have no names for buckets, and not all know the newer checksums.
                s3={"addressing_style": "path" if source.endpoint else "auto"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                **signature,
            ),
        )
        self._host = urlsplit(self._client.meta.endpoint_url).hostname or ""

    def files(self) -> Sequence[RemoteFile]:
        """What the prefix holds. An ETag is no checksum (encryption and uploads in parts change it), but it pins the content."""
        found = []
        with self._translated():
            for page in self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix
            ):
                for entry in page.get("Contents", ()):
                    path = entry["Key"][len(self._prefix) :]
                    if path and not path.endswith("/"):
                        checksum = self._checksum(entry)
                        found.append(RemoteFile(path, entry["Size"], checksum, entry["ETag"]))
        return checked(found, self.title)

    def _checksum(self, entry: dict[str, Any]) -> Checksum | None:
        if "SHA256" not in entry.get("ChecksumAlgorithm", ()):
            return None
        head = self._client.head_object(Bucket=self._bucket, Key=entry["Key"], ChecksumMode="ENABLED")
        value = head.get("ChecksumSHA256", "")
        # Of an object that came in parts it is a digest of digests, with the number of parts behind a dash.
        if not value or "-" in value or head.get("ChecksumType") == "COMPOSITE":
            return None
        return Checksum("sha256", base64.b64decode(value).hex())

    @contextlib.contextmanager
    def read(self, file: RemoteFile, offset: int) -> Iterator[Stream]:
        """Open an object at an offset, as long as it is the one that was listed."""
        span = {"Range": f"bytes={offset}-"} if offset else {}
        with self._translated():
            answer = self._client.get_object(
                Bucket=self._bucket, Key=self._prefix + file.path, IfMatch=file.tag, **span
            )
            with contextlib.closing(answer["Body"]) as body:
                yield Stream(offset if "ContentRange" in answer else 0, body.iter_chunks(READ_CHUNK))

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            raise self._refused(error) from None
        except (HTTPClientError, exceptions.ConnectionError, IncompleteReadError) as error:
            raise network(error, self._host) from None
        except BotoCoreError as error:
            # What is wrong with credentials and settings before anything is sent; its texts hold neither.
            raise FetchError(Reason.UNAUTHORIZED, f"{self.title}: {error}; check {_FIELD}") from None

    def _refused(self, error: ClientError) -> FetchError:
        code = error.response.get("Error", {}).get("Code", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
        if code in _REFUSED:
            step = (
                f"no credentials were given: put them into a Secret and name it in {_FIELD}"
                if self._anonymous
                else f"check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the Secret that {_FIELD} names, and that the identity "
                "may list the bucket and read its objects"
            )
            return FetchError(Reason.UNAUTHORIZED, f"{self.title}: {self._host} answered {code}; {step}")
        if code in _ABSENT:
            return FetchError(
                Reason.NOT_FOUND, f"{self.title}: {self._host} answered {code}; check spec.model.source.s3"
            )
        if status == 412:
            return FetchError(
                Reason.CHECKSUM_MISMATCH, f"{self.title}: an object was replaced while it was fetched; fetch again"
            )
        return status_error(status, self._host)
