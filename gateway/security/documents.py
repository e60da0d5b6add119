"""JSON documents of services that the gateway trusts: an identity provider's, and a policy service's."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from gateway.security.addresses import AddressUnsafe, require_private

LARGEST_BYTES = 256 << 10  # Google's documents have 2 KiB, Entra's keys 20 KiB


class DocumentFault(Exception):
    """The service does not answer, or its document cannot be used; the message is for the log.

    is_refusal: it answers, and refuses what it was sent.
    """

    def __init__(self, message: str, *, is_refusal: bool = False) -> None:
        super().__init__(message)
        self.is_refusal = is_refusal


@contextmanager
def connected(timeout_s: float, ca_file: Path | None) -> Iterator[httpx.Client]:
    """Give a client. Raises DocumentFault.

    ca_file: certificates that are trusted in place of the system's, PEM; None: the system's.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
        with httpx.Client(verify=context, timeout=timeout_s, follow_redirects=False) as client:
            yield client
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise DocumentFault(f"{type(error).__name__}: {error}") from error


def json_document(
    client: httpx.Client,
    address: str,
    timeout_s: float,
    *,
    form: Mapping[str, str] | None = None,
    auth: httpx.Auth | None = None,
    headers: Mapping[str, str] | None = None,
    largest_bytes: int = LARGEST_BYTES,
) -> Mapping[str, Any]:
    """Return a JSON object, in reply to a form where there is one. Raises DocumentFault, and errors of httpx.

    timeout_s: time for all of it.
    """
    try:
        require_private(address)
    except AddressUnsafe as error:
        raise DocumentFault(str(error)) from error
    until_s = time.monotonic() + timeout_s
    sent = {"Accept": "application/json", "Accept-Encoding": "identity", **(headers or {})}
    method = "GET" if form is None else "POST"
    with client.stream(method, address, headers=sent, data=form, auth=auth) as reply:
        if reply.status_code != httpx.codes.OK:
            is_refusal = reply.status_code in (httpx.codes.BAD_REQUEST, httpx.codes.UNAUTHORIZED)
            raise DocumentFault(f"{address} answers with the status {reply.status_code}", is_refusal=is_refusal)
        content = b""
        for piece in reply.iter_raw():
            content += piece
            if len(content) > largest_bytes or time.monotonic() > until_s:
                raise DocumentFault(f"{address} has more than {largest_bytes:,} bytes, or takes too long")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DocumentFault(f"{address} is not JSON") from error
    if not isinstance(document, dict):
        raise DocumentFault(f"{address} is not an object of JSON")
    return document
