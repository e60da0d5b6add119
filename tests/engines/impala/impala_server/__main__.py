"""Serve until killed: ``python -m tests.engines.impala.impala_server [PORT]`` prints its ports, binary and HTTP."""

from __future__ import annotations

import sys
import threading

from tests.engines.impala.impala_server.server import ImpalaServer

if __name__ == "__main__":
    with ImpalaServer(port=int(sys.argv[1]) if len(sys.argv) > 1 else 0) as server:
        print(server.port, server.http_port, flush=True)
        threading.Event().wait()
