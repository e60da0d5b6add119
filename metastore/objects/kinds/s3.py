"""Amazon S3, and stores that speak its protocol: MinIO, Ceph, SeaweedFS, R2."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from metastore.objects.kinds.kind import (
    CONNECT_S,
    REQUEST_S,
    TRIES,
    InvalidLocation,
    ObjectStore,
    delta_limits,
    filled,
    joined,
    scheme_and_host,
)

if TYPE_CHECKING:
    import pyarrow.fs as pafs

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass(frozen=True, slots=True)
class S3Store(ObjectStore):
    """A prefix such as ``s3://bucket/folder``."""

    region: str = "us-east-1"
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)

    SCHEMES: ClassVar = ("s3", "s3a", "s3n")
    EXAMPLE: ClassVar = "s3://bucket/folder"
    CREDENTIALS: ClassVar = ("access_key", "secret_key", "session_token")
    PROPERTIES: ClassVar = {
        "s3.endpoint": "endpoint",
        "client.region": "region",
        "s3.region": "region",
        "s3.access-key-id": "access_key",
        "s3.secret-access-key": "secret_key",
        "s3.session-token": "session_token",
    }
    DENIED: ClassVar = ("ACCESS_DENIED", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken")
    GONE: ClassVar = ("NoSuchBucket",)
    ENDS: ClassVar = True

    @staticmethod
    def canonical(scheme: str, rest: str) -> str:
        """Return a location as ``s3://bucket/a/b``. Raises InvalidLocation."""
        bucket, _, path = rest.partition("/")
        if _BUCKET.fullmatch(bucket) is None:
            raise InvalidLocation(f"{bucket!r:.80} is not the name of a bucket: give {S3Store.EXAMPLE}")
        return joined(f"s3://{bucket}", path)

    @property
    def filesystem(self) -> pafs.FileSystem:
        """The store as a file system; its paths begin with the bucket."""
        return _filesystem(self)

    def delta_options(self) -> dict[str, str]:
        """Return the options by which delta-rs reaches the store."""
        return filled(
            {
                **delta_limits(self.endpoint),
                "aws_region": self.region,
                "aws_endpoint_url": self.endpoint,
                "aws_access_key_id": self.access_key,
                "aws_secret_access_key": self.secret_key,
                "aws_session_token": self.session_token,
            }
        )


@lru_cache(64)
def _filesystem(store: S3Store) -> pafs.FileSystem:
    import pyarrow.fs as pafs  # it takes a tenth of a second, and most processes open no store

    # Not every store that speaks the protocol reads uploads with checksums behind them: Ceph 16 answers 411.
    os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    scheme, host = scheme_and_host(store.endpoint)
    options = {
        "access_key": store.access_key,
        "secret_key": store.secret_key,
        "session_token": store.session_token,
        "endpoint_override": host,
        "scheme": scheme,
    }
    return pafs.S3FileSystem(
        region=store.region,
        connect_timeout=CONNECT_S,
        request_timeout=REQUEST_S,
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=TRIES),
        **filled(options),
    )
