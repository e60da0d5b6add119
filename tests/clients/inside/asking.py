"""Ask the gateway over HTTP, past the client that is tried, what its statements brought about."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from typing import Any

ANSWERS_WITHIN_S = 120


def ask(sql: str, engine: str = "auto") -> list[list[Any]]:
    """Return the rows of a statement of Spark's. Raises AssertionError with the gateway's words where it fails."""
    url = f"http://127.0.0.1:{os.environ['CLIENTS_HTTP_PORT']}/v1/queries"
    asked = json.dumps({"sql": sql, "engine": engine, "wait_s": ANSWERS_WITHIN_S}).encode()
    request = urllib.request.Request(url, data=asked, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=ANSWERS_WITHIN_S + 10) as answer:  # noqa: S310
            reply = json.load(answer)
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()) from error
    assert reply["state"] == "FINISHED", reply.get("error")
    rows: list[list[Any]] = reply["rows"]
    return rows
