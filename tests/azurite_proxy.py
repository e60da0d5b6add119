"""A proxy before Azurite 3.35 that lists blobs from a name on (``startFrom``), as Azure does.

delta-rs asks for that since object_store 0.13; Azurite ignores it and answers with all blobs, after which delta-rs
finds no version beyond the first one. All other requests and answers pass unchanged.
"""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, port: int, *arguments: object) -> None:
        self._port = port
        super().__init__(*arguments)  # type: ignore[arg-type]

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        upstream = http.client.HTTPConnection("127.0.0.1", self._port)
        try:
            upstream.request(self.command, self.path, body, dict(self.headers))
            answer = upstream.getresponse()
            content = answer.read()
        finally:
            upstream.close()
        first = parse_qs(urlsplit(self.path).query).get("startFrom", [""])[0].encode()
        if first and answer.status == 200:
            content = re.sub(
                rb"<Blob><Name>(.*?)</Name>.*?</Blob>",
                lambda blob: blob[0] if blob[1] >= first else b"",
                content,
                flags=re.S,
            )
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "keep-alive"):
                self.send_header(name, value)
        is_head = self.command == "HEAD"
        self.send_header("Content-Length", answer.headers.get("Content-Length", "0") if is_head else str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do_PATCH = _forward

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


@contextmanager
def proxied(port: int) -> Iterator[int]:
    """Serve a proxy of a port of this machine, and yield its own port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, port))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
