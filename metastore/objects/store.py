"""Places in object stores: how a location is written, and how a store is reached, with which credentials."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow.fs as pafs

SCHEMES = {"s3": "s3", "s3a": "s3", "s3n": "s3"}
"""Schemes of locations, with the one that stands for them."""
CONNECT_S, REQUEST_S = 5.0, 10.0
"""Longest wait for a connection, and for the next bytes of an answer."""
TRIES = 4
"""Times that a request is sent, the first one included; 503 (SlowDown), 500 and lost connections are tried again."""
LONGEST_NAME = 255
"""Bytes of one step of a path, as file systems have it."""
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


class InvalidLocation(ValueError):
    """A location in an object store is not valid; the message is a clause that says why."""


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A prefix of an object store and how it is reached.

    prefix: such as ``s3://bucket/folder``; "" stands for any location.
    endpoint: address of a store beside AWS, such as ``http://127.0.0.1:9000``; "": AWS's own.
    access_key, secret_key, session_token: "" for those of the environment, the AWS files, or the machine's role.
    """

    prefix: str
    endpoint: str = ""
    region: str = "us-east-1"
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)

    def holds(self, location: str) -> bool:
        """Return True for a location at the prefix or below it."""
        return location == self.prefix or location.startswith(f"{self.prefix.rstrip('/')}/")

    @property
    def filesystem(self) -> pafs.FileSystem:
        """The store as a file system; its paths begin with the bucket."""
        return _filesystem(self)

    def delta_options(self) -> dict[str, str]:
        """Return the options by which delta-rs reaches the store."""
        options = {
            "AWS_REGION": self.region,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true" if self.endpoint.startswith("http:") else "",
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_SESSION_TOKEN": self.session_token,
            "timeout": f"{REQUEST_S:.0f}s",
            "connect_timeout": f"{CONNECT_S:.0f}s",
            "max_retries": str(TRIES - 1),
        }
        return {name: value for name, value in options.items() if value}

    def iceberg_properties(self) -> dict[str, str]:
        """Return the properties by which pyiceberg reaches the store."""
        properties = {
            "s3.region": self.region,
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "s3.session-token": self.session_token,
            "s3.connect-timeout": str(CONNECT_S),
            "s3.request-timeout": str(REQUEST_S),
        }
        return {name: value for name, value in properties.items() if value}


def is_remote(location: str) -> bool:
    """Return True for a location in an object store."""
    return location.partition("://")[0].lower() in SCHEMES and "://" in location


def location_of(text: str) -> str:
    """Return a location in its only form: ``s3://bucket/a/b``. Raises InvalidLocation."""
    scheme, _, rest = text.partition("://")
    bucket, *steps = rest.rstrip("/").split("/")
    if _BUCKET.fullmatch(bucket) is None:
        raise InvalidLocation(f"{bucket!r:.80} is not the name of a bucket: give s3://bucket/folder")
    require_steps(steps)
    return "/".join([f"{SCHEMES[scheme.lower()]}:/", bucket, *steps])


def require_steps(steps: Iterable[str]) -> None:
    """Raise InvalidLocation for steps of a path that no file system has."""
    for step in steps:
        if step in ("", ".", ".."):
            raise InvalidLocation("its path has an empty step, . or ..")
        if not step.isprintable():
            raise InvalidLocation(f"the step {step!r:.80} of its path has unprintable characters")
        if len(step.encode()) > LONGEST_NAME:
            raise InvalidLocation(f"the step {step:.40}... of its path has more than {LONGEST_NAME} bytes")


def key_of(location: str) -> str:
    """Return a location as a path of the store's file system: ``bucket/a/b``."""
    return location.partition("://")[2]


def copy_of(location: str, folder: Path) -> Path:
    """Return the path of an object's copy. folder: of all copies. Raises InvalidLocation."""
    canonical = location_of(location)
    scheme, _, rest = canonical.partition("://")
    return folder / scheme / rest


def origin_of(copy: Path, folder: Path) -> str:
    """Return the location of the object whose copy has a path."""
    scheme, *steps = copy.relative_to(folder).parts
    return f"{scheme}://{'/'.join(steps)}"


@lru_cache(64)
def _filesystem(store: ObjectStore) -> pafs.FileSystem:
    import pyarrow.fs as pafs  # it takes a tenth of a second, and most processes open no store

    scheme, _, host = store.endpoint.rstrip("/").partition("://")
    options: Mapping[str, str] = {
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
        **{name: value for name, value in options.items() if value},
    )
