"""Google Cloud Storage."""

from __future__ import annotations

import datetime as dt
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from metastore.objects.kinds.kind import (
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

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_REFUSED = "Google gives no token"
_PERIOD_S = 600.0
"""Time after which another token is asked for; Google's live for an hour."""
_TOKEN_S = 3_600.0
"""Life of a token whose catalog does not tell it."""


@dataclass(frozen=True, slots=True)
class GcsStore(ObjectStore):
    """A prefix such as ``gs://bucket/folder``.

    credentials_file: JSON file with a service account's key, or what ``gcloud auth application-default login`` wrote.
    token: bearer token that a catalog gave. token_expires_ms: end of its life, in milliseconds since 1970, as a text.
    """

    credentials_file: str = ""
    token: str = field(default="", repr=False)
    token_expires_ms: str = ""

    SCHEMES: ClassVar = ("gs", "gcs")
    EXAMPLE: ClassVar = "gs://bucket/folder"
    CREDENTIALS: ClassVar = ("credentials_file", "token", "token_expires_ms")
    PROPERTIES: ClassVar = {
        "gcs.service.host": "endpoint",
        "gcs.credentials-file": "credentials_file",  # ours: pyiceberg has no name for it
        "gcs.oauth2.token": "token",
        "gcs.oauth2.token-expires-at": "token_expires_ms",
    }
    DENIED: ClassVar = ("PERMISSION_DENIED", "UNAUTHENTICATED", _REFUSED)

    @staticmethod
    def canonical(scheme: str, rest: str) -> str:
        """Return a location as ``gs://bucket/a/b``. Raises InvalidLocation."""
        bucket, _, path = rest.partition("/")
        if _BUCKET.fullmatch(bucket) is None:
            raise InvalidLocation(f"{bucket!r:.80} is not the name of a bucket: give {GcsStore.EXAMPLE}")
        return joined(f"gs://{bucket}", path)

    @property
    def filesystem(self) -> pafs.FileSystem:
        """The store as a file system; its paths begin with the bucket."""
        period = int(time.time() // _PERIOD_S)
        if self.token:
            expires_s = float(self.token_expires_ms or 0) / 1_000 or period * _PERIOD_S + _TOKEN_S
            return _filesystem(self.endpoint, self.token, expires_s)
        if self.credentials_file:
            return _filesystem(self.endpoint, *_token(self.credentials_file, period))
        return _filesystem(self.endpoint, "", 0.0)

    def delta_options(self) -> dict[str, str]:
        """Return the options by which delta-rs reaches the store."""
        return filled(
            {
                **delta_limits(self.endpoint),
                "google_base_url": self.endpoint,
                "google_application_credentials": self.credentials_file,
            }
        )


@lru_cache(64)
def _filesystem(endpoint: str, token: str, expires_s: float) -> pafs.FileSystem:
    import pyarrow.fs as pafs  # it takes a tenth of a second, and most processes open no store

    scheme, host = scheme_and_host(endpoint)
    expires = {"credential_token_expiration": dt.datetime.fromtimestamp(expires_s, dt.UTC)} if token else {}
    options: Mapping[str, str] = {"access_token": token, "endpoint_override": host, "scheme": scheme}
    limit = dt.timedelta(seconds=REQUEST_S * TRIES)
    return pafs.GcsFileSystem(retry_time_limit=limit, **filled(options), **expires)


@lru_cache(64)
def _token(credentials_file: str, period: int) -> tuple[str, float]:
    """Return a bearer token of a file's account, and the end of its life in seconds since 1970. Raises OSError.

    period: number of the ten minutes since 1970, so that each of them asks for a token of its own.
    """
    try:
        from google.auth import exceptions
        from google.auth.transport.requests import Request
        from google.oauth2 import credentials as users
        from google.oauth2 import service_account
    except ImportError as failure:
        raise OSError("google-auth is not installed: pip install 'fusion-sql-gateway[gcs]'") from failure
    types = {  # those that delta-rs takes, too
        "service_account": service_account.Credentials.from_service_account_info,
        "authorized_user": users.Credentials.from_authorized_user_info,
    }
    try:
        content = json.loads(Path(credentials_file).read_text(encoding="utf-8"))
        credentials = types[content["type"]](content, scopes=[_SCOPE])
        credentials.refresh(partial(Request(), timeout=REQUEST_S))
    except (exceptions.GoogleAuthError, OSError, ValueError, KeyError, TypeError) as failure:
        raise OSError(f"{_REFUSED} for {credentials_file} ({type(failure).__name__})") from failure
    return credentials.token, credentials.expiry.replace(tzinfo=dt.UTC).timestamp()
