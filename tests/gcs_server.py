"""A Google Cloud Storage for tests: gcp-storage-emulator, with the XML requests of delta-rs that it lacks.

pyarrow speaks the JSON API, which the emulator has. delta-rs speaks the XML API, whose requests are answered here over
the same objects: ranges, lists, deletes, and uploads that fail where the object exists. Requests need a bearer token of
any text; ``POST /token`` gives one, as Google's server of tokens does. It shows nothing of Google's rights or limits.

    python -m tests.gcs_server PORT BUCKET
"""

from __future__ import annotations

import json
import re
import sys
from email.utils import formatdate
from functools import partial
from http.server import ThreadingHTTPServer
from threading import Lock
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from gcp_storage_emulator.exceptions import Conflict, NotFound
from gcp_storage_emulator.handlers import buckets
from gcp_storage_emulator.handlers.objects import _checksums, _make_object_resource
from gcp_storage_emulator.server import RequestHandler
from gcp_storage_emulator.storage import Storage

_JSON_API = ("/storage/", "/upload/", "/download/", "/b/")
_LOCK = Lock()


class Handler(RequestHandler):  # type: ignore[misc]
    """The emulator's handler, with another one for requests of the XML API."""

    protocol_version = "HTTP/1.1"

    def parse_request(self) -> bool:
        parsed = bool(super().parse_request())
        if parsed and self.path == "/token":
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(200, json.dumps({"access_token": "a-bearer-token", "expires_in": 3600}).encode())
            return False
        if parsed and not self.headers.get("Authorization", "").startswith("Bearer "):
            self._answer(401, b"")
            return False
        if parsed and not self.path.startswith(_JSON_API):
            with _LOCK:
                self._xml()
            return False
        if parsed:
            self.close_connection = True
        return parsed

    def _xml(self) -> None:
        url = urlsplit(self.path)
        bucket, _, name = unquote(url.path).lstrip("/").partition("/")
        try:
            match self.command:
                case "GET" if not name:
                    self._list(bucket, {key: values[0] for key, values in parse_qs(url.query).items()})
                case "GET" | "HEAD":
                    self._object(bucket, name)
                case "PUT":
                    self._put(bucket, name)
                case "DELETE":
                    self.storage.delete_file(bucket, name)
                    self._answer(204, b"")
                case _:
                    self._answer(501, b"")
        except (NotFound, Conflict):
            self._answer(404, b"")

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        objects, prefixes = self.storage.get_file_list(bucket, query.get("prefix"), query.get("delimiter"))[:2]
        after = query.get("start-after", "")
        files = "".join(
            f"<Contents><Key>{escape(one['name'])}</Key><Size>{one['size']}</Size>"
            f"<LastModified>{one['updated']}</LastModified><ETag>{escape(one['etag'])}</ETag></Contents>"
            for one in sorted(objects, key=lambda one: str(one["name"]))
            if one["name"] > after
        )
        folders = "".join(f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in prefixes)
        self._answer(200, f"<ListBucketResult>{files}{folders}</ListBucketResult>".encode())

    def _object(self, bucket: str, name: str) -> None:
        content = self.storage.get_file(bucket, name, False)
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if asked is None:
            self._answer(200, content)
            return
        begin = int(asked[1]) if asked[1] else max(0, len(content) - int(asked[2]))
        end = min(len(content), int(asked[2]) + 1) if asked[1] and asked[2] else len(content)
        self._answer(206, content[begin:end], f"bytes {begin}-{end - 1}/{len(content)}")

    def _put(self, bucket: str, name: str) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        names = {one["name"] for one in self.storage.get_file_list(bucket, name)[0]}
        if self.headers.get("x-goog-if-generation-match") == "0" and name in names:
            self._answer(412, b"")
            return
        host = f"http://{self.headers['Host']}"
        kind = self.headers.get("Content-Type", "application/octet-stream")
        value = _checksums(content, _make_object_resource(host, bucket, name, kind, str(len(content))))
        self.storage.create_file(bucket, name, content, value)
        self._answer(200, b"")

    def _answer(self, status: int, content: bytes, content_range: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Last-Modified", formatdate(usegmt=True))
        self.send_header("ETag", '"1"')
        self.send_header("x-goog-generation", "1")
        if content_range:
            self.send_header("Content-Range", content_range)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        self.wfile.flush()


def serve(port: int, bucket: str) -> None:
    """Serve an empty bucket in memory until the process ends."""
    storage = Storage(use_memory_fs=True)
    buckets.create_bucket(bucket, storage)
    ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, storage)).serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2])
